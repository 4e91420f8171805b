package test

import (
	"encoding/json"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

const startsAnew = "the kind of the zone's rules or key has changed: its counts are reset"

func zoneOf(b backend, lines string) setup {
	return setup{app: b.app(), site: "rate_limit {\nzone z {\n" + lines + "\n}\n}\nrespond {http.rate_limit.z.remaining}"}
}

// TestCountsSurviveReload checks that the counts of each algorithm survive reloads
// with the same and with changed options.
func TestCountsSurviveReload(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, alg := range []string{"sliding_log", "fixed_window", "sliding_window", "gcra", "token_bucket", "leaky_bucket nodelay"} {
			s := serve(t, zoneOf(b, "rule 10/100h "+alg))
			before := len(s.log.lines(t, startsAnew))       // the process keeps tables of earlier tests
			ip := "10.0.0." + string(rune('0'+len(alg)%10)) // Redis keeps the previous round's counts
			q := req{ip: ip}
			s.want(q, 200, 200, 200, 200)
			for _, c := range []struct{ lines, left string }{
				{"rule 10/100h " + alg, "5"},
				{"rule 8/100h " + alg + " name other", "2"}, // 5 were used
				{"rule 8/100h " + alg + "\ncost 2", "0"},
				{"rule 20/100h " + alg, "11"}, // 8
				{"rule 20/100h " + alg + "\nrespond 420 x\nmax_wait 1s\nkey {client_ip}", "10"},
			} {
				s.reload(zoneOf(b, c.lines))
				if a := s.want(q, 200); a.body != c.left {
					t.Errorf("%s after 10/100h: %s left, want %s", c.lines, a.body, c.left)
				}
			}
			s.reload(zoneOf(b, "rule 10/100h "+alg)) // all 10 are used
			s.want(q, 429)
			s.reload(zoneOf(b, "rule 11/100h "+alg))
			s.want(q, 200, 429)
			if n := len(s.log.lines(t, startsAnew)) - before; n != 0 {
				t.Errorf("%s: %d lines say that counts were reset, want none", alg, n)
			}
		}
	})
}

// TestBurstChangeKeepsCounts checks that a changed burst keeps the counts.
func TestBurstChangeKeepsCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 10/100h gcra burst 6"))
		s.want(req{}, 200, 200, 200)
		s.reload(zoneOf(b, "rule 10/100h gcra burst 4"))
		s.want(req{}, 200, 429)
		s.reload(zoneOf(b, "rule 10/100h gcra burst 6"))
		s.want(req{}, 200, 200, 429)
	})
}

// TestIncompatibleChangeResetsCounts checks that a change of algorithm or rules that
// cannot keep the counts resets them and logs it.
func TestIncompatibleChangeResetsCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 2/100h"))
		before := len(s.log.lines(t, startsAnew))
		for i, lines := range []string{
			"rule 2/50h", "rule 2/50h gcra", "rule 2/50h sliding_window", "rule 2/50h sliding_window buckets 5",
			"rule 2/50h fixed_window", "rule 2/50h fixed_window align", "rule 2/50h token_bucket", "rule 2/50h token_bucket step 5h",
			"rule 2/50h\nrule 9/9h", "rule 2/9h\nkey {client_ip} x",
		} {
			s.want(req{}, 200, 200, 429)
			s.reload(zoneOf(b, lines))
			if got := s.log.lines(t, startsAnew)[before:]; len(got) != i+1 || got[i]["zone"] != "z" {
				t.Fatalf("%s: log lines %v, want %d", lines, got, i+1)
			}
		}
		s.want(req{}, 200, 200, 429)
	})
}

// TestAddingInFlightKeepsCounts checks that adding in_flight to a zone keeps its counts,
// beside which permits are counted.
func TestAddingInFlightKeepsCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 2/100h"))
		before := len(s.log.lines(t, startsAnew))
		s.want(req{}, 200, 200, 429)
		s.reload(zoneOf(b, "rule 2/100h\nin_flight 5"))
		s.want(req{}, 429)
		if n := len(s.log.lines(t, startsAnew)) - before; n != 0 {
			t.Errorf("%d lines say that counts were reset, want none", n)
		}
	})
}

// TestTwoRuleVersionsInOneRedis uses two versions of the rules in one Redis, as
// during a rolling update: neither misreads the other's counts.
func TestTwoRuleVersionsInOneRedis(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 3/100h"))
		s.want(req{}, 200)
		for _, lines := range []string{"rule 3/100h gcra", "rule 3/100h fixed_window\nrule 3/9h", "rule 3/100h sliding_window"} {
			s.reload(zoneOf(b, lines))
			s.want(req{}, 200, 200, 200, 429)
		}
		s.reload(zoneOf(b, "rule 4/100h"))
		if b.redis != nil { // the local store drops the counts of replaced rules
			s.want(req{}, 200, 200, 200, 429)
		} else {
			s.want(req{}, 200, 200, 200, 200, 429)
		}
	})
}

