package test

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// between checks that a header is a number within bounds and returns it.
func (s *site) between(a *answer, name string, from, to int) int {
	s.Helper()
	n, err := strconv.Atoi(a.get(name))
	if err != nil || n < from || n > to {
		s.Errorf("%s: %q, want %d to %d", name, a.get(name), from, to)
	}
	return n
}

func TestDenialIsError429(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone api {
					rule 2/1h name hourly
				}
			}
			respond ok
			handle_errors {
				respond "{err.status_code} {http.rate_limit.exceeded.name} {http.rate_limit.exceeded.rule} {http.rate_limit.exceeded.retry_after} {http.rate_limit.api.decision} {http.rate_limit.api.limit} {http.rate_limit.api.remaining}"
			}`})
		a := s.want(req{}, 200, 200)
		s.wantNoHeader(a, "Retry-After", "Cache-Control")
		a = s.want(req{}, 429)
		retry := s.between(a, "Retry-After", 3590, 3600)
		if want := "429 api hourly " + strconv.Itoa(retry) + " denied 2 0"; a.body != want {
			t.Errorf("body %q, want %q", a.body, want)
		}
		s.wantHeader(a, "Cache-Control", "no-store")
	})
}

// TestRetryAfterInMilliseconds checks the exact wait, also of a request that an earlier
// handler admitted.
func TestRetryAfterInMilliseconds(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			route {
				rate_limit 100/1h
				rate_limit {
					zone api {
						rule 1/1h
					}
				}
				respond "<{http.rate_limit.exceeded.retry_after_ms}>"
			}
			handle_errors {
				respond "{http.rate_limit.exceeded.retry_after_ms}"
			}`})
		if a := s.want(req{}, 200); a.body != "<>" {
			t.Errorf("admitted: %q", a.body)
		}
		a := s.want(req{}, 429)
		if ms, err := strconv.Atoi(a.body); err != nil || ms <= 3_580_000 || ms > 3_600_000 {
			t.Errorf("%q, want a little less than 3600000", a.body)
		}
	})
}

