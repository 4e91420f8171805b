package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// hourly returns a rate_limit with a zone of 1/1h.
func hourly(name, options string) string {
	return "rate_limit {\nzone " + name + " {\nrule 1/1h\n" + options + "\n}\n}\n"
}

// TestExplainHandlesResponses checks that explain finds the zones that stand in the handling of
// responses, says so, and looks at each as the request reached the handler around.
func TestExplainHandlesResponses(t *testing.T) {
	s := serve(t, setup{site: `route {
	intercept {
		@denied status 401
		handle_response @denied {
			` + hourly("guesses", "key {client_ip}") + `
			respond "wait"
		}
	}
	vars seen before
	reverse_proxy 127.0.0.1:1 {
		@accel header X-Accel-Redirect *
		handle_response @accel {
			vars seen within
			rewrite /changed
			request_header X-K changed
			` + hourly("files", "key {vars.seen} {path}") + `
			file_server
		}
		@failed status 5xx
		handle_response @failed {
			` + hourly("failures", "key {vars.seen} {path} {header.X-K}") + `
			handle /a* {
				` + hourly("nested", "") + `
			}
		}
	}
	` + hourly("after", "key {vars.seen} {path} {header.X-K}") + `
	respond ok
}`})
	explain := func() (e cli.Explanation, got string) {
		if status, text := s.admin("POST", "explain", `{"url": "http://localhost:8001/a", "client_ip": "10.0.0.1", "headers": {"X-K": "k"}}`, &e); status != 200 {
			t.Fatal(text)
		}
		for _, h := range e.Handlers {
			for _, z := range h.Zones {
				got += fmt.Sprintf("%s %v by %s, not run %v\n", z.Zone, z.Parts, h.Response, h.NotRun)
			}
		}
		return e, got
	}
	const want = `files [within /changed] by reverse_proxy, not run [reverse_proxy]
failures [before /a k] by reverse_proxy, not run [reverse_proxy]
nested [10.0.0.1] by reverse_proxy, not run [reverse_proxy]
after [before /a k] by , not run [reverse_proxy]
guesses [10.0.0.1] by intercept, not run [reverse_proxy]
`
	if e, got := explain(); got != want || e.Decision != "allowed" || e.Response != "" {
		t.Errorf("%s by %q:\n%swant:\n%s", e.Decision, e.Response, got, want)
	}
}

// TestExplainDenialOfAResponse checks which denial explain tells: one that a request meets whatever the
// response is, before one that it meets by handle_response only, which a request meets too.
func TestExplainDenialOfAResponse(t *testing.T) {
	s := serve(t, setup{site: `route {
	intercept {
		@denied status 401
		handle_response @denied {
			` + hourly("guesses", "") + `
			respond wait 401
		}
	}
	` + hourly("all", "rule 2/2h") + `
	respond /open ok
	respond no 401
}`})
	explained := func(want string) {
		t.Helper()
		var e cli.Explanation
		if status, text := s.admin("POST", "explain", `{"url": "http://localhost:8001/", "client_ip": "10.0.0.1"}`, &e); status != 200 || e.Decision+" "+e.Zone+" "+e.Response != want {
			t.Errorf("%d: %s, want %s", status, text, want)
		}
	}
	explained("allowed  ")
	s.want(req{ip: "10.0.0.1"}, 401)
	explained("denied all ")
	if status, text := s.admin("DELETE", "zones/all/key?part=10.0.0.1", "", nil); status != 200 {
		t.Fatal(text)
	}
	explained("denied guesses intercept")
	s.want(req{ip: "10.0.0.1"}, 429)
	if status, text := s.admin("DELETE", "zones/all/key?part=10.0.0.1", "", nil); status != 200 {
		t.Fatal(text)
	}
	s.want(req{ip: "10.0.0.1", path: "/open"}, 200)
}

// TestOfflineExplanation checks that what is explained by a file says so, finds the zones that handle
// responses.
func TestOfflineExplanation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Caddyfile")
	text := `:8001 {
	map {header.Authorization} {user} {team} {
		default a b
	}
	` + hourly("users", "key {user} {team}\nkey_missing deny\ncost {price}") + `
	handle {
		map {path} {price} {
			default 1
		}
	}
	intercept {
		handle_response {
			` + hourly("late", "") + `
		}
	}
	reverse_proxy 127.0.0.1:1 {
		handle_response {
			` + hourly("inner", "key {nobody}") + `
		}
	}
}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const first = "from the file alone: nothing is counted"
	out, err := caddyCommand("", "rate-limit", "explain", "/a", "--config", file)
	for _, want := range []string{first, "zone users, key a b", "zone late, key 127.0.0.1", "zone inner, key"} {
		if err != nil || !strings.Contains(out, want) || !strings.HasPrefix(out, first) {
			t.Errorf("%v\n%s\nwant %q", err, out, want)
		}
	}
	s := serve(t, setup{site: hourly("z", "") + "respond ok"})
	if out, err := s.shell("", "explain", "localhost:8001/"); err != nil || strings.Contains(out, first) {
		t.Errorf("of a running Caddy: %v\n%s", err, out)
	}
}
