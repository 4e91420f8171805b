package test

import (
	"fmt"
	"testing"
	"time"
)

// TestRuleAndPlace has a rule deny: it takes no place, and does not wait for one.
func TestRuleAndPlace(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: overload(1, "rule 1/1h\nmax_wait 30s") + handle(t, "*", g.ServeHTTP)})
		first := s.open(g, req{})
		s.want(req{}, 429, 429) // at once, though all places are taken
		if p := s.places(); p.InFlight != 1 || waitingIn(p) != 0 {
			t.Errorf("%+v: want one in flight and none waiting", p)
		}
		g.goOn <- true
		<-first
		s.want(req{}, 429)
		s.wantFree()
		second := s.open(g, req{ip: "10.0.0.2"}) // a denied request has left the place
		g.goOn <- true
		if status := <-second; status != 200 {
			t.Errorf("status %d: want 200", status)
		}
	})
}

// TestWaitForPlaceThenDenied has a request wait for a place, get it, and be denied by the rule that another used up meanwhile.
func TestWaitForPlaceThenDenied(t *testing.T) {
	g := newGate()
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				in_flight adaptive {
					min 1
					max 1
				}
				max_wait 1m
			}
			zone once {
				match path /once
				key all
				rule 1/1h
			}
		}
		` + handle(t, "*", g.ServeHTTP)})
	first := s.open(g, req{})
	statuses := make(chan int, 2)
	for i := range 2 {
		go func() { statuses <- s.send(req{path: "/once"}).status }()
		s.wantWaiting(i + 1)
	}
	g.goOn <- true
	<-first
	<-g.entered // one of them
	g.goOn <- true
	if a, b := <-statuses, <-statuses; a+b != 200+429 {
		t.Errorf("statuses %d and %d: want 200 and 429", a, b)
	}
	s.wantFree()
}

// TestRuleAndFullPlaces has a rule deny while all places are taken and nobody may wait: the client is told of its own
// limit, and a block begins.
func TestRuleAndFullPlaces(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: overload(1, "rule 2/1h block 3h") + handle(t, "/held", g.ServeHTTP) + "\nrespond ok"})
		s.want(req{}, 200, 200)
		first := s.open(g, req{path: "/held", ip: "10.0.0.2"})
		s.between(s.want(req{}, 429), "Retry-After", 3*60*60-60, 3*60*60) // until the block ends
		s.want(req{ip: "10.0.0.3"}, 503)                                  // whose limit is not used up
		g.goOn <- true
		<-first
		s.want(req{ip: "10.0.0.3"}, 200, 200) // it was charged nothing
		s.wantFree()
	})
}

// TestDuplicateWaitsForAPlace has two equal requests wait for a place, which the first gets. The other is told that it
// is a duplicate when its wait ends.
func TestDuplicateWaitsForAPlace(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: overload(1, "prevent_duplicates 1h\nmax_wait 3s") + handle(t, "*", g.ServeHTTP)})
		first, statuses := s.open(g, req{}), make(chan int, 2)
		for i := range 2 {
			go func() { statuses <- s.send(req{method: "POST", path: "/a"}).status }()
			s.wantWaiting(i + 1)
		}
		g.goOn <- true
		<-first
		<-g.entered // one of them
		if status := <-statuses; status != 429 {
			t.Errorf("status %d: want 429, for a duplicate", status)
		}
		g.goOn <- true
		if status := <-statuses; status != 200 {
			t.Errorf("status %d: want 200", status)
		}
		s.wantFree()
	})
}

// TestWaitersForAPlaceFollowRules changes the rules while a request waits for a place: it is decided by those in force.
func TestWaitersForAPlaceFollowRules(t *testing.T) {
	for _, c := range []struct {
		name, document, want string
		place                bool // whether it still waits for one
	}{
		{"the key is blocked", `{"overrides": [{"key": ["127.0.0.1"], "rules": [{"limit": 0, "window": "1h"}]}]}`, "429 ", false},
		{"the limit is used up", `{"rules": [{"limit": 1, "window": "1h"}]}`, "429 ", false},
		{"the key is unlimited", `{"exceptions": [{"key": ["127.0.0.1"], "unlimited": true}]}`, "200 skipped", false},
		{"the zone is off", `{"enabled": false}`, "200 skipped", false},
		{"the zone is in shadow", `{"shadow": true}`, "200 allowed", false},
		{"nothing that matters", `{"rules": [{"limit": 8, "window": "1h"}]}`, "200 delayed", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate()
			s := serveRuled(t, setup{site: overload(1, "rule 9/1h\nmax_wait 1m") + handle(t, "/held", g.ServeHTTP) + "\nrespond {http.rate_limit.z.decision}"})
			first := s.open(g, req{path: "/held"})
			done := make(chan string, 1)
			go func() {
				a := s.send(req{})
				done <- fmt.Sprint(a.status, " ", a.body)
			}()
			s.wantWaiting(1)
			s.apply(zoneDocument(c.document))
			if c.place {
				time.Sleep(time.Second)
				s.wantWaiting(1)
				g.goOn <- true
			}
			if got := <-done; got != c.want {
				t.Errorf("%s: want %s", got, c.want)
			}
			if !c.place {
				g.goOn <- true
			}
			if status := <-first; status != 200 {
				t.Errorf("status %d: want 200", status)
			}
			s.wantFree()
		})
	}
}
