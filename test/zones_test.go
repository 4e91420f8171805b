package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestZoneSharedByName checks that zones of one name in sites on two servers share
// their counts and that zones of other names do not.
func TestZoneSharedByName(t *testing.T) {
	const shared = "rate_limit {\nzone shared {\nrule 3/1h\n}\n}\n"
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: shared + "respond ok", more: `
			http://:8002 {
				rate_limit {
					zone own {
						match path /own
						rule 3/1h
					}
				}
				` + shared + `
				respond ok
			}`})
		s.want(req{}, 200)
		s.want(req{to: s.second, path: "/own"}, 200)
		s.want(req{to: s.second}, 200)
		s.want(req{}, 429)
		s.want(req{to: s.second, path: "/own"}, 429)
	})
}

// TestZoneDefinedTwice checks that two different definitions of one name are an
// error that shows both.
func TestZoneDefinedTwice(t *testing.T) {
	for _, change := range []string{
		"rule 4/1h", "rule 3/2h", "rule 3/1h gcra", "rule 3/1h\nrule 9/9h", "rule 3/1h\nkey {header.A}",
		"rule 3/1h\nipv4_prefix 24", "rule 3/1h\nipv6_prefix 48", "rule 3/1h\nkey_missing deny", "rule 3/1h\nstore local",
	} {
		s := newSite(t)
		err := s.load(setup{app: redisStore(unusedAddr(t)), site: `
			rate_limit {
				zone z {
					rule 3/1h
				}
			}`, more: "http://:8002 {\nrate_limit {\nzone z {\n" + change + "\n}\n}\n}"})
		if err == nil {
			t.Errorf("%q beside rule 3/1h: loads", change)
			continue
		}
		if text := err.Error(); !strings.Contains(text, "zone z is defined twice") || strings.Count(text, " at Caddyfile:") < 2 || !strings.Contains(text, ", which differ in ") || strings.Contains(text, `"limit"`) {
			t.Errorf("%q beside rule 3/1h: %v", change, err)
		}
	}
}

// TestEquivalentStores checks that a zone may name the store that it has anyway.
func TestEquivalentStores(t *testing.T) {
	for app, store := range map[string]string{"": "local", redisStore(unusedAddr(t)): "redis"} {
		err := newSite(t).load(setup{
			app: app, site: "rate_limit {\nzone z {\nrule 3/1h\n}\n}", more: "http://:8002 {\nrate_limit {\nzone z {\nrule 3/1h\nstore " + store + "\n}\n}\n}",
		})
		if err != nil {
			t.Errorf("store %s: %v", store, err)
		}
	}
}

// TestEquivalentZoneDefinitions checks that a zone may be written in two equivalent
// ways.
func TestEquivalentZoneDefinitions(t *testing.T) {
	s := serve(t, setup{site: "rate_limit {\nzone z {\nrule 3/1h\nmatch path /a\n}\n}\nrespond ok", more: `
		http://:8002 {
			rate_limit {
				zone z {
					match path /b
					rule 3/60m
					key {client_ip}
					key_missing client_ip
					ipv4_prefix 32
					ipv6_prefix 64
				}
			}
			respond ok
		}`})
	s.want(req{path: "/a"}, 200, 200)
	s.want(req{to: s.second, path: "/b"}, 200, 429)
	s.want(req{path: "/a"}, 429)
}

// TestDirectivesChargeSeparately checks that the first directive charges a request
// that the second denies.
func TestDirectivesChargeSeparately(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			route {
				rate_limit {
					zone first {
						rule 4/1h
					}
				}
				rate_limit {
					zone second {
						rule 1/2h
					}
				}
				respond ok
			}`})
		s.want(req{}, 200)
		s.between(s.want(req{}, 429, 429, 429), "Retry-After", 7190, 7200)
		a := s.want(req{}, 429)
		s.between(a, "Retry-After", 3590, 3600)
		s.wantHeader(a, "RateLimit", `"first";r=0;t=3600`)
	})
}

// TestAllOrNothing checks that a request denied by any zone is charged in none.
func TestAllOrNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone wide {
					key all
					rule 100/1h
					rule 50/1h gcra burst 50
				}
				zone narrow {
					rule 2/1h
					rule 9/1h token_bucket
				}
				zone tail {
					key all
					rule 60/1h sliding_window
				}
			}
			respond ok`})
		for i := range 10 {
			ip := fmt.Sprintf("10.0.0.%d", i)
			a := s.want(req{ip: ip}, 200, 200, 429, 429)
			got := a.get("RateLimit")
			if want := fmt.Sprintf(`"wide";r=%d;t=*, "wide.2";r=%d;t=*, "narrow";r=0;t=*, "narrow.2";r=7;t=*`, 98-2*i, 48-2*i); !like(want, got) {
				t.Fatalf("RateLimit %s, want %s", got, want)
			}
		}
	})
}

