package memory

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// unpaired hides that a rule's states can be paired, so that a table stores all
// words.
type unpaired struct{ algorithms.Rule }

// packedPair makes the same checks in a table with paired states and in one that
// stores all words.
type packedPair struct {
	*testing.T
	r          *rand.Rand
	now        int64
	counters   [2]*stores.Counter
	open       [][2]*stores.Check
	overflowed int // checks of shared counters
}

// versions returns random versions of the rules of a zone, all of the same kinds.
func versions(t *testing.T, r *rand.Rand) (all [][]algorithms.Rule) {
	compile := func(a algorithms.Algorithm, limit, window int64, share int64) algorithms.Rule {
		rule, err := a.Compile(algorithms.Spec{Limit: limit, Window: window, Cost: 1, Debt: true, ShareOf: share})
		if err != nil {
			t.Fatal(err)
		}
		return rule
	}
	for range 12 {
		limit := 1 + r.Int64N(40)
		share := int64(1_000_000 + r.IntN(2)*r.IntN(3_000_000))
		all = append(all, []algorithms.Rule{
			compile(&algorithms.GCRA{Burst: r.Int64N(20)}, limit, 1_000_000, share),
			compile(&algorithms.SlidingWindow{Buckets: 4}, limit+5, 700_000, share),
			compile(&algorithms.TokenBucket{Burst: 1 + r.Int64N(1<<20)}, 1+r.Int64N(1<<31), 999_983, share),
			compile(&algorithms.SlidingLog{}, limit+9, 500_000, share),
			compile(&algorithms.LeakyBucket{Burst: 30, NoDelay: true}, limit, 3_000_017, share),
		})
	}
	return all
}

// setRules changes the rules of both counters.
func (w *packedPair) setRules(rules []algorithms.Rule) {
	for _, c := range w.counters {
		c.Rules = rules
	}
}

// decide makes a random check in both tables.
func (w *packedPair) decide() {
	k, cost, reserve := w.r.Uint64N(150), 1+w.r.Int64N(3), w.r.IntN(5) == 0
	var pair [2]*stores.Check
	for i, c := range w.counters {
		check := storestest.CheckOfKey(c, k)
		check.Zones[0].Cost, check.Zones[0].Reserve = cost, reserve
		(&Store{Clock: func() int64 { return w.now }}).Decide(context.Background(), check)
		pair[i] = check
	}
	w.compare("check", pair)
	if pair[0].Zones[0].Overflowed {
		w.overflowed++
	}
	if pair[0].Zones[0].Charged {
		w.open = append(w.open, pair)
	}
}

// finish releases what an open check holds, or charges it after the response.
func (w *packedPair) finish() {
	if len(w.open) == 0 {
		return
	}
	i := w.r.IntN(len(w.open))
	pair, charge := w.open[i], w.r.Int64N(4)
	w.open = slices.Delete(w.open, i, i+1)
	for _, check := range pair {
		(&Store{Clock: func() int64 { return w.now }}).Finish(context.Background(), &check.Zones[0], charge)
	}
	w.compare("finish", pair)
}

// compare fails the test if the results of the tables differ.
func (w *packedPair) compare(what string, pair [2]*stores.Check) {
	w.Helper()
	x, y := &pair[0].Zones[0], &pair[1].Zones[0]
	if pair[0].Admitted != pair[1].Admitted || x.Charged != y.Charged || x.Full != y.Full || x.Overflowed != y.Overflowed {
		w.Fatalf("%s of %v: packed %+v, whole %+v", what, x.Key, x, y)
	}
	for i := range x.Results {
		p, q := x.Results[i], y.Results[i]
		if p.Verdict != q.Verdict || p.Remaining != q.Remaining || p.Reset != q.Reset {
			w.Fatalf("%s of %v, rule %d: packed %+v, whole %+v", what, x.Key, i, p, q)
		}
	}
}

// compareStates compares the states in both tables, and counts the uses of each
// pair.
func (w *packedPair) compareStates() {
	p, q := TableOf(w.counters[0]), TableOf(w.counters[1])
	for i := range p.shards {
		s, other := &p.shards[i], &q.shards[i]
		uses := make([]int, len(s.states.pairs.list))
		compare := func(what string, a, b []int64) {
			if (a == nil) != (b == nil) {
				w.Fatalf("%s: packed %v, whole %v", what, a, b)
			}
			if a == nil {
				return
			}
			for rule := range p.rules {
				x := s.states.at(&p.layout, a, rule)
				if y := other.states.at(&q.layout, b, rule); !slices.Equal(x, y) {
					w.Fatalf("%s, rule %d: packed %v, whole %v", what, rule, x, y)
				}
				if l := p.layout.rules[rule]; l.paired {
					if id := uint64(a[l.at+1]) >> 32; id > 0 {
						uses[id]++
					}
				}
			}
		}
		for n := range s.next {
			if k := p.keyOf(s.pages.nth(n)); k != (stores.Key{}) {
				compare("key", p.slots.at(s.pages.nth(n)), q.find(other, k, q.mix(k)))
			}
		}
		for g := range s.overflow.counters {
			compare("shared counter", s.overflow.counters[g], other.overflow.counters[g])
		}
		for id, pair := range s.states.pairs.list {
			if pair.uses != uses[id] {
				w.Fatalf("pair %v: %d uses, want %d", pair.words, pair.uses, uses[id])
			}
		}
	}
}

