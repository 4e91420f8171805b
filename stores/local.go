package stores

import (
	"context"
	"slices"

	"github.com/dianalimiter/diana/algorithms"
)

// Local keeps the counts in this process.
type Local struct {
	// Clock returns the present instant in microseconds and never goes back.
	Clock func() int64
}

// Decide implements [Store].
func (l *Local) Decide(_ context.Context, a *Ask) {
	for i := range a.Items {
		a.Items[i].Rules = a.Items[i].Counter.Rules
	}
	a.Mode = ModeLocal
	decideLocal(a, l.Clock)
}

// Finish implements [Store].
func (l *Local) Finish(_ context.Context, it *Item, charge int64) {
	finishLocal(it, l.Clock, charge)
}

// place is where an item is counted in its table.
type place struct {
	table *Table
	shard *shard
	at    int // number of the shard
	mix   uint64
	slot  []int64 // the key's own; nil: none yet
	from  []int64 // what it is judged by: its own, a shared counter, or nil

	// judged is the state of an only rule, as long as nobody can have asked the shard
	// for another; nil: it has to be looked up again.
	judged algorithms.State
}

// decideLocal decides by the tables of the items' counters, with the rules that
// the items name. All tables are locked together, always in the same order, so
// that the decision is made at one instant. The clock is read behind the locks:
// read before them, it would seem to go back whenever two requests change places.
func decideLocal(a *Ask, clock func() int64) {
	a.room()
	if len(a.Items) == 1 { // most have one
		it := &a.Items[0]
		var p place
		p.locate(it)
		p.shard.mu.Lock()
		a.Now = clock()
		p.judge(it, a.Now)
		a.settle()
		p.conclude(a, it)
		p.shard.mu.Unlock()
		return
	}
	decideSeveral(a, clock)
}

// decideSeveral decides an ask of several items. The stack that it takes is no
// part of what one of a single item does.
func decideSeveral(a *Ask, clock func() int64) {
	var room [8]place
	var order [8]int
	places := room[:0]
	for i := range a.Items {
		places = append(places, place{})
		places[i].locate(&a.Items[i])
	}
	decideAt(a, clock, places, inOrder(order[:0], places))
}

// decideAt decides at the items' places, of which those with the numbers locked are
// to be locked.
func decideAt(a *Ask, clock func() int64, places []place, locked []int) {
	for _, i := range locked {
		places[i].shard.mu.Lock()
	}
	a.Now = clock()
	for i := range a.Items {
		places[i].judge(&a.Items[i], a.Now)
		places[i].judged = nil // the next may lie in the same shard
	}
	a.settle()
	for i := range a.Items {
		places[i].conclude(a, &a.Items[i])
	}
	for _, i := range locked {
		places[i].shard.mu.Unlock()
	}
}

// conclude does to the item what was decided for the whole ask.
func (p *place) conclude(a *Ask, it *Item) {
	if a.Admitted && it.Admits && !a.Look {
		p.take(it, a.Now, a.turn(it))
	}
	if !a.Brief {
		p.numbers(it, a.Now)
	}
	if a.Look {
		it.Crowded = p.slot == nil && p.from != nil
	}
}

// locate finds the item's shard. It fills in what is there instead of returning it:
// reading back what was just written, in larger pieces, makes a processor wait.
func (p *place) locate(it *Item) {
	t := tableOf(it.Counter)
	p.table, p.mix = t, t.mix(it.Key)
	p.at = int(p.mix & uint64(len(t.shards)-1))
	p.shard = &t.shards[p.at]
}

// inOrder appends the numbers of the places to room in the order of locking, each
// shard once.
func inOrder(room []int, places []place) []int {
	for n := range places {
		p, i := &places[n], len(room)
		for i > 0 && p.before(&places[room[i-1]]) {
			i--
		}
		if i == 0 || places[room[i-1]].shard != p.shard {
			room = slices.Insert(room, i, n)
		}
	}
	return room
}

// before says whether the place is locked before another. All lock in this order.
func (p *place) before(o *place) bool {
	return p.table.serial < o.table.serial || p.table == o.table && p.at < o.at
}