// pair is two stores for a handler's zones, with the options that define them.
type pair struct{ app, one, two string }

func inTwoStores(t *testing.T, test func(t *testing.T, p pair)) {
	first, second := redistest.Start(t), redistest.Start(t)
	both := redisStore(first.Addr, "name a", "timeout 10s") + redisStore(second.Addr, "name b", "timeout 10s")
	for _, p := range []pair{{both, "local", "a"}, {both, "a", "local"}, {both, "a", "b"}} {
		t.Run(p.one+" and "+p.two, func(t *testing.T) {
			// Redis keeps counts, so each run has zones of its own.
			test(t, p)
		})
	}
	first.CheckTTLs()
	second.CheckTTLs()
}

// zones returns a handler with a zone in each store.
func (p pair) zones(one, two string) string {
	tag := p.one + "-" + p.two
	return fmt.Sprintf("rate_limit {\nzone one-%s {\nstore %s\n%s\n}\nzone two-%s {\nstore %s\n%s\n}\n}\n", tag, p.one, one, tag, p.two, two)
}

func (p pair) limits(one, two string) string {
	tag := p.one + "-" + p.two
	return fmt.Sprintf(`"one-%s";%s, "two-%s";%s`, tag, one, tag, two)
}

// TestAllOrNothingAcrossStores checks that a denial in one store charges nothing in
// the other and that the headers are correct.
func TestAllOrNothingAcrossStores(t *testing.T) {
	inTwoStores(t, func(t *testing.T, p pair) {
		s := serve(t, setup{app: p.app, site: p.zones("key all\nrule 10/1h", "rule 2/1h") + "respond ok"})
		s.wantHeader(s.want(req{ip: "10.0.0.1"}, 200), "RateLimit", p.limits("r=9;t=3600", "r=1;t=3600"))
		s.wantHeader(s.want(req{ip: "10.0.0.1"}, 200), "RateLimit", p.limits("r=8;t=3600", "r=0;t=3600"))
		for range 3 {
			a := s.want(req{ip: "10.0.0.1"}, 429)
			s.between(a, "Retry-After", 3590, 3600)
			// A store that was not called has no header item.
			if got := a.get("RateLimit"); got != p.limits("r=8;t=3600", "r=0;t=3600") && !strings.HasPrefix(got, `"two`) {
				t.Errorf("RateLimit %s", got)
			}
		}
		s.wantHeader(s.want(req{ip: "10.0.0.2"}, 200), "RateLimit", p.limits("r=7;t=3600", "r=1;t=3600"))
	})
	inTwoStores(t, func(t *testing.T, p pair) {
		s := serve(t, setup{app: p.app, site: p.zones("rule 2/2h gcra", "key all\nrule 10/1h") + "respond ok"})
		s.want(req{ip: "10.1.0.1"}, 200, 200, 429, 429, 429)
		s.wantHeader(s.want(req{ip: "10.1.0.2"}, 200), "RateLimit", p.limits("r=1;t=3600", "r=7;t=3600"))
	})
}

// TestBoundAcrossStores sends many concurrent requests: exactly as many pass as both
// limits allow.
func TestBoundAcrossStores(t *testing.T) {
	inTwoStores(t, func(t *testing.T, p pair) {
		s := serve(t, setup{app: p.app, site: p.zones("key all\nrule 7/1h fixed_window", "key all\nrule 5/1h") + "respond ok"})
		var passed atomic.Int64
		parallel(20, func(int) {
			for range 10 {
				if a, err := s.try(req{}); err != nil {
					t.Error(err)
				} else if a.status == 200 {
					passed.Add(1)
				}
			}
		})
		if n := passed.Load(); n != 5 {
			t.Errorf("%d passed, want 5", n)
		}
		if got := s.want(req{}, 429).get("RateLimit"); !strings.Contains(got, "r=0;") {
			t.Errorf("RateLimit %s", got)
		}
	})
}

// TestDenialAcrossStores checks that the denying zone is named, rather than an
// earlier zone that was not decided or a shadow zone.
func TestDenialAcrossStores(t *testing.T) {
	inTwoStores(t, func(t *testing.T, p pair) {
		tag := p.one + "-" + p.two
		s := serve(t, setup{app: p.app, site: fmt.Sprintf(`
			rate_limit {
				zone dark-%[1]s {
					shadow
					store %[2]s
					rule 100/1h
				}
				zone permits-%[1]s {
					store %[2]s
					in_flight 100
					respond 500 "not this one"
				}
				zone rule-%[1]s {
					store %[3]s
					rule 1/1h name r
					respond 420 "{http.rate_limit.exceeded.name} {http.rate_limit.dark-%[1]s.decision} {http.rate_limit.permits-%[1]s.decision}"
				}
			}
			respond "{http.rate_limit.dark-%[1]s.decision} {http.rate_limit.permits-%[1]s.decision}"`, tag, p.one, p.two)})
		if a := s.want(req{}, 200); a.body != "allowed allowed" {
			t.Errorf("body %q", a.body)
		}
		for range 3 {
			if a := s.want(req{}, 420); a.body != "rule-"+tag+" denied_elsewhere denied_elsewhere" {
				t.Errorf("body %q", a.body)
			}
		}
	})
}

