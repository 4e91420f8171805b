package stores_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// verdict is what a store says to every check.
type verdict int

const (
	admits verdict = iota
	denies
	blocks // denies, and starts a block unless it is peeked at
)

// saying is a store that says one thing, and notes what it is asked.
type saying struct {
	says  verdict
	asked []string
}

// Decide implements [stores.Store].
func (s *saying) Decide(_ context.Context, check *stores.Check) {
	z := &check.Zones[0]
	what := "decides"
	if check.Peek {
		what = "peeks"
	} else if z.Reserve {
		what = "holds"
	}
	s.asked = append(s.asked, what)
	check.Admitted, z.Admits = s.says == admits, s.says == admits
	z.Charged = s.says == admits && !check.Peek
	if z.Block = (stores.Block{}); s.says == blocks && !check.Peek {
		z.Block = stores.Block{Until: 1, Started: true}
	}
}

// Finish implements [stores.Store].
func (s *saying) Finish(_ context.Context, z *stores.ZoneCheck, charge int64) {
	s.asked = append(s.asked, fmt.Sprintf("finishes with %d", charge))
	z.Permit = stores.Permit{}
}

// TestStatesOfStores has none to three stores admit, deny or block in all ways. Each is then asked, and each zone is, what
// the table of Across says.
func TestStatesOfStores(t *testing.T) {
	for n := range 4 {
		ways := 1
		for range n {
			ways *= 3
		}
		for way := range ways {
			check := &stores.Check{}
			var all []*saying
			var of []stores.Store
			denying := n // the first that denies
			for i := range n {
				s := &saying{says: verdict(way % 3)}
				if way /= 3; s.says != admits {
					denying = min(denying, i)
				}
				all, of = append(all, s), append(of, s)
				check.Zones = append(check.Zones, stores.ZoneCheck{Cost: 2, Counter: &stores.Counter{Terms: stores.Terms{Blocks: []int64{1}}, Rules: []algorithms.Rule{}}})
			}
			stores.Across(context.Background(), check, of)
			if check.Admitted != (denying == n) {
				t.Fatalf("admitted %v, the %d. of %d denies", check.Admitted, denying, n)
			}
			for i, s := range all {
				var want []string
				switch {
				case i == n-1 && denying >= i:
					want = []string{"decides"}
				case i < denying && denying == n:
					want = []string{"holds", "finishes with 2"}
				case i < denying:
					want = []string{"holds", "finishes with 0"}
				case i == denying:
					want = []string{"holds"}
				case s.says == blocks:
					want = []string{"peeks", "holds"}
				case s.says == denies:
					want = []string{"peeks", "holds"} // it may block
				default:
					want = []string{"peeks"}
				}
				if i < denying && denying < n && i != n-1 { // its numbers are asked for again
					want = append(want, "peeks")
				}
				z := &check.Zones[i]
				if charged := denying == n; !slices.Equal(s.asked, want) || z.Charged != charged || z.Reserve || (z.Block.Until != 0) != (s.says == blocks) {
					t.Errorf("store %d of %v, the %d. denies: %q, charged %v, reserved %v, block %v; want %q, charged %v", i, all, denying, s.asked, z.Charged, z.Reserve, z.Block, want, charged)
				}
			}
		}
	}
}
