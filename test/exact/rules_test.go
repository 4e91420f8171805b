package exact_test

import (
	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

const (
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

var (
	everyAlgorithm = []string{"gcra", "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "calendar"}

	// Common windows, and some primes.
	someWindows = []int64{1, 2, 3, 7, 10, 64, 97, 100, 1000, 9973, second, 10 * second, 999_983, minute, hour, day, 7 * day, 30 * day}
)

// Generators are created for every draw: rapid cannot share them between parallel
// tests.

// window draws a window. Small windows make traces reach every edge; large ones reach
// the limits of a double.
func window() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(1, 50), rapid.SampledFrom(someWindows), rapid.Int64Range(1, 7*day))
}

// limit draws a limit up to most: a log's memory grows with its limit.
func limit(most int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, 300), rapid.Int64Range(1, most))
}

// drawRule draws a rule of one algorithm with any of its options.
func drawRule(t *rapid.T, algorithm string) oracle.Rule {
	r := oracle.Rule{Algorithm: algorithm, Window: window().Draw(t, "window")}
	if algorithm == "sliding_log" {
		r.Limit = limit(2000).Draw(t, "limit")
		return r
	}
	r.Limit = limit(1<<50).Draw(t, "limit")
	switch algorithm {
	case "calendar":
		drawPeriod(t, &r)
	case "gcra":
		drawBurst(t, &r)
	case "token_bucket":
		drawBurst(t, &r)
		if rapid.Bool().Draw(t, "in steps") {
			r.Step = drawStep(t, r.Window)
		}
	case "leaky_bucket":
		if r.NoDelay = rapid.Bool().Draw(t, "nodelay"); r.NoDelay {
			drawBurst(t, &r)
		} else {
			drawQueue(t, &r)
		}
	case "fixed_window":
		r.Align = rapid.Bool().Draw(t, "align")
	case "sliding_window":
		r.Buckets = min(rapid.Int64Range(0, 64).Draw(t, "buckets"), r.Window)
		if r.Buckets == 0 && r.Window < 10 {
			r.Buckets = 1
		}
	}
	for !countable(r, patience(r)) {
		r.Limit, r.Burst, r.MaxWait = (r.Limit+1)/2, (r.Burst+1)/2, (r.MaxWait+1)/2
		r.Burst = reachable(r)
	}
	return r
}

// someZones have a midnight every day since 1970, and east and west of UTC changes of the
// clock by an hour, by half an hour and none.
var someZones = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "Australia/Lord_Howe"}

func drawPeriod(t *rapid.T, r *oracle.Rule) {
	period := algorithms.Period(rapid.IntRange(int(algorithms.Day), int(algorithms.Year)).Draw(t, "period"))
	r.Period, r.Window = period.String(), period.Longest()
	r.Zone = rapid.SampledFrom(someZones).Draw(t, "zone")
	switch period {
	case algorithms.Week:
		r.From = rapid.SampledFrom([]string{"", "sunday", "thursday"}).Draw(t, "from")
	case algorithms.Month:
		r.From = rapid.SampledFrom([]string{"", "15", "31"}).Draw(t, "from")
	}
}

func drawBurst(t *rapid.T, r *oracle.Rule) {
	r.Burst = rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(1, 12), rapid.Int64Range(1, 2*r.Limit)).Draw(t, "burst")
}

// drawStep draws a divisor of the window.
func drawStep(t *rapid.T, window int64) int64 {
	parts := rapid.Int64Range(1, min(window, 60)).Draw(t, "steps")
	for window%parts != 0 {
		parts--
	}
	return window / parts
}

// drawQueue draws the burst and the maximum wait of a queue that delays. Either may be
// left to its default.
func drawQueue(t *rapid.T, r *oracle.Rule) {
	if rapid.Bool().Draw(t, "with a wait") {
		r.MaxWait = rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, 2*r.Window)).Draw(t, "wait")
	}
	if rapid.Bool().Draw(t, "with a burst") {
		drawBurst(t, r)
	}
	r.Burst = reachable(*r)
}