func (p *place) judge(it *Item, now int64) {
	t, s := p.table, p.shard
	p.slot = t.find(s, it.Key, p.mix)
	if p.from = p.slot; p.slot == nil {
		if b := s.overflow.counter(&t.layout, &s.states, it.Group, it.Rules, now); b != nil && !s.states.unused(&t.layout, b, it.Rules, now) {
			p.from = b
		}
	}
	places, held := t.layout.held(p.from)
	it.Full = it.Counter.InFlight > 0 && places >= it.Counter.InFlight
	it.Admits = !it.Full
	for i, r := range it.Rules {
		st := s.states.at(&t.layout, p.from, i)
		if r.Repair(st, now) {
			s.states.keep(&t.layout, p.from, i, st)
			t.steps.Add(1)
		}
		v := r.Judge(st, now, it.Cost, held)
		it.Results[i].Verdict = v
		it.Admits = it.Admits && v.Admit
		if p.slot != nil && len(it.Rules) == 1 && !t.layout.grows {
			p.judged = st
		}
	}
}

// take charges the item, or takes its place.
func (p *place) take(it *Item, now, turn int64) {
	t, s := p.table, p.shard
	p.own(it, now)
	holds, cost := it.holds()
	if holds && t.layout.places > 0 {
		it.hold = hold{taken: true, mode: ModeLocal, overflow: p.slot == nil}
		p.from[t.layout.places]++
		if cost {
			p.from[t.layout.places+1] += it.Cost
		}
	}
	if !cost {
		for i, r := range it.Rules {
			st := p.judged
			if st == nil {
				s.states.room(&t.layout, p.from, i, r, now, it.Cost)
				st = s.states.at(&t.layout, p.from, i)
			}
			r.Charge(st, now, it.Cost, turn)
			s.states.keep(&t.layout, p.from, i, st)
		}
	}
	it.Charged = true
}

// own gives the item's key a slot of its own, or else a shared counter.
func (p *place) own(it *Item, now int64) {
	if p.slot != nil {
		return
	}
	t, s := p.table, p.shard
	bucket := p.from
	if held, _ := t.layout.held(bucket); held == 0 {
		if p.slot = t.insert(s, it.Key, p.mix, it.Rules, now); p.slot != nil {
			if bucket != nil {
				s.states.copy(&t.layout, p.slot, bucket)
			}
			p.from = p.slot
			return
		}
	}
	t.shared.Add(1)
	it.Crowded = true
	p.from = s.overflow.make(&t.layout, &s.states, it.Group, it.Rules, now)
}

// numbers says what is left after the decision.
func (p *place) numbers(it *Item, now int64) {
	_, held := p.table.layout.held(p.from)
	for i, r := range it.Rules {
		st := p.judged
		if st == nil {
			st = p.shard.states.at(&p.table.layout, p.from, i)
		}
		res := &it.Results[i]
		res.Remaining, res.Reset = r.Numbers(st, now)
		res.Remaining = max(0, res.Remaining-held)
	}
}

// finishLocal gives back an item's place and charges what it owes.
func finishLocal(it *Item, clock func() int64, charge int64) {
	if !it.hold.taken && charge == 0 {
		return
	}
	var p place
	p.locate(it)
	t, s := p.table, p.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	if p.slot = t.find(s, it.Key, p.mix); p.slot != nil && !it.hold.overflow {
		p.from = p.slot
	} else if p.from = s.overflow.counter(&t.layout, &s.states, it.Group, it.Rules, now); !it.hold.taken {
		p.slot = nil
		p.own(it, now)
	}
	if it.hold.taken {
		if _, cost := it.holds(); cost {
			p.from[t.layout.places+1] -= it.Cost
		}
		if !it.keepsPlace(charge) {
			p.from[t.layout.places]--
			it.hold.taken = false
		}
	}
	if charge > 0 {
		owe(t, s, p.from, it.Rules, now, charge)
		p.numbers(it, now)
	}
}

// owe charges a slot whatever a verdict would be.
func owe(t *Table, s *shard, slot []int64, rules []algorithms.Rule, now, charge int64) {
	for i, r := range rules {
		s.states.room(&t.layout, slot, i, r, now, charge)
		st := s.states.at(&t.layout, slot, i)
		r.Repair(st, now)
		r.Owe(st, now, charge)
		s.states.keep(&t.layout, slot, i, st)
	}
}

var _ Store = (*Local)(nil)