// TestFailedLoadReleasesResources loads configurations that fail at different
// points: the running one continues with its counts, and the failed ones keep
// nothing in the pools.
func TestFailedLoadReleasesResources(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 2/1h"))
		held := 0
		if b.redis != nil {
			held = 1
		}
		s.want(req{}, 200)
		url := s.url
		for what, c := range map[string]setup{
			"an invalid store": {app: b.app() + redisStore(unusedAddr(t), "name other") + redisStore(unusedAddr(t), "name wrong", "password {env.NO_SUCH_VARIABLE}"), site: "respond ok"},
			"an invalid zone":  {app: b.app(), site: "rate_limit {\nzone new {\nrule 1/1h\n}\nzone twice {\nrule 1/1h\n}\n}\nrate_limit {\nzone twice {\nrule 2/1h\n}\n}"},
			"an unknown store": {app: b.app(), site: "rate_limit {\nzone new {\nrule 1/1h\n}\nzone other {\nrule 1/1h\nstore nowhere\n}\n}"},
			"another handler":  {app: b.app(), site: "rate_limit {\nzone new {\nrule 1/1h\n}\n}\nroot {\nheader {\n}\n}\nbasic_auth {\nuser nohash\n}"},
			"a port in use":    {app: b.app() + redisStore(unusedAddr(t), "name other"), site: "rate_limit {\nzone z {\nrule 1/1h\n}\n}\nrate_limit {\nzone new {\nrule 1/1h\n}\n}", more: "http://:" + port(taken) + " {\nbind 127.0.0.1\n}"},
		} {
			if err := s.load(c); err == nil {
				t.Fatalf("%s: loads", what)
			}
			wantPools(t, 1, held)
		}
		if s.url != url {
			t.Fatal("the site's address changed")
		}
		s.want(req{}, 200, 429)
	})
}

// TestConfigurationThatFailsLast loads a configuration that fails after its apps have started, which Caddy cleans up and
// does not stop: the one before is shown and led again.
func TestConfigurationThatFailsLast(t *testing.T) {
	s := serve(t, setup{site: "rate_limit {\nzone old {\nrule 2/1h\n}\n}"})
	next, err := adapt(t, setup{site: "rate_limit {\nzone new {\nrule 2/1h\n}\n}"}.caddyfile(s))
	if err != nil {
		t.Fatal(err)
	}
	load := `"config":{"load":{"module":"http","url":"http://` + unusedAddr(t) + `"},`
	if err := s.loadJSON([]byte(strings.Replace(string(next), `"config":{`, load, 1))); err == nil || !strings.Contains(err.Error(), "dynamic config") {
		t.Fatalf("error %v", err)
	}
	wantPools(t, 1, 0)
	if all := s.zones().Zones; len(all) != 1 || all[0].Name != "old" {
		t.Errorf("zones %v", all)
	}
}

func port(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// TestReloadsWithoutRedisKeepPermits reloads twice while Redis is away, each time with another
// option of the store. The request that holds the permit counts all the while.
func TestReloadsWithoutRedisKeepPermits(t *testing.T) {
	srv, g, name := redistest.Start(t), newGate(), newName("held")
	site := "rate_limit {\nzone " + name + " {\nin_flight 1\n}\n}\n" + handle(t, "/held", g.ServeHTTP) + "\nrespond ok"
	s := serve(t, setup{app: redisStore(srv.Addr), site: site})
	until(t, "Redis", func() bool { return s.send(req{ip: "10.0.0.1"}).status == 200 && s.zones().Stores[0].Mode == "shared" })
	first := s.open(g, req{path: "/held"})
	srv.Kill()
	for _, timeout := range []string{"timeout 60ms", "timeout 70ms"} {
		s.reload(setup{app: redisStore(srv.Addr, timeout), site: site})
		s.want(req{}, 429)
	}
	g.goOn <- true
	if status := <-first; status != 200 {
		t.Errorf("status %d", status)
	}
	s.want(req{}, 200)
}

// TestReloadReleasesUnusedPools checks that a reload releases removed zones and
// stores.
func TestReloadReleasesUnusedPools(t *testing.T) {
	s := serve(t, setup{app: redisStore(unusedAddr(t)), site: `
		rate_limit {
			zone one {
				rule 1/1h
				rule 2/2h
				override 10.0.0.1 {
					rule 3/1h
				}
				prevent_duplicates
			}
			zone two {
				rule 1/1h
			}
		}`})
	wantPools(t, 4, 1)
	for range 3 {
		s.reload(setup{site: "rate_limit {\nzone two {\nrule 1/1h\n}\n}"})
		wantPools(t, 1, 0)
	}
	s.reload(setup{site: "respond ok"})
	wantPools(t, 0, 0)
}

// TestValidateDoesNotDial checks that validating a configuration opens no
// connection.
func TestValidateDoesNotDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var dialed atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dialed.Add(1)
			c.Close()
		}
	}()
	s := newSite(t)
	c := setup{app: redisStore(l.Addr().String()), site: "rate_limit {\nzone z {\nrule 1/1h\n}\n}"}
	adapted, err := adapt(t, c.caddyfile(s))
	if err != nil {
		t.Fatal(err)
	}
	var cfg caddy.Config
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(adapted), ":8001", "127.0.0.1:0")), &cfg); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&cfg); err != nil {
		t.Fatal(err)
	}
	wantPools(t, 0, 0)
	if n := dialed.Load(); n != 0 {
		t.Errorf("dialed %d times", n)
	}
	s.reload(c) // running it dials
	until(t, "a connection", func() bool { return dialed.Load() > 0 })
}

// TestSitesMayChangeOrder has two sites with equal limits, which keep their own counts when the
// sites change their order.
func TestSitesMayChangeOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		const line = "rate_limit {client_ip} 2/1h\nrespond ok\n"
		one, two := "http://a.test:8002 {\n"+line+"}\n", "http://b.test:8002 {\n"+line+"}\n"
		s := serve(t, setup{app: b.app(), site: "respond ok", more: one + two})
		s.want(req{to: s.second, host: "a.test"}, 200, 200, 429)
		s.want(req{to: s.second, host: "b.test"}, 200)
		s.reload(setup{app: b.app(), site: "respond ok", more: two + one})
		s.want(req{to: s.second, host: "a.test"}, 429)
		s.want(req{to: s.second, host: "b.test"}, 200, 429)
	})
}
