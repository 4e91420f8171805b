package memory

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// knownKey is what handover.go says that an instance keeps of a key.
type knownKey struct {
	told, full, charged, lost, warm bool
	owed                            int64
}

// known returns what there is of a zone's key.
func (n *Snapshots) known(z *stores.ZoneCheck) (k knownKey) {
	p, s := n.lock(z)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	if x := n.find(s, z.Key, p.mix); x != nil {
		k = knownKey{x.has(markTold), x.has(markFull), x.has(markCharged), x.has(markLost), x.has(markWarm), 0}
		if x.owes() {
			k.owed = p.table.find(p.shard, z.Key, p.mix)[slotOwed]
		}
	}
	return k
}

// walker leads a key through events, beside what the table in handover.go says of them.
type walker struct {
	*learner

	now      int64
	is       knownKey
	level    int64 // of the key's state in the table, in units of cost, rounded up
	snapshot int64 // of its snapshot, alike
	underWay []Handover
}

func (w *walker) at() Instant { return Instant{Local: w.now, Shared: w.now, Tolerance: 1_000_000} }

// learnCost learns that cost is used, and how much is left.
func (w *walker) learnCost(cost, left int64) {
	w.z.Results[0].Remaining, w.is.full = left, left < w.z.Cost
	w.learn(w.now, 0, cost*storekit.Hour/100, 100)
	w.is.lost = w.is.lost || w.is.told && cost < w.snapshot
	if !w.is.told {
		w.snapshot = 0
	}
	w.is.told, w.is.charged, w.is.warm, w.snapshot = true, false, false, max(w.snapshot, cost)
}

// putBack learns what Redis reports after the snapshot was put back.
func (w *walker) putBack() {
	w.z.Results[0].State = algorithms.State{w.now + 8*storekit.Hour/100, 0, 100, 100}
	w.n.Learn(w.z, w.at(), true, func() {})
	w.is.full, w.snapshot = w.z.Results[0].Remaining < w.z.Cost, 8
	w.is.told, w.is.charged, w.is.lost, w.is.warm = true, false, false, false
}

// warm prepares the key for being decided without Redis.
func (w *walker) warm() {
	w.n.Warm(w.z, w.at())
	if w.level == 0 {
		w.is.owed = 0
	}
	if w.is.owed == 0 && w.is.told && !w.is.warm {
		w.is.warm, w.level = true, max(w.level, w.snapshot)
	}
}

// charge charges 1 without Redis.
func (w *walker) charge() {
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: w.z.Counter, Subject: stores.Subject{Key: w.z.Key}, Cost: 1, Enforced: stores.Enforced{Rules: w.z.Rules}, Results: make([]stores.Result, 1)}}}
	w.warm()
	(&Store{Clock: func() int64 { return w.now }}).Decide(context.Background(), check)
	w.n.Owe(&check.Zones[0], 1, w.now, w.now)
	w.is.owed++
	w.level++
}

func (w *walker) take(t *testing.T) {
	h, more := w.n.Take(w.z, w.at(), false)
	cost := min(w.is.owed, w.level)
	if told := w.is.told && (w.is.lost || w.is.warm || w.is.owed > 0); h.Cost != cost || (h.Debts != nil) != (cost > 0) || (h.Told != nil) != told || more {
		t.Fatalf("%+v: %+v is handed over, and more %v; want the cost %d and told %v", w.is, h, more, cost, told)
	}
	w.underWay = append(w.underWay, h)
	w.is.lost, w.is.warm, w.is.owed = false, false, 0
}

// end ends the oldest call under way.
func (w *walker) end(ran, rejected bool) {
	if len(w.underWay) == 0 {
		return
	}
	h := w.underWay[0]
	w.underWay = w.underWay[1:]
	w.n.End(w.z, &h, ran, rejected, w.now)
	w.is.lost = w.is.lost || h.lost && !ran && w.is.told
	if rejected && (w.is.owed > 0 || w.level > 0) { // otherwise it was reset meanwhile
		w.is.owed += h.Cost
	}
}

func (w *walker) reset() {
	TableOf(w.z.Counter).Reset(w.z.Key)
	w.is, w.level = knownKey{}, 0
}

func (w *walker) forget() {
	w.n.Forget(w.z.Key)
	w.is = knownKey{owed: w.is.owed}
}

// TestStatesOfAKey leads a key through all sequences of five events, so that each meets it in every state.
// It is then in the state that the table in handover.go says.
func TestStatesOfAKey(t *testing.T) {
	events := []struct {
		name string
		do   func(*walker)
	}{
		{"learns more", func(w *walker) { w.learnCost(8, 0) }},
		{"learns less", func(w *walker) { w.learnCost(2, 1) }},
		{"is to be asked for", func(w *walker) { w.n.Ask(w.z.Key, w.now); w.is.charged = w.is.told }},
		{"is put back", (*walker).putBack},
		{"is denied alone", (*walker).warm},
		{"is charged alone", (*walker).charge},
		{"is taken", func(w *walker) { w.take(t) }},
		{"is answered", func(w *walker) { w.end(true, false) }},
		{"is rejected", func(w *walker) { w.end(false, true) }},
		{"is not answered", func(w *walker) { w.end(false, false) }},
		{"is refused", (*walker).forget},
		{"is reset", (*walker).reset},
	}
	const length = 5
	all, seen := 1, make(map[knownKey]int) // for each state, the events that it has met
	for range length {
		all *= len(events)
	}
	spec := storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1}}
	c := kit.NewTestCounter(t, "z", 0, false, nil, spec)
	c.Table = NewTable(c.Rules, 1_000_000)
	for n := range all {
		z := &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: stores.Key{Hi: uint64(n), Lo: 1}}, Cost: 1, Enforced: stores.Enforced{Rules: c.Rules}, Results: make([]stores.Result, 1)}
		w, did := &walker{learner: &learner{z, TableOf(c).Snapshots()}, now: handoverStart}, ""
		for range length {
			e := n % len(events)
			n /= len(events)
			w.now++
			met := w.is
			met.owed = min(met.owed, 1)
			seen[met] |= 1 << e
			events[e].do(w)
			did += events[e].name + ", "
			if got := w.n.known(z); got != w.is {
				t.Fatalf("a key that %sis %+v, want %+v", did, got, w.is)
			}
		}
	}
	for state, met := range seen {
		if met != 1<<len(events)-1 {
			t.Errorf("%+v did not meet all events: %b", state, met)
		}
	}
	if len(seen) != 31 {
		t.Errorf("%d states, want 31: %v", len(seen), seen)
	}
}
