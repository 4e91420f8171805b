package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

const zoneIsFull = "the zone is full: new keys share counters and may be denied too early"

// TestFullZone checks that in a zone with more clients than keys, new clients share
// an overflow counter with their network: it may deny too early but never admits
// too much.
func TestFullZone(t *testing.T) {
	s := serve(t, setup{app: "max_keys 1000", site: `
		rate_limit {
			zone full {
				rule 3/1h
				max_keys 2
			}
		}
		respond {http.rate_limit.full.remaining}`})
	before := s.metric("overflow_total", "zone", "full")
	s.want(req{ip: "10.0.0.1"}, 200)
	s.want(req{ip: "2001:db8::1"}, 200)
	if n := s.metric("keys", "zone", "full"); n != 2 {
		t.Errorf("%v keys, want 2", n)
	}
	s.want(req{ip: "10.0.0.2"}, 200, 200)
	if a := s.want(req{ip: "10.0.9.9"}, 200); a.body != "0" {
		t.Errorf("%s left, want 0: the network's counter is used up", a.body)
	}
	s.want(req{ip: "10.0.0.2"}, 429)
	s.want(req{ip: "10.0.77.77"}, 429)
	s.want(req{ip: "2001:db8:0:1::1"}, 200, 200, 200, 429)
	s.want(req{ip: "2001:db8:0:ffff::1"}, 429)
	s.want(req{ip: "10.0.0.1"}, 200, 200, 429) // clients with a key of their own are unaffected
	if n := s.metric("keys", "zone", "full"); n != 2 {
		t.Errorf("%v keys, want 2", n)
	}
	if n := s.metric("overflow_total", "zone", "full") - before; n != 6 {
		t.Errorf("overflow_total rose by %v, want 6", n)
	}
	if line := s.log.wait(t, zoneIsFull); line["zone"] != "full" || line["level"] != "warn" {
		t.Errorf("log line %v", line)
	}
	if n := len(s.log.lines(t, zoneIsFull)); n != 1 {
		t.Errorf("%d lines say that the zone is full, want 1", n)
	}
}

// TestOverflowCountersPerNetwork checks that each network has its own overflow
// counter.
func TestOverflowCountersPerNetwork(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone full {
				rule 1/1h
				max_keys 1
			}
		}
		respond ok`})
	s.want(req{ip: "10.0.0.1"}, 200, 429)
	for i := range 200 {
		s.want(req{ip: fmt.Sprintf("10.%d.0.1", i+1)}, 200)
		s.want(req{ip: fmt.Sprintf("10.%d.0.2", i+1)}, 429)
	}
}

// TestFullZoneWithoutAddress checks that keys without an address share one overflow
// counter, whatever the client's network and the keys of other zones.
func TestFullZoneWithoutAddress(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone address {
				rule 1000/1h
			}
			zone account {
				key {header.A}
				rule 2/1h
				max_keys 1
			}
		}
		respond ok`})
	account := func(name string, i int) req {
		return req{ip: fmt.Sprintf("10.%d.0.1", i), header: map[string]string{"A": name}}
	}
	s.want(account("first", 0), 200)
	s.want(account("x", 1), 200)
	s.want(account("x", 2), 200)
	for i := range 20 {
		s.want(account("x", 3+i), 429)
	}
}

// TestOverflowsAfterAChangeOfRules counts, in a new table, under rules of another kind: what was counted before stays
// in the metric.
func TestOverflowsAfterAChangeOfRules(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.json")
	writeList(t, rules, `{"zones": {}}`)
	s := serve(t, setup{app: "rules file " + rules, site: `
		rate_limit {
			zone overflows {
				rule 100/1h
				max_keys 1
			}
		}
		respond ok`})
	s.want(req{ip: "10.0.0.1"}, 200)
	s.want(req{ip: "10.0.0.2"}, 200, 200)
	before := s.metric("overflow_total", "zone", "overflows")
	writeList(t, rules, `{"zones": {"overflows": {"rules": [{"limit": 100, "window": "2h"}]}}}`)
	until(t, "the new rules", func() bool {
		return s.send(req{ip: "10.0.0.1"}).get("RateLimit-Policy") == `"overflows";q=100;w=7200`
	})
	if n := s.metric("overflow_total", "zone", "overflows"); before < 2 || n < before {
		t.Errorf("overflow_total %v after the change, %v before", n, before)
	}
}

