package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Answer is an HTTP response whose body has been read.
type Answer struct {
	Status int         // HTTP status
	Header http.Header // as received
	Body   string      // whole body
}

// Do sends one request on a new connection and reads the response. headers are
// alternating names and values.
func Do(t testing.TB, method, url, body string, headers ...string) Answer {
	t.Helper()
	answer, err := do(method, url, body, headers)
	// With or without Diana, a Caddy that has just reloaded may close a
	// connection that it has accepted but not read from. To load a configuration twice is
	// to load it once, and so is to replace a part of it.
	for range 3 {
		if err == nil || method != http.MethodGet && method != http.MethodPatch && !strings.HasSuffix(url, "/load") {
			break
		}
		answer, err = do(method, url, body, headers)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return answer
}

func do(method, url, body string, headers []string) (a Answer, err error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Close = true
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, string(got)}, err
}

// Get gets a path of the site.
func (c *Caddy) Get(t testing.TB, path string, headers ...string) Answer {
	t.Helper()
	return Do(t, http.MethodGet, c.URL+path, "", headers...)
}

// Statuses gets a path n times and returns the status of each response.
func (c *Caddy) Statuses(t testing.TB, path string, n int) []int {
	t.Helper()
	statuses := make([]int, n)
	for i := range statuses {
		statuses[i] = c.Get(t, path).Status
	}
	return statuses
}

// Running returns Caddy's running configuration as JSON.
func (c *Caddy) Running(t testing.TB) string {
	t.Helper()
	return Do(t, http.MethodGet, c.Admin+"/config/", "").Body
}

// Load makes Caddy load config, which is JSON, even if it is unchanged.
func (c *Caddy) Load(t testing.TB, config string) Answer {
	t.Helper()
	return Do(t, http.MethodPost, c.Admin+"/load", config,
		"Content-Type", "application/json", "Cache-Control", "must-revalidate")
}

// Goroutines returns the number of Caddy's goroutines.
func (c *Caddy) Goroutines(t testing.TB) int {
	t.Helper()
	profile := Do(t, http.MethodGet, c.Admin+"/debug/pprof/goroutine?debug=1", "").Body
	first, _, _ := strings.Cut(profile, "\n")
	n, err := strconv.Atoi(strings.TrimPrefix(first, "goroutine profile: total "))
	if err != nil {
		t.Fatalf("goroutine profile: %q", first)
	}
	return n
}

// Metric returns the value of the series of that name whose labels include all the
// given pairs, label="value". ok is false if there is none.
func (c *Caddy) Metric(t testing.TB, name string, labels ...string) (value float64, ok bool) {
	t.Helper()
	metrics := Do(t, http.MethodGet, c.Admin+"/metrics", "").Body
	series := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `(\{[^}]*\})? (\S+)$`)
	for _, match := range series.FindAllStringSubmatch(metrics, -1) {
		if containsAll(match[1], labels) {
			value, err := strconv.ParseFloat(match[2], 64)
			if err != nil {
				t.Fatalf("metric %s: %v", name, err)
			}
			return value, true
		}
	}
	return 0, false
}

// HandlerPath returns the path below /config of the only Diana handler in config,
// which is JSON, such as /apps/http/servers/srv0/routes/0/handle/0.
func HandlerPath(t testing.TB, config string) string {
	t.Helper()
	var tree any
	if err := json.Unmarshal([]byte(config), &tree); err != nil {
		t.Fatalf("config: %v", err)
	}
	paths := findHandlers("", tree)
	if len(paths) != 1 {
		t.Fatalf("handlers in the config: %v, want one", paths)
	}
	return paths[0]
}

func findHandlers(path string, node any) (paths []string) {
	switch node := node.(type) {
	case map[string]any:
		if node["handler"] == "rate_limit" {
			return []string{path}
		}
		for key, child := range node {
			paths = append(paths, findHandlers(path+"/"+key, child)...)
		}
	case []any:
		for i, child := range node {
			paths = append(paths, findHandlers(fmt.Sprintf("%s/%d", path, i), child)...)
		}
	}
	return paths
}
