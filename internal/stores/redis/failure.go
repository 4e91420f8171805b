package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/stores"
)

var (
	// errOpen says that the breaker is open.
	errOpen = errors.New("not asked: Redis is unavailable until a probe succeeds")

	// errUnsent says that nothing was sent, and nothing charged.
	errUnsent = timeoutError{errors.New("not sent before the timeout: earlier calls were still waiting for Redis")}

	// errUnconnected says that there was no connection before the caller's deadline.
	errUnconnected = dialError{timeoutError{errors.New("no connection to Redis within the timeout")}}

	// errLate says that Redis rejected a call whose caller no longer waits.
	errLate = timeoutError{errors.New("executed by Redis after the timeout, and not charged")}

	// errReply and errDisagree say that an answer is not one of this script's, or not what the
	// arithmetic of this instance gives.
	errReply    = errors.New("a reply is not one of this script's")
	errDisagree = errors.New("the script and this instance come to different verdicts from the same state")

	// errUnanswered says that the reply did not arrive before the caller's deadline.
	errUnanswered = timeoutError{errors.New("no reply from Redis within the timeout")}
)

// timeoutError is an error whose Timeout method returns true.
type timeoutError struct{ error }

// Timeout implements the method of net.Error.
func (timeoutError) Timeout() bool { return true }

// stoodStill is a timeout that was noticed late: this process stood still meanwhile.
type stoodStill struct {
	error
	late time.Duration
}

// Error implements error.
func (e stoodStill) Error() string {
	return fmt.Sprintf("%v, noticed %v late: this process stood still", e.error, e.late.Round(time.Millisecond))
}

// Unwrap returns the timeout.
func (e stoodStill) Unwrap() error { return e.error }

// punctual is how late a timer may fire in a process that runs.
const punctual = 5 * time.Millisecond

// whetherLate returns the error of a call that was to end at a time, as stoodStill if it is a
// timeout that was noticed late.
func whetherLate(err error, end, now time.Time) error {
	if late := now.Sub(end); !end.IsZero() && late > punctual && classify(err) == stores.FailTimeout {
		return stoodStill{err, late}
	}
	return err
}

// reported is the error of a batch, which the caller that sent it has reported.
type reported struct{ error }

// Unwrap returns the error itself.
func (r reported) Unwrap() error { return r.error }

// algorithmError is an error in the Lua of a third-party algorithm.
type algorithmError struct {
	names []string // of the algorithms, one of which it is in
	error
}

// Error implements error.
func (e algorithmError) Error() string {
	return "algorithm " + strings.Join(e.names, " or ") + ": " + e.error.Error()
}

// Unwrap returns the error of Redis.
func (e algorithmError) Unwrap() error { return e.error }

// earlyClose is the error of a connection that the server closed before it was
// sent anything.
type earlyClose struct {
	error
	said string // the server's reason, if it was received
}

func (h earlyClose) Error() string {
	if h.said != "" {
		return h.said
	}
	return "hung up on a new connection: " + h.error.Error()
}

// Is and As inspect the error. With Unwrap the client would discard this one.
func (h earlyClose) Is(target error) bool { return errors.Is(h.error, target) }
func (h earlyClose) As(target any) bool   { return errors.As(h.error, target) }

// failedOp is the error of one operation in a reply to several.
type failedOp string

// Error implements error.
func (e failedOp) Error() string { return string(e) }

// RedisError implements redis.Error.
func (failedOp) RedisError() {}

// errOutside says that the arguments of a rule are those of another time than Redis'.
const errOutside = failedOp("OUTSIDE")

// errOvertaken says that Redis ignored the report of a check, because later ones came first.
const errOvertaken = failedOp("OVERTAKEN")

// saysTLS is the reason of a server that expects TLS.
const saysTLS = "the server expects TLS"

// tooFar is why a node that answers is told as away.
type tooFar struct{ way, timeout time.Duration }

// Error implements error.
func (e tooFar) Error() string {
	return fmt.Sprintf(aloneThough+": %v to Redis of %v allowed", e.way.Round(time.Millisecond/10), e.timeout)
}

// Timeout implements the method of net.Error.
func (tooFar) Timeout() bool { return true }

const (
	aloneThough = "most checks are decided without Redis, though it answers"
	raise       = "raise timeout to at least twice the way to Redis, or find what makes it slow"
)

// dialError says that there was no connection for a call, because it could not be opened or used in
// time, or because it is not known to which node of a Cluster, so that nothing was sent.
type dialError struct{ error }

// Is and As are as those of earlyClose.
func (u dialError) Is(target error) bool { return errors.Is(u.error, target) }
func (u dialError) As(target any) bool   { return errors.As(u.error, target) }

// classify returns the class of an error.
func classify(err error) stores.Failure {
	if errors.Is(err, errReply) || errors.Is(err, errDisagree) {
		return stores.FailWrong
	}
	if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		return stores.FailTimeout
	}
	var answered goredis.Error
	if !errors.As(err, &answered) || errors.Is(err, goredis.ErrClosed) {
		return classifyConnecting(err)
	}
	if r := findAnswer(answered.Error()); r != nil {
		return r.class
	}
	return stores.FailWrong
}

// classifyConnecting returns the class of an error that is no answer.
func classifyConnecting(err error) stores.Failure {
	if r := findPhrase(connecting, err.Error()); r != nil {
		return r.class
	}
	if errors.As(err, new(earlyClose)) {
		return stores.FailRejected
	}
	return stores.FailAway
}

// aboutSlot says whether an error of a node of a Cluster concerns only the slot that
// was called: one that is being moved, or that no node serves.
func aboutSlot(err error) bool {
	var answered goredis.Error
	if !errors.As(err, &answered) {
		return false
	}
	text := answered.Error()
	return strings.HasPrefix(text, "MOVED ") || strings.HasPrefix(text, "ASK ") || strings.HasPrefix(text, "TRYAGAIN ") ||
		strings.HasPrefix(text, "CLUSTERDOWN Hash slot not served")
}

// isMoving says whether a node has some of the keys of a call, and not all, because
// their slot is being moved. It has not run the call.
func isMoving(err error) bool { return err != nil && goredis.HasErrorPrefix(err, "TRYAGAIN") }

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, goredis.ErrPoolTimeout)
}

// isAnswer says whether an error is one that Redis returned.
func isAnswer(err error) bool { return errors.As(err, new(goredis.Error)) }
