package exact_test

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// varyingAlgorithms are those whose limit may come from the request.
var varyingAlgorithms = []string{"gcra", "token_bucket", "leaky_bucket", "fixed_window", "sliding_window"}

// TestLimitsOfRequests changes the limit from request to request, as limit_from does: no
// window admits more than the bound of the greatest limit and capacity that admitted, or of a meter
// the greatest limit that was asked under, and of an
// algorithm with windows each number is the oracle's. TestChangedMeters compares those of
// meters.
func TestLimitsOfRequests(t *testing.T) {
	t.Parallel()
	found, sent := make(worsts), 0
	for want := operations(t) / 4; sent < want; {
		rapid.Check(t, func(t *rapid.T) {
			v := newVarying(t)
			sent += v.run(t, func(event) {})
			found.see("varying", v.admitted.most, v.bound(), v.greatest())
		})
	}
	t.Logf("%d requests; the worst windows, of the bound: %+v", sent, found)
}

// TestLimitsOfRequestsInRedis runs the same traces on both stores, the local table and the
// script on a real Redis: all numbers are those of the arithmetic.
func TestLimitsOfRequestsInRedis(t *testing.T) {
	all, sent := newSites(t), 0
	for want := operations(t) / 20; sent < want; {
		rapid.Check(t, func(t *rapid.T) {
			v := newVarying(t)
			v.tr.now = 1_700_000_000 * second
			counters := v.counters("varying" + strconv.Itoa(all.zones))
			all.zones++
			sent += v.run(t, func(e event) {
				c := counters[v.version]
				for name, s := range map[string]struct {
					stores.Store
					mode stores.Mode
				}{"redis": {all.shared, stores.ModeShared}, "local": {all.local, stores.ModeLocal}} {
					all.now.Store(e.now)
					if err := all.set(e.now); err != nil {
						t.Fatalf("%v", err)
					}
					admit, got := decideIn(t, s, s.mode, c, e)
					if admit != (v.admit && !e.peek) || !slices.Equal(got, v.verdicts) {
						t.Fatalf("%s and go differ on the last request, limit %d:\n%s %v %+v\ngo    %v %+v%v",
							name, v.versions[v.version].Limit, name, admit, got, v.admit, v.verdicts, v.tr)
					}
				}
			})
		})
	}
	t.Logf("%d requests", sent)
}

// varying is a key whose requests bring limits.
type varying struct {
	*key
	versions []oracle.Rule
	compiled []algorithms.Rule
	windows  *oracle.Limiter // nil: a meter
	tr       *trace
	admitted span

	version  int // of the last request
	verdicts []oracle.Verdict
	admit    bool

	asked           int64 // the greatest limit of a meter, which drains at it from then on
	limit, capacity int64 // the greatest that admitted
}

// newVarying draws limits of a rule.
func newVarying(t *rapid.T) *varying {
	base := drawRule(t, rapid.SampledFrom(varyingAlgorithms).Draw(t, "algorithm"))
	if delays(base) {
		base.Burst = 0 // which could be out of reach of the wait under another limit
	}
	v := &varying{admitted: span{length: base.Window}}
	for range rapid.IntRange(2, 6).Draw(t, "limits") {
		r := base
		if r.Limit = limit(1<<20).Draw(t, "limit"); !countable(r, patience(r)) {
			continue
		}
		sp := spec(r)
		sp.MaxTurn = patience(r)
		if rule, err := algorithm(r).Compile(sp); err == nil {
			v.versions, v.compiled = append(v.versions, r), append(v.compiled, rule)
		}
	}
	if v.versions == nil { // drawRule returns one that compiles
		rules, err := compile([]oracle.Rule{base})
		if err != nil {
			t.Fatalf("%+v: %v", base, err)
		}
		v.versions, v.compiled = []oracle.Rule{base}, rules
	}
	v.key = newKey(t, v.compiled[:1])
	v.follows = true
	v.tr = newTrace(beginning(t), []oracle.Rule{v.versions[0]}, v.compiled[:1])
	if base.Algorithm == "fixed_window" || base.Algorithm == "sliding_window" {
		v.windows = oracle.New(v.versions[0])
	}
	return v
}

// run sends requests, each with a limit, and calls also after each.
func (v *varying) run(t *rapid.T, also func(event)) (sent int) {
	kinds, sizes := requests(t)
	for i := range kinds {
		if kinds[i] == 0 {
			continue
		}
		v.version = int(kinds[i]>>8+sizes[i]>>5) % len(v.versions)
		v.rules = []algorithms.Rule{v.compiled[v.version]}
		v.tr.rules[0], v.tr.most[0] = v.versions[v.version], v.rules[0].Capacity()
		e := v.tr.next(kinds[i]&255, sizes[i])
		v.decideOne(e)
		v.tr.done(e, v.admit, v.verdicts)
		v.compare(e)
		also(e)
		sent++
		if v.admitted.most > v.bound() {
			t.Fatalf("admitted %d in one window, more than %d%v", v.admitted.most, v.bound(), v.tr)
		}
	}
	return sent
}

func (v *varying) decideOne(e event) {
	if v.windows == nil {
		v.asked = max(v.asked, v.versions[v.version].Limit)
	}
	if e.peek {
		v.verdicts = v.peek(e.now, e.cost)
		v.admit = v.verdicts[0].Admit
		return
	}
	if v.admit, v.verdicts = v.decide(e.now, e.cost); v.admit {
		v.limit = max(v.limit, v.versions[v.version].Limit)
		v.capacity = max(v.capacity, v.rules[0].Capacity())
		v.admitted.add(e.now, e.cost)
	}
}

// compare compares the last verdict with the oracle's.
func (v *varying) compare(e event) {
	if v.windows == nil {
		return
	}
	v.windows.SetLimit(v.versions[v.version].Limit)
	_, want := apply(v.windows.Decide, v.windows.Peek, e)
	// The oracle looks for when the whole limit is left; that of a lower limit comes later.
	for i := range want {
		want[i].ResetAfter = v.verdicts[i].ResetAfter
	}
	if !slices.Equal(v.verdicts, want) {
		v.t.Fatalf("limit %d at %d, cost %d: %+v, want %+v%v", v.versions[v.version].Limit, e.now, e.cost, v.verdicts, want, v.tr)
	}
}

// greatest is the rule with the greatest limit that admitted.
func (v *varying) greatest() oracle.Rule {
	r := v.versions[0]
	r.Limit = v.limit
	return r
}

// bound is the bound of the greatest limit and capacity that admitted.
func (v *varying) bound() int64 {
	if v.windows != nil {
		return max(0, bound(v.greatest(), nil)) // 0: nothing was admitted
	}
	return v.asked + v.capacity
}

// counters are counters of one zone, one for each limit, that count in one table.
func (v *varying) counters(zone string) (all []*stores.Counter) {
	table := memory.NewTable(v.compiled[:1], 100)
	for i, r := range v.versions {
		rules := v.compiled[i : i+1]
		c := &stores.Counter{Terms: stores.Terms{Zone: zone, Kinds: "varying", Algorithms: []algorithms.Algorithm{algorithm(r)}, Table: table}, Rules: rules, Split: func(int64) []algorithms.Rule { return rules }}
		all = append(all, c)
		c.Base = all[0]
	}
	return all
}
