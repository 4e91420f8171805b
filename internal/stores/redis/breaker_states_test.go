package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// breakerWalk leads a breaker through events, beside what the tables in breaker.go and silence.go say of it.
type breakerWalk struct {
	b     *breaker
	now   time.Duration
	beats [2]uint64 // what was opened when heartbeats were sent, of which the first is the earlier

	open, asked, doubted, troubled bool
	opened                         uint64
	failed                         int
	askedAt, troubledAt            time.Duration
	stood                          time.Duration // of the time since askedAt
	stoodUntil                     time.Duration
}

const breakerPatience = 200 * time.Millisecond

func (w *breakerWalk) at() time.Time { return w.b.begun.Add(w.now) }

func (w *breakerWalk) opens() {
	if !w.open {
		w.open = true
		w.opened++
	}
}

func (w *breakerWalk) trouble() {
	if !w.troubled {
		w.troubled, w.troubledAt = true, w.now
	}
}

func (w *breakerWalk) recovers() { w.troubled, w.failed = false, 0 }

func (w *breakerWalk) sent() {
	w.now++ // no two calls are sent at one time
	w.b.sent(w.at())
	if !w.asked {
		w.asked, w.askedAt, w.stoodUntil = true, w.now, w.now
	}
}

func (w *breakerWalk) answered() {
	w.b.answered()
	w.asked, w.doubted, w.stood = false, false, 0
}

func (w *breakerWalk) succeeded() {
	w.b.success()
	w.recovers()
}

// timedOut has a call time out, of which this process stood still for the last part.
func (w *breakerWalk) timedOut(late time.Duration) {
	w.now += late
	slow := timeoutError{errors.New("i/o timeout")}
	w.b.failure(stores.FailTimeout, whetherLate(slow, w.at().Add(-late), w.at()), w.at())
	w.trouble()
	if !w.asked {
		return
	}
	if late > 0 {
		w.stood += w.now - max(w.now-late, w.stoodUntil)
		w.stoodUntil = w.now
	}
	if w.doubted && w.now-w.askedAt-w.stood >= breakerPatience {
		w.opens()
	}
	w.doubted = true
}

func (w *breakerWalk) away() {
	w.b.failure(stores.FailAway, errors.New("connection refused"), w.at())
	w.trouble()
	if w.failed++; w.failed >= failuresToOpen {
		w.opens()
	}
}

func (w *breakerWalk) rejected() {
	w.b.failure(stores.FailRejected, errors.New("OOM"), w.at())
	w.trouble()
	w.opens()
}

func (w *breakerWalk) failedAlone() {
	w.b.troubled(w.at())
	w.trouble()
}

func (w *breakerWalk) sendBeat() { w.beats = [2]uint64{w.beats[1], w.b.opened.Load()} }

func (w *breakerWalk) beatFailed() {
	w.b.beatFailed(errors.New("gone"), w.at())
	w.trouble()
	if w.now-w.troubledAt >= longestTrouble {
		w.opens()
	}
}

func (w *breakerWalk) beatSucceeded(i int) {
	w.b.close(w.beats[i])
	if w.beats[i] == w.opened {
		w.recovers()
		w.open = false
	}
}

// breakerState is a state of a breaker, of which several times are one.
type breakerState struct {
	open, asked, doubted, silent, troubled, lasts, stale bool
	failed                                               int
}

func (w *breakerWalk) state() breakerState {
	return breakerState{
		w.open, w.asked, w.doubted, w.asked && w.now-w.askedAt-w.stood >= breakerPatience,
		w.troubled, w.troubled && w.now-w.troubledAt >= longestTrouble, w.beats[1] != w.opened, min(w.failed, failuresToOpen),
	}
}

// TestStatesOfABreaker has each event meet a breaker in each state that events lead to, and then random ones. The
// breaker is then in the state that the tables in breaker.go and silence.go say.
func TestStatesOfABreaker(t *testing.T) {
	storekit.Walk(t, []storekit.Event[*breakerWalk]{
		{Name: "sends a call", Do: (*breakerWalk).sent},
		{Name: "gets a reply", Do: (*breakerWalk).answered},
		{Name: "gets what succeeds", Do: (*breakerWalk).succeeded},
		{Name: "gets a timeout", Do: func(w *breakerWalk) { w.timedOut(0) }},
		{Name: "gets a timeout after a pause", Do: func(w *breakerWalk) { w.timedOut(150 * time.Millisecond) }},
		{Name: "finds no server", Do: (*breakerWalk).away},
		{Name: "is rejected", Do: (*breakerWalk).rejected},
		{Name: "gets an error of the call alone", Do: (*breakerWalk).failedAlone},
		{Name: "sends a heartbeat", Do: (*breakerWalk).sendBeat},
		{Name: "has a heartbeat fail", Do: (*breakerWalk).beatFailed},
		{Name: "has a heartbeat succeed", Do: func(w *breakerWalk) { w.beatSucceeded(1) }},
		{Name: "has an earlier heartbeat succeed", Do: func(w *breakerWalk) { w.beatSucceeded(0) }},
		{Name: "waits a moment", Do: func(w *breakerWalk) { w.now += 110 * time.Millisecond }},
		{Name: "waits for long", Do: func(w *breakerWalk) { w.now += longestTrouble }},
	}, func() *breakerWalk {
		return &breakerWalk{b: newBreaker(breakerPatience, func() {}, func(bool, error) {}), now: time.Hour}
	}, (*breakerWalk).state, func(w *breakerWalk, did string) {
		b := w.b
		doubted := b.silence.asked.Load() != 0 && b.silence.doubt.asked == time.Duration(b.silence.asked.Load())
		got := breakerWalk{
			open: b.open.Load(), asked: b.silence.asked.Load() != 0, doubted: doubted, troubled: b.trouble.Load() != 0, opened: b.opened.Load(), failed: int(b.failed.Load()),
		}
		want := breakerWalk{open: w.open, asked: w.asked, doubted: w.doubted, troubled: w.troubled, opened: w.opened, failed: w.failed}
		if got != want {
			t.Fatalf("a breaker that %sis %+v, want %+v", did, got, want)
		}
	})
}
