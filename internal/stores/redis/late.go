package redis

import (
	"errors"
	"sync"

	"github.com/dianalimiter/diana/internal/stores/outage"
)

// late is the error of a call whose caller did not wait for the reply. It also holds the fate of the call once that is
// known. A timeout says that a call is late, not that its connection is bad: the reply is still read, in the background.
type late struct {
	sends bool // whether the call sends its batch: of the batch's timeouts, only this one is counted

	mu    sync.Mutex
	ended *outage.Fate        // the fate; nil: the call is in flight
	then  []func(outage.Fate) // to be called with the fate
}

// Error implements error.
func (*late) Error() string { return errUnanswered.Error() }

// Is implements the method of [errors.Is]: the call is unanswered.
func (*late) Is(target error) bool { return target == errUnanswered }

// Timeout implements the method of net.Error.
func (*late) Timeout() bool { return true }

// sendsBatch says whether err is the error of a late call that sends its batch.
func sendsBatch(err error) bool {
	l, ok := errors.AsType[*late](err)
	return ok && l.sends
}

// await calls then with the fate of the call, once it is known.
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

// end notes the fate of the call.
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

// fateOf returns the fate of a call that has ended.
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

// handedIn returns the outcomes of the handovers with which a call begins.
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

// await calls then with the fate of a call that failed: at once, unless the reply may still come.
func await(err error, then func(outage.Fate)) {
	if l, ok := errors.AsType[*late](err); ok {
		l.await(then)
		return
	}
	then(outage.Fate{Known: !mayHaveRun(err)})
}