// reachable returns the burst of a rule, limited to what its wait can drain. A larger
// one is rejected.
func reachable(r oracle.Rule) int64 {
	if !delays(r) || r.MaxWait == 0 || r.Burst == 0 {
		return r.Burst
	}
	room := float64(r.MaxWait)*float64(r.Limit)/float64(r.Window)*(1-1e-12) + 1
	return max(1, int64(min(float64(r.Burst), room)))
}

// delays reports whether the rule delays what it admits.
func delays(r oracle.Rule) bool { return r.Algorithm == "leaky_bucket" && !r.NoDelay }

// patience returns approximately the maximum delay of a rule.
func patience(r oracle.Rule) int64 {
	switch {
	case !delays(r):
		return 0
	case r.MaxWait > 0:
		return r.MaxWait
	case r.Burst > 0:
		return int64(float64(r.Burst) * float64(r.Window) / float64(r.Limit))
	}
	return second
}

// parts returns the number of parts of a sliding window, part the length of each.
func parts(r oracle.Rule) int64 {
	if r.Buckets == 0 {
		return 10
	}
	return r.Buckets
}

func part(r oracle.Rule) int64 { return (r.Window + parts(r) - 1) / parts(r) }

// countable reports whether the arithmetic stays within 2^52 when the rule is charged
// with a delay of turn. It keeps a margin of one percent for its own rounding.
// TestRejectedRules tests the exact limits.
func countable(r oracle.Rule, turn int64) bool {
	const most = 0.99 * (1 << 52)
	if r.Algorithm == "fixed_window" || r.Algorithm == "sliding_window" || r.Algorithm == "sliding_log" || r.Algorithm == "calendar" {
		return true
	}
	burst, l, w := leak(r)
	return burst*w+float64(max(turn, r.Step))*l <= most && l < 0.99*(1<<32)
}

// leak returns the burst of a meter, and its limit over its window in lowest terms.
func leak(r oracle.Rule) (burst, l, w float64) {
	common := float64(gcd(r.Limit, r.Window))
	l, w = float64(r.Limit)/common, float64(r.Window)/common
	burst = float64(r.Burst)
	switch {
	case burst == 0 && delays(r):
		burst = float64(patience(r))*l/w + 1
	case burst == 0:
		burst = float64(r.Limit)
	}
	return burst, l, w
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// drawMixed draws 1 to 8 rules of any algorithm that are decided together.
func drawMixed(t *rapid.T) []oracle.Rule {
	names := rapid.SliceOfN(rapid.SampledFrom(everyAlgorithm), 1, 8).Draw(t, "algorithms")
	var drawn []oracle.Rule
	turn := int64(0)
	for _, name := range names {
		drawn = append(drawn, drawRule(t, name))
		turn = max(turn, patience(drawn[len(drawn)-1]))
	}
	return fitting(drawn, turn)
}

// drawQueues draws leaky buckets of similar rates that delay together, so that each of
// them sometimes determines the delay.
func drawQueues(t *rapid.T) []oracle.Rule {
	var drawn []oracle.Rule
	turn := int64(0)
	for range rapid.IntRange(2, 4).Draw(t, "queues") {
		r := oracle.Rule{Algorithm: "leaky_bucket"}
		r.Limit, r.Window = rapid.Int64Range(1, 20).Draw(t, "limit"), rapid.Int64Range(1, 60).Draw(t, "window")
		drawQueue(t, &r)
		drawn = append(drawn, r)
		turn = max(turn, patience(r))
	}
	return fitting(drawn, turn)
}

// fitting omits the queues that the delay of a much slower one would take out of the
// arithmetic's range.
func fitting(drawn []oracle.Rule, turn int64) []oracle.Rule {
	var rules []oracle.Rule
	for _, r := range drawn {
		if !delays(r) || countable(r, turn) {
			rules = append(rules, r)
		}
	}
	if rules == nil {
		return drawn[:1]
	}
	return rules
}
