package redis

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/stores"
)

// breaker stops calls to a node that does not answer, and closes when a heartbeat of the node
// succeeds. While it is closed, every failure begins trouble, whatever its error, and a success ends it.
//
//	event                              closed                                 open
//	a call timed out                   opens if the node is silent            -
//	                                   (silence.go) for patience
//	a call was rejected                opens: the next would be, too          -
//	a call failed, no server is there  opens after failuresToOpen in a row    -
//	a call failed alone                trouble begins                         -
//	a heartbeat failed                 as a call that failed so; also opens   -
//	                                   when trouble lasts longestTrouble
//	a call succeeded                   forgets failures                       forgets failures
//	a heartbeat succeeded that         forgets failures                       closes
//	was sent since it opened last
//	a heartbeat succeeded that         -                                      -
//	was sent before that
type breaker struct {
	open     atomic.Bool
	opened   atomic.Uint64 // how often
	failed   atomic.Int64  // in a row, because no server was there
	trouble  atomic.Int64  // when the first call or heartbeat failed that no success has followed, since begun; 0: none
	silence  silence
	patience time.Duration
	begun    time.Time

	mu sync.Mutex

	// closing is called before the breaker closes, and changed after each change, in their order:
	// both with b.mu held.
	closing func()
	changed func(up bool, cause error)
}

const (
	// failuresToOpen is how many failures in a row open the breaker. One may be an accident.
	failuresToOpen = 3

	// minPatience is the least patience of a breaker, for timeouts that are shorter than
	// pauses that are usual: of a fork, a slow command, a busy machine.
	minPatience = 100 * time.Millisecond

	// longestTrouble is for how long a node may refuse every call and heartbeat with errors of
	// which each could concern its call alone.
	longestTrouble = 2 * time.Second
)

// newBreaker returns a closed breaker of a node whose calls take at most timeout.
func newBreaker(timeout time.Duration, closing func(), changed func(up bool, cause error)) *breaker {
	return &breaker{patience: max(timeout, minPatience), begun: time.Now().Add(-1), closing: closing, changed: changed}
}

// sent notes that a call is sent.
func (b *breaker) sent(now time.Time) {
	if b.silence.asked.Load() == 0 {
		b.silence.begin(now.Sub(b.begun))
	}
}

// answered notes a reply of any kind: calls that were sent before it no longer count as
// unanswered.
func (b *breaker) answered() { b.silence.end() }

// success notes a call that succeeded.
func (b *breaker) success() {
	if b.trouble.Load() != 0 {
		b.recovers()
	}
}

// recovers forgets the failures so far.
func (b *breaker) recovers() {
	b.trouble.Store(0)
	b.failed.Store(0)
}

// troubled notes a call or a heartbeat that failed for any reason.
func (b *breaker) troubled(now time.Time) {
	if b.trouble.Load() == 0 {
		b.trouble.CompareAndSwap(0, int64(now.Sub(b.begun)))
	}
}

// beatFailed follows a heartbeat that failed for any reason: the node is away if nothing has
// succeeded for longestTrouble.
func (b *breaker) beatFailed(cause error, now time.Time) {
	b.troubled(now)
	if since := b.trouble.Load(); since != 0 && now.Sub(b.begun)-time.Duration(since) >= longestTrouble {
		b.trip(cause)
	}
}

// failure notes a call that failed because of the node.
func (b *breaker) failure(f stores.Failure, cause error, now time.Time) {
	b.troubled(now)
	var opens bool
	switch {
	case f == stores.FailRejected:
		opens = true
	case f != stores.FailTimeout:
		opens = b.failed.Add(1) >= failuresToOpen
	default:
		still := stoodStill{}
		errors.As(cause, &still)
		opens = b.silence.timedOut(now.Sub(b.begun), still.late) >= b.patience
	}
	if opens {
		b.trip(cause)
	}
}

// close closes the breaker after a call that succeeded. opened is what b.opened was
// when the call was sent: if the breaker has opened since, the reply is older than
// the failures that opened it.
func (b *breaker) close(opened uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened.Load() == opened {
		b.recovers()
		b.change(false, nil)
	}
}

func (b *breaker) trip(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.change(true, cause)
}

// begin opens a breaker that was not used yet, and notifies nobody.
func (b *breaker) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened.Load() == 0 {
		b.opened.Add(1)
		b.open.Store(true)
	}
}

// change changes the state. b.mu is held.
func (b *breaker) change(open bool, cause error) {
	if b.open.Load() == open {
		return
	}
	if open {
		b.opened.Add(1)
	} else {
		b.closing()
	}
	b.open.Store(open)
	b.changed(!open, cause)
}
