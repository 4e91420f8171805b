package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestDraftHeaders(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone api {
					rule 3/1h fixed_window
					rule 100/90m gcra name g burst 7
					rule 1000/500ms token_bucket
					rule 10/1500ms leaky_bucket nodelay
				}
			}
			respond ok`})
		const policy = `"api";q=3;w=3600, "api.g";q=100;w=5400;diana-burst=7, "api.3";q=1000, "api.4";q=10;w=2`
		for i, want := range []string{
			`"api";r=2;t=3600, "api.g";r=6;t=54, "api.3";r=999;t=1, "api.4";r=9;t=1`,
			`"api";r=1;t=3600, "api.g";r=5;t=54, "api.3";r=99*;t=1, "api.4";r=[89];t=1`,
		} {
			a := s.want(req{}, 200)
			s.wantHeader(a, "RateLimit-Policy", policy)
			if got := a.get("RateLimit"); !like(want, got) {
				t.Errorf("request %d: RateLimit %s, want %s", i+1, got, want)
			}
			s.wantNoHeader(a, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
		}
		a := s.want(req{}, 200, 429)
		s.wantHeader(a, "RateLimit-Policy", policy)
		if got := a.get("RateLimit"); !strings.HasPrefix(got, `"api";r=0;t=3600, "api.g";r=4;t=54`) {
			t.Errorf("RateLimit of a denial: %s", got) // a denial charges nothing
		}
	})
}

// like reports whether s matches a pattern in which * matches anything and [xy]
// one of the two characters, for numbers that depend on elapsed time.
func like(pattern, s string) bool {
	for i := 0; i < len(pattern); i++ {
		switch {
		case pattern[i] == '*':
			for j := range len(s) + 1 {
				if like(pattern[i+1:], s[j:]) {
					return true
				}
			}
			return false
		case pattern[i] == '[' && len(s) > 0:
			if s[0] != pattern[i+1] && s[0] != pattern[i+2] {
				return false
			}
			i += 3
		case len(s) == 0 || s[0] != pattern[i]:
			return false
		}
		s = s[1:]
	}
	return s == ""
}

func TestAtMostFourRulesInHeaders(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone a {
					rule 10/1h
					rule 11/1h
					rule 12/1h
				}
				zone shown {
					shadow
					rule 5/1h
				}
				zone b {
					rule 20/1h
					rule 21/1h
				}
			}
			respond ok`})
		a := s.want(req{}, 200)
		s.wantHeader(a, "RateLimit-Policy", `"a";q=10;w=3600, "a.2";q=11;w=3600, "a.3";q=12;w=3600, "b";q=20;w=3600`)
		s.wantHeader(a, "RateLimit", `"a";r=9;t=3600, "a.2";r=10;t=3600, "a.3";r=11;t=3600, "b";r=19;t=3600`)
	})
}

// TestOpenAIHeaders checks the headers by which clients of OpenAI's API wait: of the nearest rule
// of zones whose responses tell the cost, and of that of the others.
func TestOpenAIHeaders(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				headers openai
				zone spent {
					key {client_ip}
					tokens {
						reserve 300
					}
					rule 1000/1h fixed_window
					rule 9000/1d fixed_window
				}
				zone asked {
					rule 2/360s fixed_window
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			answering("application/json", `{"usage":{"prompt_tokens":300}}`)(w, r)
			return nil
		})})
		for i, want := range []map[string]string{
			{"Limit-Tokens": "1000", "Remaining-Tokens": "700", "Limit-Requests": "2", "Remaining-Requests": "1", "Reset-Requests": "6m0s"},
			{"Limit-Tokens": "1000", "Remaining-Tokens": "400", "Limit-Requests": "2", "Remaining-Requests": "0"},
			{"Limit-Tokens": "1000", "Remaining-Tokens": "400", "Limit-Requests": "2", "Remaining-Requests": "0"},
		} {
			a := s.send(asking("", `{"model":"m"}`))
			for name, value := range want {
				if got := a.get("X-RateLimit-" + name); got != value {
					t.Errorf("request %d: %s %q, want %q", i+1, name, got, value)
				}
			}
			s.wantNoHeader(a, "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit")
			ms, _ := strconv.Atoi(a.get("retry-after-ms"))
			if after, _ := strconv.Atoi(a.get("Retry-After")); (a.status == 429) != (i == 2) || i == 2 && (ms <= 1000*(after-1) || ms > 1000*after) || i < 2 && ms != 0 {
				t.Errorf("request %d: status %d, retry-after-ms %d, Retry-After %d", i+1, a.status, ms, after)
			}
		}
	})
}

