package storetest

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/stores"
)

// stranger is the key of another client, which has another tag.
var stranger = stores.Key{Hi: 3, Lo: 4}

// askBoth returns a check of two keys: one zone counts the client, the other one the stranger.
func askBoth(cost int64, first, second *stores.Counter) *stores.Check {
	check := ask(cost, first, second)
	check.Zones[1].Key, check.Zones[1].Tag = stranger, stranger
	return check
}

// decideBoth decides a check of two keys, as requests are decided: if the store decides only the keys of one
// slot together, by a store for each of them.
func decideBoth(t testing.TB, s stores.Store, check *stores.Check) {
	shared, _ := s.(stores.Shared)
	slotted, ok := s.(stores.Slotted)
	if !ok || !shared.Status().Clustered {
		s.Decide(t.Context(), check)
		return
	}
	of := make([]stores.Store, len(check.Zones))
	for i := range of {
		of[i] = slotted.At(check.Zones[i].Tag)
	}
	stores.Across(t.Context(), check, of)
}

// severalKeys charges two keys, such as an account and an address, or none of them.
func severalKeys(t testing.TB, c *Config) {
	s, first, second := c.New(t), tenPerHour(t), tenPerHour(t)
	decideBoth(t, s, askBoth(4, first, second))
	wantLeft(t, s, first, 6)
	wantLeftOf(t, s, second, stranger, 6)
	wantLeftOf(t, s, first, stranger, 10)
	decide(t, s, ask(6, first))
	for _, swapped := range []bool{false, true} {
		check := askBoth(1, first, second)
		if swapped {
			check.Zones[0], check.Zones[1] = check.Zones[1], check.Zones[0]
		}
		decideBoth(t, s, check)
		wantAdmitted(t, "a client that has nothing left", check, false)
	}
	wantLeftOf(t, s, second, stranger, 6)
}

// concurrentKeys charges two keys at the same time on two instances, in both orders. What was admitted is
// charged to both, and to each of them once.
func concurrentKeys(t testing.TB, c *Config) {
	const limit = 10
	both, first, second := []stores.Store{c.New(t), c.New(t)}, tenPerHour(t), tenPerHour(t)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for range 5 {
				check := askBoth(1, first, second)
				if w/2%2 == 1 {
					check.Zones[0], check.Zones[1] = check.Zones[1], check.Zones[0]
				}
				if decideBoth(t, both[w%2], check); check.Admitted {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	n := admitted.Load()
	if n == 0 || n > limit {
		t.Errorf("%d of 40 requests admitted, want at least one and at most %d", n, limit)
	}
	wantLeft(t, both[0], first, limit-n)
	wantLeftOf(t, both[1], second, stranger, limit-n)
}
