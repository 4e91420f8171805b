package exact_test

import (
	"testing"

	"github.com/dianalimiter/diana/test/exact/oracle"
)

// visit is one request of a timeline and its expected verdict: what remains in the
// first rule, and the retry of the denying rules.
type visit struct {
	t, cost   int64
	admit     bool
	remaining int64
	retry     int64
}

// TestTimelines checks for known bugs of other rate limiters.
func TestTimelines(t *testing.T) {
	for _, c := range []struct {
		name   string
		rules  []oracle.Rule
		visits []visit
	}{
		// A TTL in milliseconds rounded down to zero.
		{
			"a state with a TTL below one millisecond counts until its end",
			[]oracle.Rule{{Algorithm: "gcra", Limit: 5000, Window: second, Burst: 1}},
			[]visit{{0, 1, true, 0, 0}, {0, 1, false, 0, 200}, {199, 1, false, 0, 1}, {200, 1, true, 0, 0}, {399, 1, false, 0, 1}},
		},

		// The count is compared with the limit without the request's cost.
		{
			"a fixed window includes the request's cost",
			[]oracle.Rule{{Algorithm: "fixed_window", Limit: 10, Window: 100}},
			[]visit{{0, 8, true, 2, 0}, {1, 3, false, 2, 99}, {2, 2, true, 0, 0}, {3, 1, false, 0, 97}, {100, 10, true, 0, 0}},
		},
		{
			"a sliding window includes the request's cost",
			[]oracle.Rule{{Algorithm: "sliding_window", Limit: 10, Window: 100}},
			[]visit{{0, 8, true, 2, 0}, {1, 3, false, 2, 109}, {2, 2, true, 0, 0}, {3, 1, false, 0, 107}, {110, 10, true, 0, 0}},
		},
		{
			"a sliding log includes the request's cost",
			[]oracle.Rule{{Algorithm: "sliding_log", Limit: 10, Window: 100}},
			[]visit{{0, 8, true, 2, 0}, {1, 3, false, 2, 99}, {2, 2, true, 0, 0}, {3, 1, false, 0, 97}, {100, 8, true, 0, 0}, {101, 2, false, 0, 1}},
		},

		// Tokens are denied only when there are none.
		{
			"a token bucket does not go below zero",
			[]oracle.Rule{{Algorithm: "token_bucket", Limit: 10, Window: 1000}},
			[]visit{{0, 9, true, 1, 0}, {0, 2, false, 1, 100}, {0, 1, true, 0, 0}, {99, 1, false, 0, 1}, {100, 2, false, 1, 100}, {100, 1, true, 0, 0}},
		},
		{
			"a cost above the capacity has no retry",
			[]oracle.Rule{{Algorithm: "token_bucket", Limit: 10, Window: 1000}},
			[]visit{{0, 11, false, 10, oracle.Never}, {0, 10, true, 0, 0}, {0, 11, false, 0, oracle.Never}},
		},

		// The rules before the denying rule stay charged.
		{
			"a rule is not charged when a later one denies",
			[]oracle.Rule{{Algorithm: "sliding_log", Limit: 10, Window: 1000}, {Algorithm: "fixed_window", Limit: 1, Window: 100}},
			[]visit{{0, 1, true, 9, 0}, {1, 1, false, 9, 99}, {2, 1, false, 9, 98}, {99, 1, false, 9, 1}, {100, 1, true, 8, 0}},
		},
		{
			"a rule is not charged when an earlier one denies",
			[]oracle.Rule{{Algorithm: "gcra", Limit: 1, Window: 100}, {Algorithm: "fixed_window", Limit: 2, Window: 1000}},
			[]visit{{0, 1, true, 0, 0}, {1, 1, false, 0, 99}, {2, 1, false, 0, 98}, {100, 1, true, 0, 0}, {200, 1, false, 1, 800}},
		},

		// Denied requests are recorded like admitted ones and extend the denial.
		{
			"denied requests do not extend the retry of a log",
			[]oracle.Rule{{Algorithm: "sliding_log", Limit: 2, Window: 100}},
			[]visit{{0, 2, true, 0, 0}, {30, 1, false, 0, 70}, {60, 1, false, 0, 40}, {99, 1, false, 0, 1}, {100, 1, true, 1, 0}},
		},
		{
			"denied requests do not extend the retry of a sliding window",
			[]oracle.Rule{{Algorithm: "sliding_window", Limit: 2, Window: 100}},
			[]visit{{0, 2, true, 0, 0}, {30, 1, false, 0, 80}, {60, 1, false, 0, 50}, {109, 1, false, 0, 1}, {110, 1, true, 1, 0}},
		},
		{
			"denied requests do not extend the retry of a meter",
			[]oracle.Rule{{Algorithm: "gcra", Limit: 2, Window: 100, Burst: 1}},
			[]visit{{0, 1, true, 0, 0}, {10, 1, false, 0, 40}, {30, 1, false, 0, 20}, {49, 1, false, 0, 1}, {50, 1, true, 0, 0}},
		},

		// Times exceed the precision of a double.
		{
			"a microsecond counts in the year 2100, in a window of a month",
			[]oracle.Rule{{Algorithm: "sliding_log", Limit: 3, Window: 30 * day}},
			[]visit{
				{year2100, 1, true, 2, 0},
				{year2100 + 1, 1, true, 1, 0},
				{year2100 + 2, 1, true, 0, 0},
				{year2100 + 30*day - 1, 1, false, 0, 1},
				{year2100 + 30*day, 1, true, 0, 0},
				{year2100 + 30*day, 1, false, 0, 1},
			},
		},
		{
			"a third of a microsecond counts, too, over a month",
			[]oracle.Rule{{Algorithm: "gcra", Limit: 3, Window: 30*day + 1, Burst: 1}},
			[]visit{{year2100, 1, true, 0, 0}, {year2100, 1, false, 0, 10*day + 1}, {year2100 + 10*day, 1, false, 0, 1}, {year2100 + 10*day + 1, 1, true, 0, 0}},
		},

		// The previous window is approximated by a share of its count.
		{
			"the oldest part of a sliding window counts in full until it expires",
			[]oracle.Rule{{Algorithm: "sliding_window", Limit: 100, Window: 100}},
			[]visit{{99, 100, true, 0, 0}, {150, 1, false, 0, 50}, {190, 1, false, 0, 10}, {199, 1, false, 0, 1}, {200, 100, true, 0, 0}},
		},
		{
			"parts that do not divide the window are longer, not shorter",
			[]oracle.Rule{{Algorithm: "sliding_window", Limit: 1, Window: 19, Buckets: 10}},
			[]visit{{0, 1, true, 0, 0}, {18, 1, false, 0, 4}, {19, 1, false, 0, 3}, {21, 1, false, 0, 1}, {22, 1, true, 0, 0}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			compiled, err := compile(c.rules)
			if err != nil {
				t.Fatalf("%v", err)
			}
			t.Run("go", func(t *testing.T) { walk(t, newKey(t, compiled).decide, c.visits) })
			t.Run("oracle", func(t *testing.T) { walk(t, oracle.New(c.rules...).Decide, c.visits) })
		})
	}
}

const year2100 = 4_102_444_800 * second

func walk(t *testing.T, decide func(now, cost int64) (bool, []oracle.Verdict), visits []visit) {
	for _, want := range visits {
		admit, verdicts := decide(want.t, want.cost)
		got := visit{want.t, want.cost, admit, verdicts[0].Remaining, verdicts[0].RetryAfter}
		for _, v := range verdicts {
			if got.retry != oracle.Never && (v.RetryAfter == oracle.Never || v.RetryAfter > got.retry) {
				got.retry = v.RetryAfter
			}
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