func TestLegacyHeaders(t *testing.T) {
	zone := `zone api {
		rule 100/2h fixed_window
		rule 3/1h fixed_window
	}`
	onBoth(t, func(t *testing.T, b backend) {
		for i, c := range []struct {
			app, headers  string
			draft, legacy bool
		}{
			{"", "headers legacy", false, true},
			{"", "headers all", true, true},
			{"", "headers off", false, false},
			{"headers legacy", "", false, true},
			{"headers off", "headers draft", true, false},
		} {
			t.Run(c.app+" "+c.headers, func(t *testing.T) {
				s := serve(t, setup{app: b.app() + "\n" + c.app, site: "rate_limit {\n" + zone + "\n" + c.headers + "\n}\nrespond ok"})
				// Redis keeps the counts of earlier configurations.
				client := req{ip: fmt.Sprintf("10.0.0.%d", i)}
				for i, a := range []*answer{s.want(client, 200), s.want(client, 200, 200, 429)} {
					if c.legacy {
						s.wantHeader(a, "X-RateLimit-Limit", "3")
						s.wantHeader(a, "X-RateLimit-Remaining", []string{"2", "0"}[i])
						s.wantHeader(a, "X-RateLimit-Reset", "3600")
					} else {
						s.wantNoHeader(a, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
					}
					if c.draft {
						s.wantHeader(a, "RateLimit-Policy", `"api";q=100;w=7200, "api.2";q=3;w=3600`)
					} else {
						s.wantNoHeader(a, "RateLimit", "RateLimit-Policy")
					}
				}
			})
		}
	})
}

// TestHeadersReplaceUpstreamHeaders proxies to a server that sets rate limit
// headers itself.
func TestHeadersReplaceUpstreamHeaders(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			w.Header().Set(name, "the upstream's")
		}
		if r.URL.Path == "/hints" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "tea")
	}))
	defer up.Close()
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone api {
					rule 5/1h
				}
				headers all
			}
			reverse_proxy ` + up.Listener.Addr().String()})
		for i, path := range []string{"/", "/hints"} {
			a := s.want(req{path: path}, 418)
			s.wantHeader(a, "RateLimit", fmt.Sprintf(`"api";r=%d;t=3600`, 4-i))
			s.wantHeader(a, "RateLimit-Policy", `"api";q=5;w=3600`)
			s.wantHeader(a, "X-RateLimit-Limit", "5")
			s.wantHeader(a, "X-RateLimit-Remaining", fmt.Sprint(4-i))
			s.wantHeader(a, "X-RateLimit-Reset", "3600")
		}
	})
}

// TestSecondDirectiveAppendsHeaders checks that two directives each add their
// headers to responses, errors and denials by either.
func TestSecondDirectiveAppendsHeaders(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			route {
				rate_limit {
					zone outer {
						rule 4/1h
					}
					headers all
				}
				rate_limit {
					zone inner {
						rule 3/1h
					}
					headers all
				}
				error /error 503
				respond ok
			}`})
		const policy = `"outer";q=4;w=3600, "inner";q=3;w=3600`
		for _, c := range []struct {
			path, limit string
			status      int
			nearest     string
		}{
			{"/", `"outer";r=3;t=3600, "inner";r=2;t=3600`, 200, "3"},
			{"/error", `"outer";r=2;t=3600, "inner";r=1;t=3600`, 503, "3"},
			{"/", `"outer";r=1;t=3600, "inner";r=0;t=3600`, 200, "3"},
			{"/", `"outer";r=0;t=3600, "inner";r=0;t=3600`, 429, "3"},
			{"/", `"outer";r=0;t=3600`, 429, "4"},
		} {
			a := s.want(req{path: c.path}, c.status)
			s.wantHeader(a, "RateLimit", c.limit)
			s.wantHeader(a, "RateLimit-Policy", policy[:len(policy)*len(c.limit)/len(`"outer";r=3;t=3600, "inner";r=2;t=3600`)])
			s.wantHeader(a, "X-RateLimit-Limit", c.nearest)
		}
	})
}

