package test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/freeport"
	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// TestTraefikAsks runs the Caddy of the recipe behind the Traefik of the recipe: the program that
// DIANA_TRAEFIK names (.ci/traefik), otherwise what sends the same requests.
func TestTraefikAsks(t *testing.T) {
	all := snippets(t)
	at := slices.IndexFunc(all, func(sn snippet) bool { return sn.lang == "yaml" && strings.Contains(sn.text, "forwardAuth:") })
	if at < 1 || all[at-1].lang != "caddyfile" {
		t.Fatal("docs/recipes.md has no forwardAuth behind a Caddyfile")
	}
	s := newSite(t)
	local := strings.NewReplacer("limits.internal", "127.0.0.1")
	adapted, err := trace.Adapt(local.Replace(all[at-1].text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.loadText(adapted, trace.Place{}); err != nil {
		t.Fatal(err)
	}
	upstream := "http://" + documentedUpstream(t)
	var url string
	if program := os.Getenv("DIANA_TRAEFIK"); program != "" {
		dynamic := strings.ReplaceAll(local.Replace(all[at].text), "http://127.0.0.1:8080", s.url)
		url = startTraefik(t, program, dynamic, upstream)
	} else {
		traefik := httptest.NewServer(forwardAuth(t, s.url, upstream))
		t.Cleanup(traefik.Close)
		url = traefik.URL
	}

	ask := func(from, method, path, body string) *http.Response {
		client := &http.Client{Transport: &http.Transport{
			DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext, DisableKeepAlives: true,
		}}
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		// What clients write is not what is counted.
		req.Header.Set("X-Forwarded-For", "203.0.113.9")
		req.Header.Set("X-Forwarded-Uri", "/other")
		req.Header.Set("X-Forwarded-Method", "DELETE")
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Body.Close() })
		return r
	}
	for _, c := range []struct {
		from, method, path, body string
		status                   int
	}{
		{"127.0.0.1", http.MethodGet, "/api/a?b=1", "", 200},
		{"127.0.0.1", http.MethodPost, "/api/b", "a body that Traefik keeps", 200},
		{"127.0.0.1", http.MethodGet, "/other", "", 200},
		{"127.0.0.1", http.MethodGet, "/missing", "", 404}, // the upstream's own answers stay
		{"127.0.0.1", http.MethodPut, "/api//./c", "", 200},
		{"127.0.0.1", http.MethodGet, "/api/d", "", 429},
		{"127.0.0.2", http.MethodGet, "/api/a", "", 200},
	} {
		r := ask(c.from, c.method, c.path, c.body)
		if wait := r.Header.Get("Retry-After"); r.StatusCode != c.status || (wait != "") != (c.status == 429) {
			t.Errorf("%s %s of %s: %d, Retry-After %q, want %d", c.method, c.path, c.from, r.StatusCode, wait, c.status)
		}
		if limit := r.Header.Get("RateLimit"); (limit != "") != (c.status == 429) {
			t.Errorf("%s %s of %s: RateLimit %q, want it on denials only", c.method, c.path, c.from, limit)
		}
	}
}

// startTraefik starts a Traefik that passes requests with a middleware to an upstream, and waits until it
// does. It returns its URL.
func startTraefik(t *testing.T, program, middleware, upstream string) (url string) {
	t.Helper()
	port, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	address, file := fmt.Sprintf("127.0.0.1:%d", port), filepath.Join(t.TempDir(), "dynamic.yml")
	dynamic := middleware + fmt.Sprintf(`
  routers:
    all:
      rule: PathPrefix(%s)
      middlewares: [limits]
      service: upstream
  services:
    upstream:
      loadBalancer:
        servers: [{url: %q}]
`, "`/`", upstream)
	if err := os.WriteFile(file, []byte(dynamic), 0o600); err != nil {
		t.Fatal(err)
	}
	startProxy(t, address, command(t, program, "--entrypoints.web.address="+address, "--providers.file.filename="+file,
		"--global.checknewversion=false", "--global.sendanonymoususage=false"))
	until(t, "Traefik has read its file", func() bool {
		r, err := http.Get("http://" + address + "/other") // the zone does not count it
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return "http://" + address
}

// forwardAuth does what Traefik does (pkg/middlewares/auth/forward.go): it asks with a GET that
// has no body, the client's header and X-Forwarded fields of its own, sends any answer other than
// 2xx to the client, and otherwise passes the request on to the upstream.
func forwardAuth(t *testing.T, url, upstream string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		question.Header = r.Header.Clone()
		maps.DeleteFunc(question.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "X-Forwarded-") })
		from, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			t.Error(err)
			return
		}
		for name, value := range map[string]string{
			"For": from, "Method": r.Method, "Proto": "http", "Port": "80", "Host": r.Host, "Uri": r.URL.RequestURI(),
		} {
			question.Header.Set("X-Forwarded-"+name, value)
		}
		answer := send(t, question)
		if answer.StatusCode/100 == 2 {
			passed, err := http.NewRequestWithContext(r.Context(), r.Method, upstream+r.URL.RequestURI(), r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			answer = send(t, passed)
		}
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	})
}

// send sends a request as a proxy does, which follows no redirect.
func send(t *testing.T, r *http.Request) *http.Response {
	transport := &http.Transport{DisableKeepAlives: true}
	a, err := transport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return &http.Response{StatusCode: http.StatusInternalServerError, Body: http.NoBody}
	}
	t.Cleanup(func() { _ = a.Body.Close() })
	return a
}
