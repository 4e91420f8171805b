package stores

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
)

// TestMoreOfABlock checks that a block that starts puts off what would be left without it, and
// nothing that is later anyway.
func TestMoreOfABlock(t *testing.T) {
	z := &ZoneCheck{Counter: &Counter{Terms: Terms{Blocks: []int64{8, 0, 0}}}, Results: []Result{
		{Verdict: algorithms.Verdict{Retry: 3}, Reset: 5, More: 3}, {Remaining: 7, Reset: 90, More: 50}, {Reset: 90, More: 50},
	}}
	z.StartBlock(Block{Until: 108, Span: 8, Started: true}, 100)
	for i, want := range []int64{8, 8, 50} {
		if res := z.Results[i]; res.Remaining != 0 || res.More != want {
			t.Errorf("rule %d: %+v, want more in %d", i, res, want)
		}
	}
	z.Block.Started = false
	z.DenyBlocked(105)
	for i, res := range z.Results {
		if res.Remaining != 0 || res.More != 3 {
			t.Errorf("rule %d of a blocked key: %+v, want more in 3", i, res)
		}
	}
}
