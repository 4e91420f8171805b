package storekit

import "testing"

// Event is what may happen to a state machine with its model.
type Event[M any] struct {
	// Name is what the machine did, after its name and a relative pronoun, such as "is asked".
	Name string

	// Do does it to the machine and to its model.
	Do func(M)
}

// Walk has each event meet a machine in each state that events lead from begin to, and then 20 random ones in a row,
// 1,000 times. After each event it calls check, with the names of all so far. states has to be finite.
func Walk[M any, S comparable](t *testing.T, events []Event[M], begin func() M, state func(M) S, check func(m M, did string)) {
	t.Helper()
	lead := func(way []int) S {
		m, did := begin(), ""
		for _, e := range way {
			events[e].Do(m)
			did += events[e].Name + ", "
			check(m, did)
		}
		return state(m)
	}
	seen := map[S]bool{state(begin()): true}
	for ways := [][]int{nil}; len(ways) > 0; ways = ways[1:] {
		for e := range events {
			way := append(append([]int(nil), ways[0]...), e)
			if s := lead(way); !seen[s] {
				seen[s] = true
				ways = append(ways, way)
			}
		}
	}
	t.Logf("%d states, each met by %d events", len(seen), len(events))
	r := Seeded(t)
	for range 1000 {
		way := make([]int, 20)
		for i := range way {
			way[i] = r.IntN(len(events))
		}
		lead(way)
	}
}
