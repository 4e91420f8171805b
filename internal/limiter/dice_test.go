package limiter

import (
	"math/rand/v2"
	"testing"
)

// TestDice distributes throws over n keys in turn: each key is sampled equally
// often.
func TestDice(t *testing.T) {
	d := dice(rand.Uint64())
	t.Log("seed", d)
	for _, n := range []int{1, 2, 3, 7, 16, 64, 256} {
		const each, sampled = 160_000, 16
		counted := make([]int, n)
		for i := range n * each {
			if d.throw()&(sampled-1) == 0 {
				counted[i%n]++
			}
		}
		for key, got := range counted {
			// Six standard deviations from 10,000.
			if got < 9_400 || got > 10_600 {
				t.Errorf("key %d of %d was sampled %d times of %d, want about %d", key, n, got, each, each/sampled)
			}
		}
	}
}
