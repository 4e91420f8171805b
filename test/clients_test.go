package test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// retryingClients are HTTP clients that wait for Retry-After, by the name in
// docs/clients.md. Each is a command that sends two requests to the URL that follows.
var retryingClients = map[string][]string{
	"got":         {"node", "bin/clients/got.mjs"},
	"axios-retry": {"node", "bin/clients/axios.mjs"},
	"urllib3":     {"python3", "bin/clients/urllib3_retry.py"},
	"curl":        {"curl", "-sS", "--retry", "3", "-o", "/dev/null", "-o", "/dev/null", "-w", "%{http_code}\n"},
}

// installClients installs the clients and adds the one that is built here.
func installClients(t *testing.T) map[string][]string {
	t.Helper()
	clients := maps.Clone(retryingClients)
	built := filepath.Join(t.TempDir(), "retryablehttp")
	clients["go-retryablehttp"] = []string{built}
	for _, args := range [][]string{{".ci/need", "clients"}, {"go", "build", "-C", "test/clients/retryablehttp", "-o", built, "."}} {
		if out, err := command(t, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return clients
}

// TestClientsRetryOnce runs clients through a limit of one request in some seconds. Each
// sends two requests: the second is denied once, and its retry, after Retry-After, is
// admitted. Fewer tries are impossible, and a client that read no Retry-After would need
// more.
func TestClientsRetryOnce(t *testing.T) {
	clients := installClients(t)
	var zones strings.Builder
	for _, headers := range []string{"draft", "all"} {
		fmt.Fprintf(&zones, "rate_limit /%[1]s {\nheaders %[1]s\nzone %[1]s {\nkey {query.client}\nrule 1/5s sliding_log\n}\n}\n", headers)
	}
	s := serve(t, setup{site: zones.String() + "respond ok"})
	var all sync.WaitGroup
	for name, args := range clients {
		for _, path := range []string{"/draft", "/all"} {
			all.Go(func() {
				if err := runClient(t, args, s.url+path+"?client="+name); err != nil {
					t.Errorf("%s of %s: %v", name, path, err)
				}
			})
		}
	}
	all.Wait()
	lines := s.log.access(t, 2*3*len(clients))
	doc := textOf(t, "docs/clients.md")
	for name := range clients {
		for _, path := range []string{"/draft", "/all"} {
			const want = "[200 429 200]"
			if got := fmt.Sprint(statusesOf(lines, path+"?client="+name)); got != want {
				t.Errorf("%s of %s: %s, want %s", name, path, got, want)
			}
		}
		if !strings.Contains(doc, "| "+name+" | 3 | 3 |") {
			t.Errorf("docs/clients.md has no tries of %s", name)
		}
	}
	t.Logf("%d clients, %d tries needed, %d made", len(clients), 2*3*len(clients), len(lines))
}

// runClient runs a client and checks that both of its requests were answered with 200.
func runClient(t *testing.T, args []string, url string) error {
	args = append(slices.Clone(args), url)
	if args[0] == "curl" {
		args = append(args, url)
	}
	out, err := command(t, args...).CombinedOutput()
	if err == nil && strings.Join(strings.Fields(string(out)), " ") != "200 200" {
		err = fmt.Errorf("want 200 twice")
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// statusesOf returns the statuses in the access log of the requests whose URI contains a
// text.
func statusesOf(lines []map[string]any, text string) (statuses []int) {
	for _, line := range lines {
		request, _ := line["request"].(map[string]any)
		uri, _ := request["uri"].(string)
		status, _ := line["status"].(float64)
		if strings.Contains(uri, text) {
			statuses = append(statuses, int(status))
		}
	}
	return statuses
}
