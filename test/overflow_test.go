package test

import (
	"fmt"
	"testing"
)

const zoneIsFull = "the zone is full of keys that still count: new ones share counters, and may be denied too early"

// TestFullZone has more clients than keys: new ones share a counter with their
// network, which may deny too early, and never admits too much.
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
		t.Errorf("%s left, want 0: the network has used all", a.body)
	}
	s.want(req{ip: "10.0.0.2"}, 429)
	s.want(req{ip: "10.0.77.77"}, 429)
	s.want(req{ip: "2001:db8:0:1::1"}, 200, 200, 200, 429)
	s.want(req{ip: "2001:db8:0:ffff::1"}, 429)
	s.want(req{ip: "10.0.0.1"}, 200, 200, 429) // who has a key of its own is not in the way
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
		t.Errorf("%d lines say that the zone is full, want one for a while", n)
	}
}

// TestNetworksShareSeparately: other networks have counters of their own.
func TestNetworksShareSeparately(t *testing.T) {
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

// TestFullZoneOfAccounts: an account without an address shares the same counter
// wherever it comes from, whatever another zone counts by.
func TestFullZoneOfAccounts(t *testing.T) {
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

// TestRecoveredKeysMakeRoom: a key whose window is over is forgotten for a new one.
func TestRecoveredKeysMakeRoom(t *testing.T) {
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
	until(t, "room", func() bool {
		at := s.metric("overflow_total", "zone", "z")
		return s.send(req{ip: "10.0.0.2"}).status == 200 && s.metric("overflow_total", "zone", "z") == at
	})
	if n := s.metric("keys", "zone", "z"); n != 1 {
		t.Errorf("%v keys, want 1", n)
	}
	t.Logf("%v requests shared a counter", s.metric("overflow_total", "zone", "z")-before)
}

// TestMaxKeysAfterReload changes how many keys there may be.
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

// TestMemoryIsToldAtLoad looks for the bound of each zone's memory.
func TestMemoryIsToldAtLoad(t *testing.T) {
	s := serve(t, setup{app: "max_keys 5000", site: `
		rate_limit {
			zone z {
				rule 10/1h
			}
		}
		respond ok`})
	line := s.log.wait(t, "counts in this process")
	bytes, _ := line["max_bytes"].(float64)
	if line["zone"] != "z" || line["max_keys"] != 5000.0 || bytes < 5000*8*10 || bytes > 5000*1000 {
		t.Errorf("log line %v", line)
	}
}
