package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// retryingClients are HTTP clients that wait for Retry-After, by the name in
// docs/clients.md. Each is a command that sends two requests to the URL that follows.
var retryingClients = map[string][]string{
	"got":              {"node", "bin/clients/got.mjs"},
	"axios-retry":      {"node", "bin/clients/axios.mjs"},
	"urllib3":          {"python3", "bin/clients/urllib3_retry.py"},
	"go-retryablehttp": {"bin/clients/retryablehttp"},
	"curl":             {"curl", "-sS", "--retry", "3", "-o", "/dev/null", "-o", "/dev/null", "-w", "%{http_code}\n"},
}

// installClients installs the clients. It fails the test if it cannot.
func installClients(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{".ci/need-clients"},
		{"go", "build", "-C", "test/clients/retryablehttp", "-o", "../../../bin/clients/retryablehttp", "."},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestClientsRetryOnce runs clients through a limit of one request in some seconds. Each
// sends two requests: the second is denied once, and its retry, after Retry-After, is
// admitted. Fewer tries are impossible, and a client that read no Retry-After would need
// more.
func TestClientsRetryOnce(t *testing.T) {
	installClients(t)
	for _, headers := range []string{"draft", "all"} {
		t.Run(headers, func(t *testing.T) {
			s := serve(t, setup{site: `
				rate_limit {
					headers ` + headers + `
					zone ` + headers + ` {
						key {query.client}
						rule 1/5s sliding_log
					}
				}
				respond ok`})
			var all sync.WaitGroup
			for name, args := range retryingClients {
				all.Go(func() {
					if err := runClient(t, args, s.url+"/?client="+name); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			all.Wait()
			lines := s.log.access(t, 3*len(retryingClients))
			for name := range retryingClients {
				const want = "[200 429 200]"
				if got := fmt.Sprint(statusesOf(lines, "client="+name)); got != want {
					t.Errorf("%s: %s, want %s", name, got, want)
				}
			}
			t.Logf("%d clients, %d tries needed, %d made", len(retryingClients), 3*len(retryingClients), len(lines))
		})
	}
	doc := textOf(t, "docs/clients.md")
	for name := range retryingClients {
		if !strings.Contains(doc, "| "+name+" | 3 | 3 |") {
			t.Errorf("docs/clients.md has no tries of %s", name)
		}
	}
}

// runClient runs a client and checks that both of its requests were answered with 200.
func runClient(t *testing.T, args []string, url string) error {
	args = append(slices.Clone(args), url)
	if args[0] == "curl" {
		args = append(args, url)
	}
	if strings.HasPrefix(args[0], "bin/") {
		path, err := filepath.Abs(filepath.Join(root, args[0]))
		if err != nil {
			return err
		}
		args[0] = path
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.WaitDelay = root, time.Second
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	out, err := cmd.CombinedOutput()
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
		if strings.HasSuffix(uri, text) {
			statuses = append(statuses, int(status))
		}
	}
	return statuses
}
