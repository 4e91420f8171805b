package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// limitFrom is a zone whose limit is that of the header Limit.
func limitFrom(b backend, rule string) setup {
	return setup{app: b.app(), site: `
		rate_limit {
			zone plan {
				key {header.User}
				key_missing share
				rule {header.Limit}/1h ` + rule + `
			}
		}
		respond ok`}
}

// asks is a request of a user with a limit.
func asks(user, limit string) req {
	return req{header: map[string]string{"User": user, "Limit": limit}}
}

// TestLimitFromRequest changes the limit from request to request, under every algorithm
// that allows it: what was used stays used, and headers say the limit that was enforced.
func TestLimitFromRequest(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, alg := range []string{"", "fixed_window", "sliding_window buckets 5", "gcra", "token_bucket", "leaky_bucket nodelay"} {
			t.Run(alg, func(t *testing.T) {
				s := serve(t, limitFrom(b, alg+" else 1"))
				s.want(asks("a"+alg, "3"), 200, 200)
				a := s.want(asks("a"+alg, "5"), 200)
				s.wantHeader(a, "RateLimit-Policy", `"plan";q=5;w=3600`)
				if !strings.HasPrefix(a.get("RateLimit"), `"plan";r=2;`) {
					t.Errorf("RateLimit: %q, want 2 left of 5", a.get("RateLimit"))
				}
				s.want(asks("a"+alg, "2"), 429)
				s.want(asks("a"+alg, "5/1h"), 200, 200, 429)
				s.want(asks("a"+alg, "6/60m"), 200, 429)
				s.want(asks("b"+alg, "2"), 200, 200, 429)
				s.want(asks("c"+alg, ""), 200, 429)
			})
		}
	})
}

// TestLimitFromRefused brings limits that a configuration would refuse: the one after else
// is in force, and a metric tells.
func TestLimitFromRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, limitFrom(b, "gcra else 2"))
		before := s.metric("bad_limit_total", "zone", "plan")
		bad := []string{"", "-1", "+5", "1e3", "ten", "5/1m", "5/", "/1h", "5/1h/1h", "9007199254740993", "99999999999999999999", strings.Repeat("1", 5000), "0x10"}
		for i, limit := range bad {
			user := fmt.Sprintf("user%d", i)
			a := s.want(asks(user, limit), 200)
			s.wantHeader(a, "RateLimit-Policy", `"plan";q=2;w=3600`)
			s.want(asks(user, limit), 200, 429)
		}
		if n := s.metric("bad_limit_total", "zone", "plan") - before; n != float64(3*len(bad)) {
			t.Errorf("bad_limit_total: %v, want %d", n, 3*len(bad))
		}
		s.want(asks("good", " 3 "), 200, 200, 200, 429)
		if n := s.metric("bad_limit_total", "zone", "plan") - before; n != float64(3*len(bad)) {
			t.Errorf("bad_limit_total counts good limits: %v", n)
		}
	})
}

// TestLimitFromZero denies requests that bring the limit 0, and charges nothing.
func TestLimitFromZero(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, limitFrom(b, "name paid else 1"))
		a := s.want(asks("a", "0"), 429, 429)
		s.wantNoHeader(a, "Retry-After", "RateLimit", "RateLimit-Policy")
		s.want(asks("a", "1"), 200, 429)
		if n := s.metric("denied_total", "zone", "plan", "rule", "paid"); n < 3 {
			t.Errorf("denied_total: %v", n)
		}
	})
}