func TestPlaceholdersOfAdmittedRequest(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone api {
					match path /api*
					exempt header X-Free yes
					rule 5/1h
					rule 3/1h fixed_window
				}
			}
			respond "<{http.rate_limit.api.decision}> <{http.rate_limit.api.limit}> <{http.rate_limit.api.burst}> <{http.rate_limit.api.remaining}> <{http.rate_limit.api.reset}> <{http.rate_limit.exceeded.name}>"`})
		for _, c := range []struct {
			q    req
			want string
		}{
			{req{path: "/api"}, "<allowed> <3> <3> <2> <3600> <>"},
			{req{path: "/api"}, "<allowed> <3> <3> <1> <3600> <>"},
			{req{path: "/api", header: map[string]string{"X-Free": "yes"}}, "<skipped> <0> <0> <0> <0> <>"},
		} {
			if a := s.want(c.q, 200); a.body != c.want {
				t.Errorf("body %q, want %q", a.body, c.want)
			}
		}
	})
}

// TestRetryAfterIsRoundedUp uses windows whose remaining time other rounding
// modes would round down.
func TestBurstInPlaceholdersAndPolicy(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for rule, want := range map[string][2]string{
			"10/1h gcra burst 20":                 {"10 20 19", `"z";q=10;w=3600;diana-burst=20`},
			"10/1h token_bucket burst 4":          {"10 4 3", `"z";q=10;w=3600;diana-burst=4`},
			"10/1h leaky_bucket nodelay burst 15": {"10 15 14", `"z";q=10;w=3600;diana-burst=15`},
			"10/1h gcra":                          {"10 10 9", `"z";q=10;w=3600`},
			"10/1h":                               {"10 10 9", `"z";q=10;w=3600`},
			"1000/1h":                             {"1000 1000 999", `"z";q=1000;w=3600`},
		} {
			s := serve(t, setup{app: b.app(), site: `
				rate_limit {
					zone z {
						key all ` + strconv.Quote(rule) + `
						rule ` + rule + `
					}
				}
				respond "{http.rate_limit.z.limit} {http.rate_limit.z.burst} {http.rate_limit.z.remaining}"`})
			a := s.want(req{}, 200)
			if a.body != want[0] {
				t.Errorf("%s: %q, want %q", rule, a.body, want[0])
			}
			s.wantHeader(a, "RateLimit-Policy", want[1])
		}
	})
}

// TestErrorMessage checks that {http.error.message} is that of an error without one, as
// with the plugins of this name.
func TestErrorMessage(t *testing.T) {
	for site, want := range map[string]string{
		"rate_limit {\nzone m {\nevents 1\nwindow 1h\n}\n}":   "Too Many Requests",
		"rate_limit {\nzone n {\nrule 1/1h\n}\n}":             "Too Many Requests",
		"rate_limit {remote.host} 1r/m 1000 503":              "Service Unavailable",
		"rate_limit {http.request.remote.host} 1r/m 1000 420": "rate limit exceeded",
	} {
		s := serve(t, setup{site: site + "\nrespond ok\nhandle_errors {\nrespond \"{err.message}|{http.error.message}\"\n}"})
		s.want(req{}, 200)
		if a := s.send(req{}); a.body != want+"|"+want {
			t.Errorf("%s: %q, want %q", site, a.body, want)
		}
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for window, want := range map[string]string{"300ms": "1", "1400ms": "2", "2500ms": "3"} {
			s := serve(t, setup{app: b.app(), site: `
				rate_limit {
					zone api {
						rule 1/` + window + `
					}
				}
				respond ok`})
			for {
				s.want(req{}, 200)
				if a := s.send(req{}); a.status == 429 { // otherwise the window has already ended
					s.wantHeader(a, "Retry-After", want)
					break
				}
			}
		}
	})
}

func TestJitterLengthensRetryAfter(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone api {
				rule 1/1h
			}
			jitter 0.5
		}
		respond ok`})
	s.want(req{}, 200)
	seen := make(map[int]bool)
	for range 50 {
		seen[s.between(s.want(req{}, 429), "Retry-After", 3590, 5400)] = true
	}
	if len(seen) < 10 {
		t.Errorf("Retry-After of 50 denials: %v, want them spread", seen)
	}
}

func TestCacheControlIsKept(t *testing.T) {
	s := serve(t, setup{site: `
		header Cache-Control private
		rate_limit 1/1h
		respond ok`})
	s.wantHeader(s.want(req{}, 200, 429), "Cache-Control", "private")
}

func TestRespond(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone plain {
					match path /plain
					rule 1/1h
					respond
				}
				zone json {
					match path /json
					rule 1/1h name r
					respond 403 ` + "`" + `{"zone": "{http.rate_limit.exceeded.name}", "rule": "{http.rate_limit.exceeded.rule}"}` + "`" + ` {
						header X-Rule {http.rate_limit.exceeded.rule}
						header X-Rule two
						header Cache-Control max-age=5
					}
				}
				zone fine {
					match path /fine
					rule 1/1h
					respond 200 "slow down"
				}
			}
			respond ok
			handle_errors {
				respond "never" 500
			}`})
		a := s.want(req{path: "/plain"}, 200, 429)
		if a.body != "" {
			t.Errorf("body %q, want none", a.body)
		}
		s.between(a, "Retry-After", 3590, 3600)
		s.wantHeader(a, "Cache-Control", "no-store")

		a = s.want(req{path: "/json"}, 200, 403)
		if want := `{"zone": "json", "rule": "r"}`; a.body != want {
			t.Errorf("body %q, want %q", a.body, want)
		}
		s.wantHeader(a, "Content-Type", "application/json")
		s.wantHeader(a, "Cache-Control", "max-age=5")
		s.between(a, "Retry-After", 3590, 3600)
		if got := a.header.Values("X-Rule"); !reflect.DeepEqual(got, []string{"r", "two"}) {
			t.Errorf("X-Rule: %q", got)
		}
		if a.get("RateLimit") == "" {
			t.Error("no RateLimit")
		}

		a = s.want(req{path: "/fine"}, 200, 200)
		if a.body != "slow down" {
			t.Errorf("body %q", a.body)
		}
		s.between(a, "Retry-After", 3590, 3600)
	})
}

func TestRespondWithProblem(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone first {
					rule 1/1h
					rule 9/1h
					rule 1/2h name slow
					prevent_duplicates 1h
					respond {
						problem
						header X-Extra yes
					}
				}
				zone second {
					rule 1/3h
				}
			}
			respond ok`})
		s.want(req{method: "POST"}, 200)
		a := s.want(req{method: "POST"}, 429)
		s.wantHeader(a, "Content-Type", "application/problem+json")
		s.wantHeader(a, "X-Extra", "yes")
		s.between(a, "Retry-After", 3*3600-10, 3*3600) // the longest of the denying rules
		var p struct {
			Type     string   `json:"type"`
			Title    string   `json:"title"`
			Status   int      `json:"status"`
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal([]byte(a.body), &p); err != nil {
			t.Fatal(err)
		}
		if p.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || p.Status != 429 || p.Title == "" {
			t.Errorf("problem %+v", p)
		}
		if want := []string{"first", "first.slow", "first.prevent_duplicates", "second"}; !reflect.DeepEqual(p.Violated, want) {
			t.Errorf("violated-policies %q, want %q", p.Violated, want)
		}
	})
}