// TestExpiredKeysAreReplaced checks that a new key takes the slot of an expired one.
func TestExpiredKeysAreReplaced(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				rule 1/50ms
				max_keys 1
			}
		}
		respond ok`})
	before := s.metric("overflow_total", "zone", "z")
	s.want(req{ip: "10.0.0.1"}, 200)
	until(t, "a free slot", func() bool {
		at := s.metric("overflow_total", "zone", "z")
		return s.send(req{ip: "10.0.0.2"}).status == 200 && s.metric("overflow_total", "zone", "z") == at
	})
	if n := s.metric("keys", "zone", "z"); n != 1 {
		t.Errorf("%v keys, want 1", n)
	}
	t.Logf("%v requests used an overflow counter", s.metric("overflow_total", "zone", "z")-before)
}

// TestMaxKeysAfterReload raises and lowers max_keys by reloads.
func TestMaxKeysAfterReload(t *testing.T) {
	with := func(n int) setup {
		return setup{site: fmt.Sprintf("rate_limit {\nzone z {\nrule 1/1h\nmax_keys %d\n}\n}\nrespond ok", n)}
	}
	s := serve(t, with(1))
	s.want(req{ip: "10.0.0.1"}, 200)
	s.reload(with(3))
	s.want(req{ip: "10.0.0.2"}, 200)
	s.want(req{ip: "10.0.0.3"}, 200)
	if n := s.metric("keys", "zone", "z"); n != 3 {
		t.Errorf("%v keys, want 3", n)
	}
	s.reload(with(1))
	s.want(req{ip: "10.0.0.4"}, 200)
	s.want(req{ip: "10.0.0.5"}, 429)
	for i := range 3 {
		s.want(req{ip: fmt.Sprintf("10.0.0.%d", i+1)}, 429)
	}
}

// TestOverridesInFullZone fills a zone: keys of overrides have room that others do not take.
func TestOverridesInFullZone(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				max_keys 5
				rule 1/1h
				override 192.0.2.7 {
					rule 2/1h
				}
				override 198.51.100.0/24 {
					rule 3/1h
				}
			}
		}
		respond ok`})
	for i := range 5 {
		s.want(req{ip: fmt.Sprintf("10.0.0.%d", i)}, 200, 429)
	}
	s.want(req{ip: "10.0.0.5"}, 200) // by a counter for the network
	s.want(req{ip: "10.0.0.6"}, 429)
	s.want(req{ip: "192.0.2.7"}, 200, 200, 429)
	s.want(req{ip: "198.51.100.1"}, 200, 200, 200, 429)
	s.want(req{ip: "198.51.100.2"}, 200, 200, 200, 429)
	if n := s.metric("keys", "zone", "z"); n != 8 {
		t.Errorf("%v keys, want 8", n)
	}
}

// TestRemoteOverridesInFullZone fills a zone, and gives the keys of a network a higher limit
// meanwhile. They have room of their own at once.
func TestRemoteOverridesInFullZone(t *testing.T) {
	c := zoneOf(backend{}, "max_keys 5\nrule 1/1h")
	file := filepath.Join(t.TempDir(), "rules.json")
	c.app = "rules file " + file + " {\ninterval 1s\n}"
	s := serve(t, c)
	for i := range 5 {
		s.want(req{ip: fmt.Sprintf("10.0.0.%d", i)}, 200, 429)
	}
	if err := os.WriteFile(file, []byte(zoneDocument(`{"overrides": [{"key": ["198.51.100.0/24"], "rules": [{"limit": 3, "window": "1h"}]}]}`)), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the override", func() bool { return s.source().State == "ok" })
	s.want(req{ip: "198.51.100.1"}, 200, 200, 200, 429)
	s.want(req{ip: "198.51.100.2"}, 200, 200, 200, 429)
}

// TestMemoryBoundIsLogged checks that loading a zone logs the bound of its memory.
func TestMemoryBoundIsLogged(t *testing.T) {
	s := serve(t, setup{app: "max_keys 5000", site: `
		rate_limit {
			zone z {
				rule 10/1h
				override 192.0.2.7 {
					rule 20/1h
				}
			}
		}
		respond ok`})
	line := s.log.wait(t, "counts in this process")
	bytes, _ := line["max_bytes"].(float64)
	if line["zone"] != "z" || line["max_keys"] != 5000.0 || bytes < 5000*8*10 || bytes > 5000*1000 {
		t.Errorf("log line %v", line)
	}
}

// TestFullZoneBlocks has more offenders than max_keys. As many as fit are blocked and leave their
// room to others. Of one that is not blocked, a line and a metric tell.
func TestFullZoneBlocks(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				max_keys 100
				rule 1/200ms block 1h
			}
		}
		respond ok`})
	offend := func(n int) (blocked int) {
		for i := range n {
			for range 2 {
				a := s.send(req{ip: fmt.Sprintf("10.%d.0.1", i)})
				if a.status == 429 && len(a.get("Retry-After")) == 4 {
					blocked++
					break
				}
			}
		}
		return blocked
	}
	until(t, "150 blocks", func() bool { return offend(150) == 150 })
	s.want(req{ip: "192.0.2.1"}, 200)
	offend(300)
	line := s.log.wait(t, "the zone is full: keys that exceed their limit are denied, but not blocked")
	if line["zone"] != "z" || s.metric("unblocked_total", "zone", "z") == 0 {
		t.Errorf("line %v, %v unblocked", line, s.metric("unblocked_total", "zone", "z"))
	}
}

// TestOverflowsOfUnansweredRequests counts the charge of a request that failed and that no error route answered, in a
// zone that is full: it was charged nothing before.
func TestOverflowsOfUnansweredRequests(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone unanswered {
				rule 100/1h
				count_status 5xx
				max_keys 1
			}
		}
		error 500
		handle_errors 404 {
			respond "not found"
		}`})
	for range 3 {
		s.want(req{ip: "10.0.0.1"}, 500)
		s.want(req{ip: "10.0.0.2"}, 500)
	}
	until(t, "the overflows", func() bool { return s.metric("overflow_total", "zone", "unanswered") == 3 })
}
