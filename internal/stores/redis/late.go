package redis

import (
	"errors"
	"sync"

	"github.com/dianalimiter/diana/internal/stores/outage"
)

// late is the error of a call whose caller did not wait for the reply, and what becomes of it later. A
// timeout says that a call is late, not that its connection is bad: the reply is still read, beside
// requests.
type late struct {
	first bool // it stands for its batch

	mu    sync.Mutex
	ended *outage.Fate // nil: it is in flight
	then  []func(outage.Fate)
}

// Error implements error.
func (*late) Error() string { return errUnanswered.Error() }

// Is says that the call has no reply yet.
func (*late) Is(target error) bool { return target == errUnanswered }

// Timeout implements the method of net.Error.
func (*late) Timeout() bool { return true }

// isFirst says whether an error is that of a late call that stands for its batch.
func isFirst(err error) bool {
	l, ok := errors.AsType[*late](err)
	return ok && l.first
}

// await calls then with what became of the call, when that is known.
func (l *late) await(then func(outage.Fate)) {
	l.mu.Lock()
	if l.ended == nil {
		l.then = append(l.then, then)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	then(*l.ended)
}

// end notes what became of the call.
func (l *late) end(f outage.Fate) {
	l.mu.Lock()
	l.ended = &f
	then := l.then
	l.then = nil
	l.mu.Unlock()
	for _, do := range then {
		do(f)
	}
}

// fateOf returns what became of a call that has an outcome now.
func fateOf(q *call) outage.Fate {
	if q.fate != nil {
		return outage.Fate{Known: !mayHaveRun(q.fate)}
	}
	var charged []bool
	for i := range q.zones {
		charged = append(charged, q.zones[i].flags&(flagCharged|flagFailed) == flagCharged)
	}
	return outage.Fate{Known: true, Ran: true, Charged: charged, Handed: handedIn(q)}
}

// handedIn returns what became of the handovers with which a call begins.
func handedIn(q *call) (all []outage.Outcome) {
	r := reply{b: q.text}
	for i := range q.ops {
		if op := q.ops[i].b[0]; op != opHand && op != opBlock {
			break
		}
		refused, err := r.refused()
		all = append(all, outage.Outcome{Refused: refused, Err: err})
	}
	return all
}

// await calls then with what becomes of a call that failed: at once, unless a reply may still come.
func await(err error, then func(outage.Fate)) {
	if l, ok := errors.AsType[*late](err); ok {
		l.await(then)
		return
	}
	then(outage.Fate{Known: !mayHaveRun(err)})
}