// TestErrorRouteAppendsHeaders checks that a directive in handle_errors adds its headers to those of
// the directives before the error, and that a zone in both has only the later ones.
func TestErrorRouteAppendsHeaders(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", "the upstream's")
	}))
	defer up.Close()
	const both = "zone both {\nmatch path /both\nrule 1/1h\n}\n"
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			route {
				rate_limit {
					zone outer {
						rule 5/1h
					}
					` + both + `
					headers all
				}
				rate_limit {
					zone inner {
						match path /error /both
						rule 9/1h
					}
				}
				error /error 503
				respond ok
			}
			handle_errors {
				rate_limit {
					zone errors {
						rule 3/1h
					}
					` + both + `
					headers all
				}
				reverse_proxy ` + up.Listener.Addr().String() + `
			}`})
		for i, c := range []struct{ path, limit, policy string }{
			{"/error", `"outer";r=4;t=3600, "inner";r=8;t=3600, "errors";r=2;t=3600`, `"outer";q=5;w=3600, "inner";q=9;w=3600, "errors";q=3;w=3600`},
			{"/both", `"outer";r=3;t=3600, "both";r=0;t=3600, "inner";r=7;t=3600`, `"outer";q=5;w=3600, "both";q=1;w=3600, "inner";q=9;w=3600`},
			{"/both", `"outer";r=3;t=3600, "errors";r=2;t=3600, "both";r=0;t=3600`, `"outer";q=5;w=3600, "errors";q=3;w=3600, "both";q=1;w=3600`},
			{"/error", `"outer";r=2;t=3600, "inner";r=6;t=3600, "errors";r=1;t=3600`, `"outer";q=5;w=3600, "inner";q=9;w=3600, "errors";q=3;w=3600`},
		} {
			a := s.send(req{path: c.path})
			s.wantHeader(a, "RateLimit", c.limit)
			s.wantHeader(a, "RateLimit-Policy", c.policy)
			s.wantHeader(a, "X-RateLimit-Limit", []string{"3", "1", "1", "3"}[i])
		}
	})
}

// TestHeadersOnEveryResponse checks the headers on every kind of response.
func TestHeadersOnEveryResponse(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone api {
					rule 100/1h
				}
			}
			root testdata
			error /error 500
			respond /304 304
			respond /204 204
			` + handle(t, "/nothing", func(http.ResponseWriter, *http.Request) error { return nil }) + `
			` + handle(t, "/flush", func(w http.ResponseWriter, _ *http.Request) error {
			return http.NewResponseController(w).Flush()
		}) + `
			` + handle(t, "/copy", func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.Copy(w, strings.NewReader("text"))
			return err
		}) + `
			` + handle(t, "/failed", func(http.ResponseWriter, *http.Request) error { return io.ErrUnexpectedEOF }) + `
			file_server
			handle_errors 500 {
				respond "sorry" 200
			}`})
		left := 100
		for path, status := range map[string]int{
			"/nothing": 200, "/flush": 200, "/copy": 200, "/failed": 500, "/error": 200,
			"/missing": 404, "/304": 304, "/204": 204,
		} {
			left--
			a := s.want(req{path: path}, status)
			s.wantHeader(a, "RateLimit", fmt.Sprintf(`"api";r=%d;t=3600`, left))
			s.wantHeader(a, "RateLimit-Policy", `"api";q=100;w=3600`)
		}
	})
}

