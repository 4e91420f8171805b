package exact_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// TestHeldAgainstTheOracle runs random traces of requests that hold their cost until they end,
// in any order, and are charged then less than they held, or as much, or more, on the oracle, the
// local table, and the script on a real Redis with virtual time.
func TestHeldAgainstTheOracle(t *testing.T) {
	all := newSites(t)
	var sum heldTotals
	for want := operations(t) / 5; sum.verdicts < want; {
		rapid.Check(t, func(t *rapid.T) {
			h := newHolding(t, all)
			kinds, sizes := requests(t)
			ends := rapid.SliceOfN(rapid.IntRange(0, 60), len(kinds), len(kinds)).Draw(t, "ends")
			for i := range kinds {
				if kinds[i] == 0 {
					continue
				}
				for range ends[i] % 4 {
					h.end(ends[i], sizes[i], &sum)
				}
				h.begin(kinds[i], sizes[i], &sum)
			}
			for len(h.open) > 0 {
				h.end(0, 0, &sum)
			}
		})
	}
	t.Logf("compared %d verdicts of oracle, local store and Redis on %d requests, of which %d were admitted, %d denied by holds alone, and %d charged more than they held",
		sum.verdicts, sum.requests, sum.admitted, sum.byHolds, sum.beyond)
	if sum.byHolds < sum.requests/100 || sum.beyond < sum.requests/100 {
		t.Error("the traces show little")
	}
}

type heldTotals struct{ verdicts, requests, admitted, byHolds, beyond int }

// holding is a key whose requests hold their cost.
type holding struct {
	t        *rapid.T
	sites    *sites
	want     *oracle.Held
	tr       *trace
	now      int64
	written  int64 // when the instance last told Redis what it holds
	open     []openRequest
	counters map[string]*stores.Counter // by store
}

// openRequest is a request that holds its cost.
type openRequest struct {
	cost  int64
	zones map[string]*stores.ZoneCheck // by store
}

func newHolding(t *rapid.T, all *sites) *holding {
	rules := slices.DeleteFunc(drawMixed(t), delays)
	if len(rules) == 0 {
		rules = []oracle.Rule{drawRule(t, "sliding_window")}
	}
	compiled, err := compile(rules)
	if err != nil {
		t.Fatalf("%v", err)
	}
	h := &holding{t: t, sites: all, want: oracle.NewHeld(rules...), counters: make(map[string]*stores.Counter)}
	h.tr = newTrace(rapid.Int64Range(1_700_000_000*second, 1<<51).Draw(t, "beginning"), rules, compiled)
	h.now = h.tr.now
	all.zones++
	for _, store := range []string{"redis", "local"} {
		c := counterOf("h"+strconv.Itoa(all.zones), rules, compiled)
		c.Table, c.HoldCost = memory.NewTable(compiled, 100), true
		h.counters[store] = c
	}
	return h
}

func (h *holding) stores() map[string]stores.Store {
	return map[string]stores.Store{"redis": h.sites.shared, "local": h.sites.local}
}

// set sets the clocks.
func (h *holding) set(now int64) {
	h.now = now
	h.sites.now.Store(now)
	if err := h.sites.set(now); err != nil {
		h.t.Fatalf("%v", err)
	}
}

// begin begins the next request of the trace.
func (h *holding) begin(kind, size int64, sum *heldTotals) {
	e := h.tr.next(kind, size)
	for e.now-h.written > 20*second && len(h.open) > 0 { // nobody renews it in virtual time
		h.end(0, size, sum)
	}
	h.set(e.now)
	admit, want := h.want.Begin(e.now, e.cost)
	begun := openRequest{e.cost, make(map[string]*stores.ZoneCheck)}
	for name, s := range h.stores() {
		h.sites.shared.ResetLocal(nil, stores.Key{}) // every check reaches Redis
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: h.counters[name], Subject: stores.Subject{Key: blockedKey, Tag: blockedKey}, Cost: e.cost}}}
		s.Decide(context.Background(), check)
		z := &check.Zones[0]
		var got []oracle.HeldVerdict
		for _, r := range z.Results {
			got = append(got, oracle.HeldVerdict{Admit: r.Admit, Held: r.Held, Remaining: r.Remaining, ResetAfter: r.Reset})
		}
		if check.Admitted != admit || !slices.Equal(got, want) {
			h.t.Fatalf("%s and oracle differ on the last request, beside %d others, at %d of cost %d:\n%s %v %+v\noracle %v %+v%v",
				name, len(h.open), e.now, e.cost, name, check.Admitted, got, admit, want, h.tr)
		}
		begun.zones[name] = z
	}
	if admit {
		h.open, h.written = append(h.open, begun), e.now
		sum.admitted++
	}
	verdicts := make([]oracle.Verdict, len(want))
	for i, v := range want {
		verdicts[i] = oracle.Verdict{Admit: v.Admit, Remaining: v.Remaining, ResetAfter: v.ResetAfter}
	}
	h.tr.done(e, admit, verdicts)
	sum.requests++
	sum.verdicts += len(want)
	if slices.ContainsFunc(want, func(v oracle.HeldVerdict) bool { return v.Held }) {
		sum.byHolds++
	}
}

// end ends one of the requests under way, and charges what size says.
func (h *holding) end(which int, size int64, sum *heldTotals) {
	if len(h.open) == 0 {
		return
	}
	i := which % len(h.open)
	q := h.open[i]
	h.open = slices.Delete(h.open, i, i+1)
	charge := q.cost
	switch size % 4 {
	case 0:
		charge = 0
	case 1:
		charge = 1 + size%q.cost
	case 2:
		charge += 1 + size%(2*slices.Min(h.tr.most))
	}
	charge = min(charge, h.want.Room(h.now))
	if charge > q.cost {
		sum.beyond++
	}
	h.set(h.now)
	h.want.End(h.now, q.cost, charge)
	h.written = h.now
	for name, s := range h.stores() {
		s.Finish(context.Background(), q.zones[name], charge)
	}
}