// TestLimitsFromRequest has two limits from the request in a zone with a constant one, in an
// override, too.
func TestLimitsFromRequest(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone plan {
					key {header.User}
					rule {header.Limit}/1h else 10
					rule 4/2h
					rule {header.Burst}/1m else 10 name minute
					override special {
						rule {header.Limit}/1h else 1
					}
				}
			}
			respond ok`})
		q := func(user, limit, burst string) req {
			return req{header: map[string]string{"User": user, "Limit": limit, "Burst": burst}}
		}
		a := s.want(q("a", "20", "2"), 200)
		s.wantHeader(a, "RateLimit-Policy", `"plan";q=20;w=3600, "plan.2";q=4;w=7200, "plan.minute";q=2;w=60`)
		s.want(q("a", "20", "2"), 200, 429)
		s.want(q("a", "20", "20"), 200, 200, 429)
		s.want(q("b", "1", ""), 200, 429)
		s.want(q("special", "7", ""), 200, 200, 200, 200, 200, 200, 200, 429)
		s.want(q("special", "", ""), 429)
		s.want(q("c", "5", "0"), 429)
	})
}

// TestLimitFromExplained explains a request with its own limit, and a key with that of
// requests that bring none.
func TestLimitFromExplained(t *testing.T) {
	s := serve(t, limitFrom(backend{}, "else 2"))
	s.want(asks("a", "5"), 200, 200, 200)
	k := s.key("GET", "plan", "a")
	if len(k.Rules) != 1 || k.Rules[0].Limit != 2 || k.Rules[0].Admits {
		t.Errorf("key %+v", k)
	}
	var e cli.Explanation
	if status, text := s.admin("POST", "explain", `{"url": "`+s.url+`", "client_ip": "192.0.2.1", "headers": {"User": "a", "Limit": "5"}}`, &e); status != 200 {
		t.Fatal(text)
	}
	if k := e.Handlers[0].Zones[0]; e.Decision != "allowed" || k.Rules[0].Limit != 5 || k.Rules[0].Remaining != 2 {
		t.Errorf("explained %+v", e)
	}
	if r := s.zones().Zones[0].Rules[0]; r.Limit != 2 || r.LimitFrom != "{http.request.header.Limit}" || r.Algorithm != "sliding_window" {
		t.Errorf("rule %+v", r)
	}
}

// TestLimitFromWarns warns of limits that clients can choose, and of those that are not
// known yet.
func TestLimitFromWarns(t *testing.T) {
	for from, want := range map[string]string{
		"{header.Limit}":                    "which clients can set",
		"{query.limit}":                     "which clients can set",
		"{cookie.limit}":                    "which clients can set",
		"{http.auth.user.limit}":            "order rate_limit after it",
		"{http.reverse_proxy.header.Limit}": "order rate_limit after it",
		"{http.vars.limit}":                 "",
	} {
		s := serve(t, setup{site: "rate_limit {\nzone z {\nrule " + from + "/1h else 2\n}\n}\nrespond ok"})
		text := s.log.text()
		if want != "" && !strings.Contains(text, want) || want == "" && strings.Contains(text, "the limit comes from") {
			t.Errorf("%s: want a warning %q, log %s", from, want, text)
		}
	}
}

// TestLimitFromSurvivesReload reloads a zone with another limit after else, and with
// constant limits of the same kind: the counts stay.
func TestLimitFromSurvivesReload(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, limitFrom(b, "else 2"))
		s.want(asks("a", "5"), 200, 200, 200)
		s.reload(limitFrom(b, "else 4"))
		s.want(asks("a", ""), 200, 429)
		s.reload(setup{app: b.app(), site: "rate_limit {\nzone plan {\nkey {header.User}\nkey_missing share\nrule 5/1h sliding_window\n}\n}\nrespond ok"})
		s.want(asks("a", ""), 200, 429)
	})
}

// TestNearLimit counts allowed requests after which less than a fifth of a limit is left, or
// of a burst.
func TestNearLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone near-window {
					match path /window
					rule 1000/1h
					rule 10/1h
				}
				zone near-burst {
					match path /burst
					rule 100/1h gcra burst 6
				}
			}
			respond ok`})
		for _, c := range []struct {
			zone, path string
			requests   int
			near       float64
		}{
			{"near-window", "/window", 8, 0}, // 2 of 10 left
			{"near-window", "/window", 2, 2},
			{"near-window", "/window", 1, 0}, // denied
			{"near-burst", "/burst", 4, 0},   // 2 of 6 left
			{"near-burst", "/burst", 2, 2},
		} {
			before := s.metric("near_limit_total", "zone", c.zone)
			for range c.requests {
				s.send(req{path: c.path})
			}
			if n := s.metric("near_limit_total", "zone", c.zone) - before; n != c.near {
				t.Errorf("%s, %d more: near_limit_total %v, want %v", c.zone, c.requests, n, c.near)
			}
		}
	})
}
