package memory

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// learner learns states of one key of a gcra rule of 100 in an hour, and counts the losses
// that it notices.
type learner struct {
	z *stores.ZoneCheck
	n *Snapshots
}

func newLearner(t *testing.T) *learner {
	t.Helper()
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1}})
	c.Table = NewTable(c.Rules, 100)
	z := &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 2}}, Cost: 1, Enforced: stores.Enforced{Rules: c.Rules}, Results: make([]stores.Result, 1)}
	return &learner{z, TableOf(c).Snapshots()}
}

// learn learns a level of so many microseconds under a limit, at a time of this process when
// Redis' clock is ahead by offset.
func (l *learner) learn(local, offset, level, limit int64) (lost bool) {
	at := Instant{Local: local, Shared: local + offset, Tolerance: 1_000_000}
	l.z.Results[0].State = algorithms.State{at.Shared + level, 0, limit, limit}
	l.n.Learn(l.z, at, false, func() {})
	return l.lost()
}

// lost says whether Redis has reported less of a key than one of the snapshots.
func (l *learner) lost() bool {
	keys, _ := l.n.walk(make([]stores.Key, 0, 1), Cursor{}, func(x snapshot) bool { return x.has(markLost) })
	return len(keys) > 0
}

const handoverStart = 1_000_000_000_000

// TestLearnFollowsTheClock sets Redis' clock back and ahead by an hour. That is no loss,
// and does not hide one.
func TestLearnFollowsTheClock(t *testing.T) {
	for _, step := range []int64{-storekit.Hour, storekit.Hour} {
		l := newLearner(t)
		l.learn(handoverStart, 0, 60_000_000, 100)
		if l.learn(handoverStart+1_000_000, step, 59_000_000, 100) {
			t.Errorf("a step of %d is taken for a loss", step)
		}
		told, _ := l.n.Take(l.z, Instant{Local: handoverStart + 1_000_000}, true)
		if got, want := told.Told[0][0], handoverStart+step+60_000_000; got != want {
			t.Errorf("after a step of %d the snapshot is at %d, want %d", step, got, want)
		}
		if !l.learn(handoverStart+2_000_000, step, 1_000_000, 100) {
			t.Errorf("after a step of %d a loss is not noticed", step)
		}
	}
}

// TestLearnUnderAnotherLimit reports a state that another instance has written under a lower
// limit, at which it drains more slowly. That is no loss.
func TestLearnUnderAnotherLimit(t *testing.T) {
	l := newLearner(t)
	l.learn(handoverStart, 0, 60_000_000, 100)
	if l.learn(handoverStart+1_000_000, 0, 10_000_000, 50) {
		t.Error("a state under another limit is taken for a loss")
	}
	if l.learn(handoverStart+2_000_000, 0, 59_000_000, 100) {
		t.Error("a state under the same limit again is taken for a loss")
	}
}

// TestOlderReplyIsNoLoss learns replies in another order than Redis gave them.
func TestOlderReplyIsNoLoss(t *testing.T) {
	l := newLearner(t)
	l.learn(handoverStart+1000, 0, 60_000_000, 100)
	at := Instant{Local: handoverStart + 2000, Shared: handoverStart, Tolerance: 1_000_000}
	l.z.Results[0].State = algorithms.State{handoverStart + 30_000_000, 0, 100, 100}
	l.n.Learn(l.z, at, false, func() {})
	if l.lost() {
		t.Error("a reply that was overtaken is taken for a loss")
	}
}

// TestLossOfALongLog learns replies of a log that is too long to be put back. What one says to be gone is lost once, unless
// it was overtaken or nothing counts any more.
func TestLossOfALongLog(t *testing.T) {
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 10_000, Window: storekit.Hour, Cost: 1}})
	c.Table = NewTable(c.Rules, 100)
	z := &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 2}}, Cost: 1, Enforced: stores.Enforced{Rules: c.Rules}, Results: make([]stores.Result, 1)}
	n := TableOf(c).Snapshots()
	learn := func(at, used int64) int64 {
		view := algorithms.State{10_000 - used, 0, at, used, at + storekit.Hour}
		if used == 0 {
			view = make(algorithms.State, len(view))
		}
		z.Results[0].State = view
		return n.Learn(z, Instant{Local: at, Shared: at}, false, func() {})
	}
	for i, step := range []struct{ at, used, lost int64 }{
		{0, 0, 0}, {10, 30, 0}, {5, 0, 0}, {10, 0, 0}, {20, 31, 0}, {30, 0, 31}, {40, 0, 0}, {50, 7, 0}, {50 + storekit.Hour, 0, 0},
	} {
		if got := learn(handoverStart+step.at, step.used); got != step.lost {
			t.Errorf("reply %d: lost %d, want %d", i, got, step.lost)
		}
	}
}

// TestLostStaysLostWithoutAnAnswer takes a snapshot that Redis has lost for a call. It is put back
// by the next one, too, unless the call is answered or the key is reset meanwhile.
func TestLostStaysLostWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct{ answered, reset, want bool }{
		"answered": {true, false, false}, "not answered": {false, false, true}, "reset": {false, true, false},
	} {
		l := newLearner(t)
		l.learn(handoverStart, 0, 60_000_000, 100)
		if !l.learn(handoverStart+1_000_000, 0, 1_000_000, 100) {
			t.Fatal("no loss is noticed")
		}
		now := Instant{Local: handoverStart + 1_000_000, Shared: handoverStart + 1_000_000}
		h, _ := l.n.Take(l.z, now, false)
		if h.Told == nil || l.lost() {
			t.Fatalf("%+v is taken, and a loss remains: %v", h, l.lost())
		}
		if c.reset {
			l.n.Forget(l.z.Key)
		}
		l.n.End(l.z, &h, c.answered, false, handoverStart)
		if _, due, _ := l.n.Look(l.z, now.Local); due != c.want {
			t.Errorf("%s: due %v, want %v", name, due, c.want)
		}
	}
}