// TestFirstDenyingRuleIsReported checks that, of two zones that deny, the first
// in the configuration names the denial, even if the second has a longer retry.
func TestFirstDenyingRuleIsReported(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone open {
					rule 5/1h
				}
				zone one {
					rule 5/1h
					rule 1/1h
					respond 420 one
				}
				zone two {
					rule 1/2h
					respond 503 two
				}
			}
			respond ok`})
		s.want(req{}, 200)
		a := s.want(req{}, 420)
		s.between(a, "Retry-After", 7190, 7200)
		line := s.log.wait(t, "rate limit exceeded")
		if line["zone"] != "one" || line["rule"] != "2" {
			t.Errorf("log line %v, want zone one and rule 2", line)
		}
	})
}

// TestPlaceholdersOfSecondDirective checks that the placeholders name the denying
// rule when the second of two directives denies.
func TestPlaceholdersOfSecondDirective(t *testing.T) {
	s := serve(t, setup{site: `
		route {
			rate_limit {
				zone wide {
					rule 10/1h
				}
			}
			rate_limit {
				zone narrow {
					rule 1/1h
				}
			}
			respond "<{http.rate_limit.exceeded.name}>"
		}
		handle_errors {
			respond "<{http.rate_limit.exceeded.name}> <{http.rate_limit.exceeded.rule}> <{http.rate_limit.wide.decision}> <{http.rate_limit.narrow.decision}>"
		}`})
	if a := s.want(req{}, 200); a.body != "<>" {
		t.Errorf("body %q", a.body)
	}
	if a := s.want(req{}, 429); a.body != "<narrow> <1> <allowed> <denied>" {
		t.Errorf("body %q", a.body)
	}
}

// TestDenialInErrorRoute denies requests in an error route, such as of those who look for pages
// that are not there. They get the zone's response, and Caddy logs no error.
func TestDenialInErrorRoute(t *testing.T) {
	for respond, want := range map[string]int{"": 429, "respond 503": 503} {
		s := serve(t, setup{site: `
			error 404
			handle_errors {
				rate_limit {
					zone answers` + strconv.Itoa(want) + ` {
						rule 1/1h
						` + respond + `
					}
				}
				respond "not here" 404
			}`})
		s.want(req{}, 404)
		a := s.want(req{}, want, want)
		s.wantHeader(a, "Retry-After", "3600")
		if a.body != "" {
			t.Errorf("body %q", a.body)
		}
		for line := range strings.Lines(s.log.text()) {
			if strings.Contains(line, `"level":"error"`) && strings.Contains(line, `"status":429`) {
				t.Errorf("%q: %s", respond, line)
			}
		}
	}
}
