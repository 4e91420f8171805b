package redis

import (
	"slices"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// modelReport is a call with a report of the key.
type modelReport struct {
	q       *call
	z       *stores.ZoneCheck // of a check
	end     *record           // whose request ends
	renewed []*record

	overtaken     bool
	life          int // of the record that it reports
	left          int64
	version, said int   // see recordModel
	total         int64 // of charges
}

// recordModel is what the tables in record.go and charges.go say of a key.
type recordModel struct {
	exists, replaced bool
	held, ending     int64
	version, stored  int     // of what Redis does not know by itself: changes and repetitions, and what is stored of them
	said             int     // changes of what reports say
	leftWith         []int64 // by said, when the last report left that said it
	total, ran, ack  int64   // of charges
	since, kept, at  int64
	told             bool
	soon             bool // whether the next renewal looks whether Redis is to be told
}

// recordWalk leads a key through events.
type recordWalk struct {
	p        *permits
	now      int64
	counter  *stores.Counter
	other    *stores.Counter // of another kind
	is       recordModel
	life     int // counts records that were forgotten
	underWay []modelReport
	unsaid   [2]int64 // of unknown outcome, and refused
	renewals [2]int   // that were made, and should have been
}

func (w *recordWalk) zone() *stores.ZoneCheck {
	z := &storekit.CheckOfKey(w.counter, 1).Zones[0]
	z.Rules, z.InFlight, z.Results = w.counter.Rules, w.counter.InFlight, make([]stores.Result, 1)
	return z
}

// begin makes sure that there is a record.
func (w *recordWalk) begin() {
	if !w.is.exists {
		w.is = recordModel{exists: true, at: w.now, leftWith: []int64{0}}
	}
}

func (w *recordWalk) known() bool { return w.is.version == w.is.stored }

// changes has what reports say change, of which a call is about to tell Redis.
func (w *recordWalk) changes() {
	w.is.version++
	w.is.said++
	w.is.leftWith = append(w.is.leftWith, 0)
}

func (w *recordWalk) changed() {
	w.changes()
	w.is.soon = true
}

// repeat has what was reported reported again.
func (w *recordWalk) repeat() {
	w.is.version++
	w.is.soon = true
}

// drop is [permits.drop].
func (w *recordWalk) drop() {
	if !w.is.exists {
		return
	}
	reported, flying := w.is.ran, false
	for _, r := range w.underWay {
		if !r.overtaken {
			reported, flying = max(reported, r.total), true
		}
	}
	if w.is.ack != w.is.total && w.now-w.is.since > unsure.Microseconds() {
		w.unsaid[0] += reported - w.is.ack
		w.unsaid[1] += w.is.total - reported
		w.is.ran, w.is.ack = w.is.total, w.is.total
	}
	stale := int64(0)
	for _, left := range w.is.leftWith[:w.is.said] {
		stale = max(stale, left)
	}
	lapsed := stale == 0 || w.now-stale > lapse.Microseconds()
	if w.is.held == 0 && w.is.ending == 0 && !flying && w.is.ack == w.is.total && (w.known() || lapsed) {
		w.is = recordModel{}
		w.life++
	}
}

func (w *recordWalk) note(n int64) {
	if w.is.held+n < 0 {
		return
	}
	w.begin()
	w.is.held += n
	w.changed()
	w.p.note(w.zone(), n, n)
	w.drop()
}

// leave has a call leave.
func (w *recordWalk) leave(r modelReport) {
	flying := 0
	for _, o := range w.underWay {
		if !o.overtaken {
			flying++
		}
	}
	w.begin()
	r.overtaken, r.life, r.left, r.version, r.said, r.total = flying == callsInFlight, w.life, w.now, w.is.version, w.is.said, w.is.total
	if !r.overtaken {
		w.is.leftWith[w.is.said], w.is.at = w.now, w.now
	}
	w.underWay = append(w.underWay, r)
	r.q.batch = []*call{r.q}
	w.p.leave(r.q.batch)
}

func (w *recordWalk) check() {
	if len(w.underWay) > callsInFlight {
		return
	}
	z := w.zone()
	q := newCall(time.Time{}, z.Tag)
	q.decide("diana", &stores.Check{Zones: []stores.ZoneCheck{*z}}, nil)
	w.leave(modelReport{q: q, z: z})
}

// end ends a request with a charge of 1.
func (w *recordWalk) end() {
	if w.is.held == 0 || len(w.underWay) > callsInFlight {
		return
	}
	z := w.zone()
	w.p.beginEnd(z, time.Time{})
	q := newCall(time.Time{}, z.Tag)
	rec := w.p.end(z, 1, q, nil)
	w.is.held--
	w.is.ending++
	if w.is.ack == w.is.total {
		w.is.since = w.now
	}
	w.is.total++
	w.changes()
	w.leave(modelReport{q: q, end: rec})
}

// renew has a renewal leave, if one is due.
func (w *recordWalk) renew() {
	renews := func(r modelReport) bool { return r.renewed != nil }
	if len(w.underWay) > callsInFlight || slices.ContainsFunc(w.underWay, renews) { // one round at a time
		return
	}
	w.p.round++
	soon := w.is.soon && !w.known()
	w.is.soon = false
	var mine []*record
	for _, rec := range slices.Concat(w.p.due(2)...) {
		if rec.zone.Counter == w.counter {
			mine = append(mine, rec)
		}
	}
	if soon {
		w.drop()
	}
	due := w.is.exists && (soon || w.now-w.is.at >= renewEvery.Microseconds())
	if due {
		w.is.at = w.now
	}
	if due && w.is.ending > 0 {
		due = false
		w.is.version++
	}
	if w.renewals[0] += len(mine); due {
		w.renewals[1]++
	}
	if due && len(mine) == 1 {
		q := newCall(time.Time{}, mine[0].zone.Tag)
		q.reportOf(mine[0], nil)
		w.leave(modelReport{q: q, renewed: mine})
	}
}

// decides has the rules of a counter decide.
func (w *recordWalk) decides(c *stores.Counter) {
	check := storekit.CheckOfKey(c, 1)
	before := w.p.deciding[string(appendPermits(nil, "diana", w.zone()))]
	w.p.replace(newCall(time.Time{}, check.Zones[0].Tag), check, nil)
	if c == w.counter {
		w.begin()
		w.is.replaced = false
	} else if before != nil && before.zone.Counter == w.counter {
		w.is.replaced = true
		w.changed()
	}
}

// answer ends the oldest call under way.
func (w *recordWalk) answer(flags byte, err error, leaves bool) {
	if len(w.underWay) == 0 {
		return
	}
	r := w.underWay[0]
	w.underWay = w.underWay[1:]
	if r.z == nil && (flags == 0 || leaves) {
		flags, leaves = flagCharged, false // what is no check is stored, and its caller waits
	}
	for i := range r.q.zones {
		r.q.zones[i].flags = flags
	}
	if r.life != w.life { // it was overtaken, and its record is forgotten
		w.p.arrive(r.q.batch, err)
		return
	}
	ran := err == nil || mayHaveRun(err)
	if ran && !r.overtaken {
		w.is.ran = max(w.is.ran, r.total)
	}
	switch stored := err == nil && flags == flagCharged && !r.overtaken; {
	case stored:
		w.is.told = true
		w.is.stored, w.is.kept, w.is.since = max(w.is.stored, r.version), max(w.is.kept, r.left), r.left
		w.is.ack = max(w.is.ack, r.total)
		if r.z != nil {
			w.is.held++
		}
	case err == nil && flags == 0 && !r.overtaken:
		if w.is.held > 0 && w.known() && r.left-w.is.kept >= renewEvery.Microseconds() {
			w.repeat()
		}
	case err != nil && ran && r.z != nil:
		w.changed()
	case !w.known():
		w.is.soon = true
	}
	granted := r.z != nil && err == nil && flags == flagCharged && !r.overtaken
	w.p.arrive(r.q.batch, err)
	w.drop()
	switch {
	case leaves && granted:
		w.is.held--
		w.changed()
		w.p.abandon(r.q)
	case r.end != nil:
		if w.is.ending--; w.is.ending == 0 && !w.known() {
			w.is.soon = true
		}
		w.p.endReported(r.end)
		w.drop()
	case r.renewed != nil:
		if err != nil {
			w.repeat()
		}
		w.p.renewed(r.renewed, err)
	}
}

// pass has more time pass than a report counts in Redis, without calls.
func (w *recordWalk) pass() {
	w.now += lapse.Microseconds() + 1
	w.p.dropLapsed()
	w.drop()
}

// recordState is a state of a record, of which several numbers are one.
type recordState struct {
	exists, holds, replaced, ends, known, told, soon bool
	underWay                                         int
	waits, maybe                                     bool
}

func (w *recordWalk) state() (s recordState) {
	if s.exists = w.is.exists; !s.exists {
		return s
	}
	for _, r := range w.underWay {
		if !r.overtaken {
			s.underWay++
		}
	}
	s.holds, s.replaced, s.ends, s.told, s.soon = w.is.held > 0, w.is.replaced, w.is.ending > 0, w.is.told, w.is.soon
	s.known, s.waits, s.maybe = w.known(), w.is.total > w.is.ran, w.is.ran > w.is.ack
	return s
}

// agrees fails the test unless the record is in the state of the model.
func (w *recordWalk) agrees(t *testing.T, did string) {
	t.Helper()
	type numbers struct{ held, ending, open, maybe, unknown, refused int64 }
	var got recordState
	var is numbers
	if rec := w.p.records[string(appendName(nil, "diana", w.zone()))]; rec != nil {
		c := rec.charges
		got = recordState{true, rec.held > 0, rec.replaced, rec.ending > 0, rec.isKnown(), rec.stored > 0, rec.late != nil, len(rec.underWay), c.total > c.ran, c.ran > c.acked}
		is = numbers{held: rec.held, ending: int64(rec.ending), open: c.total - c.acked, maybe: c.ran - c.acked}
	}
	for i, u := range w.p.unsaid {
		if i%2 == 0 {
			is.unknown += u.charge
		} else {
			is.refused += u.charge
		}
	}
	want := numbers{w.is.held, w.is.ending, w.is.total - w.is.ack, w.is.ran - w.is.ack, w.unsaid[0], w.unsaid[1]}
	if got != w.state() || is != want || w.renewals[0] != w.renewals[1] {
		t.Fatalf("a key that %sis %+v with %+v, want %+v with %+v; renewals %d", did, got, is, w.state(), want, w.renewals)
	}
}

// TestStatesOfARecord has each event meet a record in each state that events lead to, and then random ones. The
// record is then in the state that the tables in record.go and charges.go say.
func TestStatesOfARecord(t *testing.T) {
	counter := holdingCounter(t, "record")
	other := kit.NewTestCounter(t, "record", 2, true, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1, Overdraws: true}})
	if counter.Kinds == other.Kinds {
		t.Fatal("the rules are of one kind")
	}
	storekit.Walk(t, []storekit.Event[*recordWalk]{
		{Name: "is taken without Redis", Do: func(w *recordWalk) { w.note(1) }},
		{Name: "is released without Redis", Do: func(w *recordWalk) { w.note(-1) }},
		{Name: "is checked", Do: (*recordWalk).check},
		{Name: "ends", Do: (*recordWalk).end},
		{Name: "is renewed", Do: (*recordWalk).renew},
		{Name: "is decided by other rules", Do: func(w *recordWalk) { w.decides(w.other) }},
		{Name: "is decided by these", Do: func(w *recordWalk) { w.decides(w.counter) }},
		{Name: "is stored", Do: func(w *recordWalk) { w.answer(flagCharged, nil, false) }},
		{Name: "is denied", Do: func(w *recordWalk) { w.answer(0, nil, false) }},
		{Name: "fails alone", Do: func(w *recordWalk) { w.answer(flagFailed, nil, false) }},
		{Name: "is not executed", Do: func(w *recordWalk) { w.answer(0, errOpen, false) }},
		{Name: "is not answered", Do: func(w *recordWalk) { w.answer(0, errUnanswered, false) }},
		{Name: "is abandoned", Do: func(w *recordWalk) { w.answer(flagCharged, nil, true) }},
		{Name: "waits a moment", Do: func(w *recordWalk) { w.now++ }},
		{Name: "lapses", Do: (*recordWalk).pass},
	}, func() *recordWalk {
		w := &recordWalk{now: 1, counter: counter, other: other}
		w.p = newPermits("diana", new(memory.Permits), func() int64 { return w.now })
		return w
	}, (*recordWalk).state, func(w *recordWalk, did string) { w.agrees(t, did) })
}