// TestPermitsAcrossStores checks that permits in both stores, and a reserved cost in
// one of them, are held until the response.
func TestPermitsAcrossStores(t *testing.T) {
	inTwoStores(t, func(t *testing.T, p pair) {
		g := newGate()
		s := serve(t, setup{app: p.app, site: p.zones("in_flight 1\nrule 100/1h", "in_flight 2\nrule 3/1h\ncount_status 200") + handle(t, "*", g.ServeHTTP)})
		inside := s.open(g, req{})
		s.wantHeader(s.want(req{}, 429, 429), "Retry-After", "1")
		g.goOn <- true
		if status := <-inside; status != 200 {
			t.Errorf("status %d", status)
		}
		for range 2 {
			g.goOn <- true
			until(t, "the permit", func() bool { return s.send(req{}).status == 200 })
		}
		until(t, "the charge", func() bool { return s.want(req{}, 429).get("Retry-After") != "1" })
		s.between(s.want(req{}, 429), "Retry-After", 3590, 3600)
	})
}

// TestDuplicatesAcrossStores checks that a zone that prevents duplicates and a zone
// in another store are both charged.
func TestDuplicatesAcrossStores(t *testing.T) {
	inTwoStores(t, func(t *testing.T, p pair) {
		const remember = "rule 3/1h\nprevent_duplicates 1h"
		s := serve(t, setup{app: p.app, site: p.zones(remember, remember) + "respond ok"})
		for i := range 3 {
			q := req{method: "POST", path: fmt.Sprintf("/%d", i)}
			s.wantHeader(s.want(q, 200), "RateLimit", p.limits(fmt.Sprintf("r=%d;t=3600", 2-i), fmt.Sprintf("r=%d;t=3600", 2-i)))
			s.between(s.want(q, 429, 429), "Retry-After", 3590, 3600)
		}
		s.want(req{method: "POST", path: "/3"}, 429)
	})
}

// TestPacingAcrossStoresIsRejected checks that a request cannot be paced by two
// stores.
func TestPacingAcrossStoresIsRejected(t *testing.T) {
	p := pair{app: redisStore(unusedAddr(t), "name a"), one: "local", two: "a"}
	err := newSite(t).load(setup{app: p.app, site: p.zones("rule 5/1s leaky_bucket", "rule 1/1h leaky_bucket burst 2")})
	if err == nil || !strings.Contains(err.Error(), "want the same store") {
		t.Errorf("pacing in two stores: %v", err)
	}
}

// TestManyZones serves a handler with more zones than fit into a byte. One with more than
// fit into a call is rejected.
func TestManyZones(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		handler := func(n int) string {
			var site strings.Builder
			site.WriteString("rate_limit {\n")
			for i := range n {
				fmt.Fprintf(&site, "zone z%d {\nrule 2/1h\nprevent_duplicates 1h\nin_flight 10\nmax_keys 10\n}\n", i)
			}
			return site.String() + "}\nrespond ok"
		}
		s := serve(t, setup{app: b.app(), site: handler(300)})
		failed := func() float64 { return s.metric("fallback_total") + s.metric("store_errors_total") }
		before := failed()
		s.want(req{}, 200, 200, 429)
		s.want(req{ip: "10.0.0.1", method: "POST"}, 200, 429)
		if n := failed() - before; n != 0 {
			t.Errorf("%v decisions or calls failed", n)
		}
	})
	zones := make([]map[string]any, 13_108)
	for i := range zones {
		zones[i] = map[string]any{"name": fmt.Sprint("z", i), "rules": []map[string]any{{"limit": 2, "window": "1h"}}}
	}
	handler, err := json.Marshal(map[string]any{"handler": "rate_limit", "zones": zones})
	if err != nil {
		t.Fatal(err)
	}
	config := `{"admin": {"disabled": true}, "apps": {"http": {"servers": {"s": {"routes": [{"handle": [` + string(handler) + `]}]}}}}}`
	if err := newSite(t).loadJSON([]byte(config)); err == nil || !strings.Contains(err.Error(), "13108 zones in one handler: want at most 13107") {
		t.Errorf("13,108 zones: %.200v", err)
	}
}
