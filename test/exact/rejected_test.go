package exact_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/test/exact/oracle"
)

// TestNonPositiveRulesAreRejected checks values of zero and below. A limit of zero has
// caused divisions by zero in other limiters.
func TestNonPositiveRulesAreRejected(t *testing.T) {
	for _, name := range everyAlgorithm {
		for _, r := range []oracle.Rule{
			{Algorithm: name, Limit: 0, Window: second},
			{Algorithm: name, Limit: -1, Window: second},
			{Algorithm: name, Limit: 1, Window: 0},
			{Algorithm: name, Limit: 1, Window: -second},
		} {
			if _, err := compile([]oracle.Rule{r}); err == nil {
				t.Errorf("%+v is accepted", r)
			}
		}
	}
	for _, r := range []oracle.Rule{
		{Algorithm: "gcra", Limit: 1, Window: second, Burst: -1},
		{Algorithm: "token_bucket", Limit: 1, Window: second, Burst: -1},
		{Algorithm: "token_bucket", Limit: 1, Window: second, Step: 3},
		{Algorithm: "token_bucket", Limit: 1, Window: second, Step: -1},
		{Algorithm: "leaky_bucket", Limit: 1, Window: second, Burst: -1},
		{Algorithm: "leaky_bucket", Limit: 1, Window: second, Burst: 3, MaxWait: second},
		{Algorithm: "sliding_window", Limit: 1, Window: second, Buckets: -1},
		{Algorithm: "sliding_window", Limit: 1, Window: 9, Buckets: 10},
	} {
		if _, err := compile([]oracle.Rule{r}); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
}

// TestRejectedRules draws rules on both sides of the arithmetic's range and checks
// that exactly those are rejected whose numbers exceed a double's integers.
func TestRejectedRules(t *testing.T) {
	accepted, rejected := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			r := drawHuge(t)
			_, err := compile([]oracle.Rule{r})
			if fits := holds(r); fits != (err == nil) {
				t.Fatalf("%+v: fits %v, but compile error %v", r, fits, err)
			}
			if err == nil {
				accepted++
			} else {
				rejected++
			}
		}
	})
	t.Logf("%d accepted, %d rejected", accepted, rejected)
	if accepted == 0 || rejected == 0 {
		t.Errorf("%d accepted and %d rejected: want some of both", accepted, rejected)
	}
}

// Limits that divide most windows.
var roundLimits = []int64{1000, 3600, 60_000, 86_400, 600_000, 1_000_000, 86_400_000}

func drawHuge(t *rapid.T) oracle.Rule {
	r := oracle.Rule{
		Algorithm: rapid.SampledFrom([]string{"gcra", "token_bucket", "leaky_bucket"}).Draw(t, "algorithm"),
		Limit:     rapid.OneOf(rapid.Int64Range(1, 1<<36), rapid.SampledFrom(roundLimits)).Draw(t, "limit"),
		Window:    rapid.OneOf(rapid.Int64Range(1, 1<<30), rapid.SampledFrom(someWindows)).Draw(t, "window"),
	}
	if rapid.Bool().Draw(t, "with a burst") {
		r.Burst = rapid.Int64Range(1, 1<<30).Draw(t, "burst")
	}
	switch r.Algorithm {
	case "token_bucket":
		r.Step = drawStep(t, r.Window)
	case "leaky_bucket":
		if r.Burst == 0 {
			r.MaxWait = rapid.Int64Range(0, 1<<40).Draw(t, "wait")
		}
	}
	return r
}

// holds reports whether burst, wait and step are within 2^52 in units in which limit
// and window are integers, and the drain within 2^32.
func holds(r oracle.Rule) bool {
	common := gcd(r.Limit, r.Window)
	l, w := big.NewInt(r.Limit/common), big.NewInt(r.Window/common)
	burst, wait := big.NewInt(r.Burst), new(big.Int)
	one := big.NewInt(1)
	switch {
	case r.Algorithm == "leaky_bucket" && r.Burst > 0:
		// As long as the burst: ceil((burst - 1) * w / l).
		wait.Sub(burst, one).Mul(wait, w).Add(wait, l).Sub(wait, one).Div(wait, l)
	case r.Algorithm == "leaky_bucket":
		wait.SetInt64(patience(r))
		burst.Mul(wait, l).Div(burst, w).Add(burst, one)
	case r.Burst == 0:
		burst.SetInt64(r.Limit)
	}
	most := new(big.Int).Mul(burst, w)
	most.Add(most, wait.Mul(wait, l)).Add(most, new(big.Int).Mul(big.NewInt(r.Step), l))
	return most.Cmp(big.NewInt(1<<52)) <= 0 && l.Cmp(big.NewInt(1<<32)) < 0
}
