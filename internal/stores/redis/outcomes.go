package redis

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// outcomes are those of the calls that decide checks at a node. Its heartbeats may succeed though it decides none: a
// proxy may send them to another server, or reject what they do not contain. A call that is answered late counts as
// decided: see [alone].
//
//	of at least leastOutcomes checks, in outcomesFor or longer  the node
//	most failed                                                 is away: its breaker opens, until a heartbeat to the
//	                                                            place of the last one succeeds, too
//	fewer failed, again and again                               is told as away, but called
//
// Few are at least one in ten, or any that were answered otherwise than by a decision: no stall and no lost packet does that.
type outcomes struct {
	decided atomic.Uint64 // checks

	mu      sync.Mutex
	begun   time.Time // when the first check of the present period failed; zero: none has
	opened  uint64    // how often the breaker had opened then
	before  uint64    // decided then
	failed  uint64    // checks since
	spells  spells    // of failures in the period
	refused spells    // of answers, over periods
	some    time.Time // when a period last ended in which some failed
	why     error     // of the last that failed
}

const (
	outcomesFor   = 2 * time.Second
	leastOutcomes = 20

	// Some checks fail if at least one in someOf does, at someSpells times. A short stall is one.
	someOf     = 10
	someSpells = 4

	// someLast is for how long a node is told as away after a period in which some failed.
	someLast = 2*outcomesFor + beatEvery
)

// spells are how often something happened, at times that are at least spellFor apart.
type spells struct {
	n    int
	last time.Time
}

const spellFor = 250 * time.Millisecond

// add notes that it happened. After a pause of someLast they are counted anew.
func (s *spells) add(now time.Time) {
	since := now.Sub(s.last)
	if since >= someLast {
		s.n = 0
	}
	if since >= spellFor {
		s.n, s.last = s.n+1, now
	}
}

// fails notes checks that a node has not decided. It says whether most were not decided. opened is how often the
// node's breaker has opened.
func (o *outcomes) fails(checks int, opened uint64, err error, now time.Time) (most bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun.IsZero() || o.opened != opened {
		if o.opened != opened { // which was told
			o.some, o.refused = time.Time{}, spells{}
		}
		o.begun, o.opened, o.before, o.failed, o.spells = now, opened, o.decided.Load(), 0, spells{}
	}
	o.failed += uint64(checks)
	o.why = err
	o.spells.add(now)
	if (isAnswer(err) || errors.Is(err, errReply)) && !aboutSlot(err) {
		if o.refused.add(now); o.refused.n >= someSpells {
			o.some = now
		}
	}
	decided := o.decided.Load() - o.before
	if now.Sub(o.begun) < outcomesFor || decided+o.failed < leastOutcomes {
		return false
	}
	o.begun = time.Time{}
	if o.failed*someOf >= decided && o.spells.n >= someSpells {
		o.some = now
	}
	return o.failed > decided
}

// someFail says whether checks fail again and again though most do not, and why. opened is as in fails.
func (o *outcomes) someFail(opened uint64, now time.Time) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.some.IsZero() && o.opened == opened && now.Sub(o.some) < someLast, o.why
}

// undecided is why a node is away whose heartbeats succeed.
type undecided struct {
	which string
	error
}

// Error implements error.
func (e undecided) Error() string {
	return fmt.Sprintf("heartbeats succeed, and %s checks fail: %v", e.which, e.error)
}

// Unwrap returns why the last check was not decided.
func (e undecided) Unwrap() error { return e.error }

// target is where a call was sent: heartbeats can be sent to the same.
type target struct{ tag, key string }

// targetOf returns the target of a call, which a proxy finds by the first key.
func targetOf(q *call) *target { return &target{q.tag.String(), string(q.names[0].b)} }

// outcome notes the outcome of a call at a node for some checks, of which the first has the key.
func (c *conn) outcome(n *server, some []*call, err error) {
	switch {
	case err == nil, errors.Is(err, errLate):
		n.outcomes.decided.Add(uint64(len(some)))
		return
	case errors.Is(err, errOpen), errors.Is(err, errUnsent), errors.As(err, new(algorithmError)):
		return
	}
	if n.outcomes.fails(len(some), n.breaker.opened.Load(), err, time.Now()) && (!c.o.Cluster || !aboutSlot(err)) {
		n.rejected.Store(targetOf(some[0]))
		n.breaker.trip(undecided{"most", err})
	}
}
