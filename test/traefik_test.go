package test

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/trace"
)

// TestTraefikAsks runs the Caddy of the recipe behind requests as Traefik's forwardAuth sends them.
func TestTraefikAsks(t *testing.T) {
	all := snippets(t)
	at := slices.IndexFunc(all, func(sn snippet) bool { return sn.lang == "yaml" && strings.Contains(sn.text, "forwardAuth:") })
	if at < 1 || all[at-1].lang != "caddyfile" {
		t.Fatal("docs/recipes.md has no forwardAuth behind a Caddyfile")
	}
	s := newSite(t)
	adapted, err := trace.Adapt(all[at-1].text)
	if err != nil {
		t.Fatal(err)
	}
	host, err := s.loadText(adapted, trace.Place{})
	if err != nil {
		t.Fatal(err)
	}
	traefik := httptest.NewServer(forwardAuth(t, s.url, host, "http://"+documentedUpstream(t)))
	t.Cleanup(traefik.Close)

	ask := func(from, method, path, body string) *http.Response {
		client := &http.Client{Transport: &http.Transport{
			DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext, DisableKeepAlives: true,
		}}
		req, err := http.NewRequestWithContext(t.Context(), method, traefik.URL+path, strings.NewReader(body))
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

// forwardAuth does what Traefik 3.7 does (pkg/middlewares/auth/forward.go): it asks with a GET that
// has no body, the client's header and X-Forwarded fields of its own, sends any answer other than
// 2xx to the client, and otherwise passes the request on to the upstream.
func forwardAuth(t *testing.T, url, host, upstream string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		question.Host, question.Header = host, r.Header.Clone()
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