// TestPackedStates makes the same checks in a table with paired states and in
// one that stores all words, with changes of the rules, floods, evictions,
// shared counters, permits, debts, resets and clock steps.
func TestPackedStates(t *testing.T) {
	r := storestest.Seeded(t)
	all := versions(t, r)
	t.Run("five rules", func(t *testing.T) { testPacked(t, r, all) })
	for i := range all {
		all[i] = all[i][:1] // decided with a single lookup
	}
	t.Run("one rule", func(t *testing.T) { testPacked(t, r, all) })
}

func testPacked(t *testing.T, r *rand.Rand, all [][]algorithms.Rule) {
	w := &packedPair{T: t, r: r, now: storestest.Hour}
	var whole []algorithms.Rule
	for _, rule := range all[0] {
		if _, ok := rule.(algorithms.Paired); ok {
			rule = unpaired{rule}
		}
		whole = append(whole, rule)
	}
	for i, rules := range [][]algorithms.Rule{all[0], whole} {
		w.counters[i] = &stores.Counter{Zone: "z", Rules: all[0], InFlight: 5, Table: NewTable(rules, 60)}
	}
	p, q := TableOf(w.counters[0]), TableOf(w.counters[1])
	if !p.layout.paired || q.layout.paired || p.layout.stride >= q.layout.stride {
		t.Fatalf("strides %d and %d: want the packed one shorter", p.layout.stride, q.layout.stride)
	}
	q.seed = p.seed
	for i := range 60_000 {
		switch w.r.IntN(40) {
		case 0:
			w.setRules(all[r.IntN(len(all))])
		case 1:
			w.now += r.Int64N(2_000_000)
		case 2:
			w.now -= min(w.now, r.Int64N(50_000))
		case 3:
			k := r.Uint64N(150)
			for _, c := range w.counters {
				c.Reset(stores.Key{Hi: k, Lo: k*31 + 1})
			}
		case 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15:
			w.finish()
		default:
			w.now += r.Int64N(5000)
			w.decide()
		}
		if i%500 == 0 {
			w.compareStates()
		}
	}
	w.compareStates()
	if w.overflowed == 0 || p.Keys() == 0 || p.Keys() != q.Keys() {
		t.Errorf("%d checks of shared counters, %d and %d keys: want more than 0, and as many keys in both tables", w.overflowed, p.Keys(), q.Keys())
	}
}

// TestZonesOfOneShard charges two keys of one shard in one check and in separate
// checks: the lookup of one is not reused for the other.
func TestZonesOfOneShard(t *testing.T) {
	now := int64(storestest.Hour)
	local := &Store{Clock: func() int64 { return now }}
	for name, rule := range map[string]algorithms.Algorithm{
		"gcra": &algorithms.GCRA{}, "fixed_window": &algorithms.FixedWindow{}, "sliding_log": &algorithms.SlidingLog{},
	} {
		t.Run(name, func(t *testing.T) {
			c := storestest.NewTestCounter(t, "z", 0, false, nil, storestest.RuleSpec{Alg: rule, Spec: algorithms.Spec{Limit: 100, Window: storestest.Hour, Cost: 1}})
			c.Table = NewTable(c.Rules, 100)
			left := []int64{100, 100}
			for range 10 {
				check := storestest.CheckOfKey(c, 1)
				check.Zones = append(check.Zones, storestest.CheckOfKey(c, 2).Zones[0])
				for i, cost := range []int64{2, 3} {
					check.Zones[i].Cost = cost
					left[i] -= cost
				}
				local.Decide(context.Background(), check)
				single := storestest.CheckOfKey(c, 2)
				local.Decide(context.Background(), single)
				left[1]--
				for i, got := range []int64{check.Zones[0].Results[0].Remaining, single.Zones[0].Results[0].Remaining} {
					if got != left[i] {
						t.Fatalf("key %d: remaining %d, want %d", i+1, got, left[i])
					}
				}
			}
		})
	}
}

// TestSlotsDoNotOverlap checks that no two slots share memory, and that the chunks
// have no gaps.
func TestSlotsDoNotOverlap(t *testing.T) {
	for _, stride := range []int{2, 4, 14, 1009, 200_000} {
		var m slots
		m.init(stride)
		chunk, at := -1, uint32(0)
		for n := range uint32(300_000) {
			c, i := m.where(n)
			if c == chunk && i == at+1 || c == chunk+1 && i == 0 {
				chunk, at = c, i
				continue
			}
			t.Fatalf("stride %d: slot %d in chunk %d at %d, after chunk %d at %d", stride, n, c, i, chunk, at)
		}
	}
	var m slots
	m.init(4)
	for page := range uint32(3000) {
		if got := m.page(); got != page {
			t.Fatalf("page %d, want %d", got, page)
		}
		for i := range uint32(pageSlots) {
			slot := m.at(page*pageSlots + i)
			if slot[0] != 0 {
				t.Fatalf("slot %d of page %d was allocated before", i, page)
			}
			slot[0] = 1
		}
	}
}
