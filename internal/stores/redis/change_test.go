package redis

import (
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// version is one version of a rule of a zone, and what it is charged.
type version struct {
	alg   algorithms.Algorithm
	limit int64 // per minute
	cost  int64
	debt  int64 // charged after the response; -1: the zone does not settle
}

func (v version) counter(t *testing.T, name string, table stores.Table) *stores.Counter {
	t.Helper()
	sp := algorithms.Spec{Limit: v.limit, Window: 60_000_000, Cost: 1, Overdraws: v.debt >= 0, MaxTurn: 20_000_000}
	return kit.NewTestCounter(t, name, 0, false, table, storekit.RuleSpec{Alg: v.alg, Spec: sp})
}

// TestRetryAfterChange fills a zone, changes its rule, and denies. In both stores the
// request passes after its retry, and not a microsecond before: what was used drains at the limit
// under which it was charged, until the next charge or the first request under a higher limit. The
// key is unused after its reset, and not a microsecond before.
func TestRetryAfterChange(t *testing.T) {
	w := newBothStores(t)
	step := caddy.Duration(3 * time.Second / 4)
	for name, c := range map[string]struct {
		before, after version
		retry, reset  int64 // in microseconds, half a second after the charge
	}{
		"lowered limit":            {version{&algorithms.GCRA{}, 60, 60, -1}, version{&algorithms.GCRA{}, 6, 1, -1}, 54_500_000, 59_500_000},
		"lowered burst":            {version{&algorithms.GCRA{Burst: 60}, 60, 60, -1}, version{&algorithms.GCRA{Burst: 6}, 60, 1, -1}, 54_500_000, 59_500_000},
		"lowered both":             {version{&algorithms.TokenBucket{Burst: 90}, 60, 90, -1}, version{&algorithms.TokenBucket{Burst: 6}, 20, 2, -1}, 85_500_000, 89_500_000},
		"another rate":             {version{&algorithms.GCRA{}, 70, 70, -1}, version{&algorithms.GCRA{}, 7, 1, -1}, 54_357_143, 59_500_000},
		"raised limit":             {version{&algorithms.GCRA{}, 6, 6, -1}, version{&algorithms.GCRA{Burst: 6}, 60, 1, -1}, 950_001, 5_950_001},
		"raised limit of a bucket": {version{&algorithms.TokenBucket{}, 6, 6, -1}, version{&algorithms.TokenBucket{Burst: 6}, 60, 1, -1}, 950_001, 5_950_001},
		"raised limit, in steps":   {version{&algorithms.TokenBucket{Step: step}, 6, 6, -1}, version{&algorithms.TokenBucket{Burst: 6, Step: step}, 60, 1, -1}, 900_000, 5_400_000},
		"raised limit of a queue":  {version{&algorithms.LeakyBucket{Burst: 3}, 6, 3, -1}, version{&algorithms.LeakyBucket{Burst: 3}, 60, 1, -1}, 950_001, 2_950_001},
		"raised, lowered burst":    {version{&algorithms.GCRA{}, 6, 6, -1}, version{&algorithms.GCRA{Burst: 2}, 60, 1, -1}, 4_950_001, 5_950_001},
		"raised burst":             {version{&algorithms.GCRA{Burst: 6}, 6, 6, -1}, version{&algorithms.GCRA{Burst: 9}, 6, 4, -1}, 9_500_000, 59_500_000},
		"lowered limit, in steps":  {version{&algorithms.TokenBucket{Step: step}, 60, 60, -1}, version{&algorithms.TokenBucket{Step: step}, 6, 1, -1}, 54_900_000, 59_400_000},
		"lowered burst, in steps":  {version{&algorithms.TokenBucket{Burst: 60, Step: step}, 60, 60, -1}, version{&algorithms.TokenBucket{Burst: 6, Step: step}, 60, 1, -1}, 54_900_000, 59_400_000},
		"lowered limit of a queue": {version{&algorithms.LeakyBucket{Burst: 30}, 60, 30, -1}, version{&algorithms.LeakyBucket{Burst: 3}, 6, 1, -1}, 27_500_000, 29_500_000},
		"a debt":                   {version{&algorithms.GCRA{}, 60, 1, 100}, version{&algorithms.GCRA{}, 60, 1, -1}, 41_500_000, 100_500_000},
		"a debt, raised limit":     {version{&algorithms.GCRA{}, 6, 1, 100}, version{&algorithms.GCRA{Burst: 6}, 60, 1, -1}, 95_950_001, 100_950_001},
		"a debt, lowered limit":    {version{&algorithms.GCRA{}, 60, 1, 100}, version{&algorithms.GCRA{}, 6, 1, -1}, 95_500_000, 100_500_000},
		"a debt, lowered burst":    {version{&algorithms.TokenBucket{}, 60, 1, 100}, version{&algorithms.TokenBucket{Burst: 3}, 60, 1, -1}, 98_500_000, 100_500_000},
	} {
		before := c.before.counter(t, name, nil)
		after := c.after.counter(t, name, before.Table)
		if check := w.decide(100.1, c.before.cost, before); c.before.debt > 0 {
			w.finish(&check.Zones[0], c.before.debt)
		}
		denied := w.decide(100.6, c.after.cost, after).Zones[0].Results[0]
		if denied.Admit || denied.Retry != c.retry || denied.Reset != c.reset {
			t.Errorf("%s: %+v reset %d, want a denial for %d, reset %d", name, denied.Verdict, denied.Reset, c.retry, c.reset)
		}
		if w.decide(100.6+(float64(c.reset)-1.5)/1e6, 1000, after).Zones[0].Results[0].Reset == 0 {
			t.Errorf("%s: unused a microsecond before its reset", name)
		}
		if res := w.decide(100.6+(float64(c.reset)+0.5)/1e6, 1000, after).Zones[0].Results[0]; res.Reset != 0 {
			t.Errorf("%s: %d are left after its reset", name, res.Reset)
		}
		if w.decide(100.6+(float64(c.retry)-0.5)/1e6, c.after.cost, after).Admitted {
			t.Errorf("%s: admitted a microsecond before its retry", name)
		}
		if !w.decide(100.6+(float64(c.retry)+0.5)/1e6, c.after.cost, after).Admitted {
			t.Errorf("%s: denied after its retry", name)
		}
	}
}

// TestDebtOutlivesSettle charges a debt, which handlers of the same zone that do not settle
// then look at, charge and look at again: none takes it for a step of the clock.
func TestDebtOutlivesSettle(t *testing.T) {
	w := newBothStores(t)
	for name, alg := range map[string]algorithms.Algorithm{
		"gcra": &algorithms.GCRA{Burst: 10}, "token_bucket": &algorithms.TokenBucket{}, "step": &algorithms.TokenBucket{Step: caddy.Duration(time.Second)},
		"leaky_bucket": &algorithms.LeakyBucket{NoDelay: true}, "fixed_window": &algorithms.FixedWindow{},
		"sliding_window": &algorithms.SlidingWindow{}, "sliding_log": &algorithms.SlidingLog{},
	} {
		settles := version{alg, 20, 1, 1}.counter(t, name, nil)
		plain := version{alg, 20, 1, -1}.counter(t, name, settles.Table)
		check := w.decide(100, 1, settles)
		w.finish(&check.Zones[0], 1000)
		owed := w.decide(100, 1, settles).Zones[0].Results[0]
		for range 2 {
			got := w.decide(100, 1, plain).Zones[0].Results[0]
			if got.Verdict != owed.Verdict || got.Reset != owed.Reset {
				t.Errorf("%s: %+v reset %d, under settle %+v reset %d", name, got.Verdict, got.Reset, owed.Verdict, owed.Reset)
			}
			z := &storekit.CheckOf(1, plain).Zones[0]
			z.Rules, z.Charged, z.Results = plain.Rules, true, make([]stores.Result, 1)
			if name != "sliding_log" { // which takes up to its limit with each charge
				w.finish(z, 1)
			}
			if _, meter := plain.Rules[0].(algorithms.Refilling); meter { // it owes this, too: one of 20 a minute
				owed.Retry, owed.Reset = owed.Retry+3_000_000, owed.Reset+3_000_000
			}
		}
	}
}

// TestTurnOutlivesItsQueue charges a queue as of the turn of a slower one, further ahead
// than its own burst. A handler of the same zone without the slower queue, or without
// delays, does not take that for a step of the clock.
func TestTurnOutlivesItsQueue(t *testing.T) {
	w := newBothStores(t)
	queue := &algorithms.LeakyBucket{Burst: 3}
	rules := func(name string, alg algorithms.Algorithm, turn int64, table stores.Table) *stores.Counter {
		return kit.NewTestCounter(t, name, 0, false, table, storekit.RuleSpec{Alg: alg, Spec: algorithms.Spec{Limit: 60, Window: 60_000_000, Cost: 1, MaxTurn: turn}})
	}
	slow := version{&algorithms.LeakyBucket{Burst: 3}, 6, 1, -1}.counter(t, "slow", nil)
	quick := rules("quick", queue, 20_000_000, nil)
	w.decide(100, 1, slow)
	if check := w.decide(100, 1, slow, quick); check.Turn != 10_000_000 {
		t.Fatalf("turn %d, want 10 s", check.Turn)
	}
	for _, c := range []*stores.Counter{rules("quick", queue, 0, quick.Table), rules("quick", &algorithms.LeakyBucket{Burst: 3, NoDelay: true}, 0, quick.Table)} {
		if res := w.decide(101, 1, c).Zones[0].Results[0]; res.Admit || res.Reset != 10_000_000 {
			t.Errorf("%+v reset %d, want a denial and 10 s", res.Verdict, res.Reset)
		}
	}
}

// TestClockStepInDebt sets the clock back by an hour while a key is in debt, and after
// the debt has drained. The key is then denied for one full bucket.
func TestClockStepInDebt(t *testing.T) {
	w := newBothStores(t)
	for name, c := range map[string]struct {
		charge int64
		later  float64
	}{"in debt": {100, 1}, "drained": {100, 80}, "no debt": {5, 1}} {
		counter := version{&algorithms.GCRA{}, 60, 1, 1}.counter(t, name, nil)
		w.finish(&w.decide(7200, 1, counter).Zones[0], c.charge)
		w.decide(7200+c.later, 60, counter)
		if res := w.decide(3600+c.later, 1, counter).Zones[0].Results[0]; res.Admit || res.Reset != 60_000_000 {
			t.Errorf("%s: %+v reset %d, want a denial and a full bucket of 60 s", name, res.Verdict, res.Reset)
		}
	}
}