// TestHeadersOnUpgrade checks the headers on a proxied protocol upgrade.
func TestHeadersOnUpgrade(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(echo))
	defer up.Close()
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone api {
					rule 5/1h
				}
			}
			reverse_proxy ` + up.Listener.Addr().String()})
		conn, resp := s.upgrade(req{})
		defer conn.Close()
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("status %d", resp.StatusCode)
		}
		s.wantHeader(&answer{header: resp.Header}, "RateLimit", `"api";r=4;t=3600`)
		fmt.Fprint(conn, "hello\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" {
			t.Errorf("echo %q %v", line, err)
		}
	})
}

// echo upgrades the connection to a protocol that echoes every line.
func echo(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	defer conn.Close()
	fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nRateLimit: mine\r\n\r\n")
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
}

// upgrade requests a protocol upgrade on a new connection.
func (s *site) upgrade(q req) (net.Conn, *http.Response) {
	s.Helper()
	r := q.http(s)
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	if err := r.Write(conn); err != nil {
		s.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		s.Fatal(err)
	}
	return conn, resp
}

func TestUncountedRequestsHaveNoHeaders(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone shadow {
					match path /shadow
					shadow
					rule 1/1h
				}
				zone permits {
					match path /permits
					in_flight 5
				}
				zone duplicates {
					match path /duplicates
					prevent_duplicates 1h
				}
				zone skipped {
					match path /skipped
					key {header.X-None}
					key_missing skip
					rule 1/1h
				}
				zone missing {
					match path /missing
					key {header.X-None}
					key_missing deny
					rule 1/1h
				}
				headers all
			}
			respond ok`})
		for _, q := range []req{{path: "/shadow"}, {path: "/permits"}, {path: "/duplicates"}, {path: "/skipped"}, {path: "/missing"}, {path: "/else"}} {
			q.method = "POST"
			first, second := s.send(q), s.send(q)
			for _, a := range []*answer{first, second} {
				s.wantNoHeader(a, "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
			}
		}
	})
}

// likeSince reports whether s is like pattern, whose t may have counted down since begun.
func likeSince(begun time.Time, pattern, s string) bool {
	before, count, _ := strings.Cut(pattern, "t=")
	t, err := strconv.Atoi(count)
	if err != nil {
		return like(pattern, s)
	}
	for passed := int(time.Since(begun).Seconds()); passed >= 0; passed-- {
		if s == before+"t="+strconv.Itoa(t-passed) {
			return true
		}
	}
	return false
}

// TestTimeUntilMore checks t of RateLimit: the seconds until more is left than r, not until nothing
// is used. Retry-After of a denial is not before t of the rule that denies.
func TestTimeUntilMore(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for rule, want := range map[string][3]string{ // after one request, two and ten
			"3/1h gcra":                         {"r=2;t=1200", "r=1;t=1200", "r=0;t=1200"},
			"3/1h token_bucket":                 {"r=2;t=1200", "r=1;t=1200", "r=0;t=1200"},
			"3/1h token_bucket burst 20":        {"r=19;t=1200", "r=18;t=1200", "r=10;t=1200"},
			"3/1h leaky_bucket burst 4 nodelay": {"r=3;t=1200", "r=2;t=1200", "r=0;t=1200"},
			"3/1h fixed_window":                 {"r=2;t=3600", "r=1;t=3600", "r=0;t=3600"},
			"30/1h sliding_log":                 {"r=29;t=3600", "r=28;t=3600", "r=20;t=3600"},
			"3/1h sliding_log":                  {"r=2;t=3600", "r=1;t=3600", "r=0;t=3600"},
			"200/1h sliding_log":                {"r=199;t=3600", "r=198;t=3600", "r=190;t=3600"},
			"3/1h sliding_window buckets 1":     {"r=2;t=*", "r=1;t=*", "r=0;t=*"},
		} {
			name := "z-" + strconv.Itoa(len(rule)) + "-" + strings.NewReplacer("/", "-", " ", "-").Replace(rule)
			s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone " + name + " {\nrule " + rule + "\n}\n}\nrespond ok"})
			begun := time.Now()
			for i := range 10 {
				a := s.send(req{})
				_, got, _ := strings.Cut(a.get("RateLimit"), ";")
				if w := map[int]string{0: want[0], 1: want[1], 9: want[2]}[i]; w != "" && !likeSince(begun, w, got) {
					t.Errorf("%s, request %d: %s, want %s", rule, i+1, got, w)
				}
				if a.status != 429 {
					continue
				}
				until, err := strconv.Atoi(got[strings.Index(got, "t=")+2:])
				if retry := s.between(a, "Retry-After", 1, 7200); err != nil || retry < until {
					t.Errorf("%s, request %d: %s, Retry-After %d", rule, i+1, got, retry)
				}
			}
		}
	})
}
