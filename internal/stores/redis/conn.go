package redis

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/scripts"
)

// conn calls the script of one Redis. The script is loaded once and called by
// its hash.
type conn struct {
	o        *ConnOptions
	instance uint64                  // random ID of this store, whose permits and messages are not those of others in this process
	client   goredis.UniversalClient // nil until connect
	tracker  *connTracker
	script   *script // for rules with built-in algorithms
	seq      atomic.Uint64
	batchers []batcher
	clock    *clock
	breaker  *breaker
	observer *observer
	permits  *permits // what the calls report of; nil: they report nothing
	failures atomic.Uint64

	scripts sync.Map // *script by the codes of third-party algorithms in it

	// onLost is called when a connection may lead to a server that is gone.
	onLost func()
}

func newConn(o *ConnOptions, l *clock, b *breaker, to *observer) *conn {
	c := &conn{
		o: o, instance: rand.Uint64(), clock: l, breaker: b, observer: to, onLost: func() {}, //nolint:gosec // it only has to be unique
		tracker: newConnTracker(max(o.Timeout, minReadTimeout)), batchers: newBatchers(o.Cluster),
	}
	c.setScript(o.Script)
	return c
}

// script is a script and its hash.
type script struct {
	text  string
	sha   any    // as an argument of EVALSHA
	codes string // of the third-party algorithms in it
}

// setScript sets what Redis runs. Empty: the script of the package scripts.
func (c *conn) setScript(text string) {
	c.script = newScript(cmp.Or(text, scripts.Decide().Text), "")
	c.scripts.Clear()
}

func newScript(text, codes string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return &script{text, hex.EncodeToString(sum[:]), codes}
}

// scriptFor returns the script for rules with these third-party algorithms.
func (c *conn) scriptFor(codes string) *script {
	if codes == "" {
		return c.script
	}
	s, ok := c.scripts.Load(codes)
	if !ok {
		s, _ = c.scripts.LoadOrStore(codes, newScript(scripts.Decide().Add(c.script.text, codes), codes))
	}
	return s.(*script) //nolint:forcetypeassert // nothing else is stored there
}

// connect creates the client. It does not wait for a connection.
func (c *conn) connect() { c.client = newClient(c.o, c.tracker) }

// usable says whether Redis is to be called.
func (c *conn) usable() bool { return c.client != nil && !c.breaker.open.Load() }

// call runs the script over operations that share their call with no others. It
// returns the reply after the header.
func (c *conn) call(ctx context.Context, keys []string, ops ...[]byte) (reply, error) {
	return c.callWith(ctx, c.script, keys, ops...)
}

// callWith is call with the script for third-party algorithms.
func (c *conn) callWith(ctx context.Context, s *script, keys []string, ops ...[]byte) (reply, error) {
	args := make([]any, 0, 4+len(keys)+len(ops))
	args = append(args, "evalsha", s.sha, len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	head := new(argument)
	args = append(args, head)
	var before *argument
	for _, op := range ops {
		args, before = appendOp(args, before, &argument{b: op})
	}
	r, _, err := c.eval(ctx, s, args, head)
	if err != nil {
		return reply{}, err
	}
	return r, r.failed()
}

// send makes a call, alone or in a batch with others, and returns its reply. The
// call must not be used afterwards.
func (c *conn) send(q *call) (r reply, now int64, err error) {
	if err = c.batch(q); err == nil {
		r, now = reply{b: q.text}, q.now
		err = r.failed()
		q.claim()
	}
	if err != errUnanswered { //nolint:errorlint // it is never wrapped; the batch may still use an unanswered call
		q.release()
	}
	return r, now, err
}

// batch makes a call in a batch with those that wait for the same batcher.
func (c *conn) batch(q *call) error {
	l := &c.batchers[q.tag.Lo%uint64(len(c.batchers))]
	sends, idle := l.enter(q)
	if !sends {
		if <-q.ready; q.state != sending {
			return q.err
		}
	}
	if !idle {
		// Goroutines that are ready to run may have calls to add. On a machine
		// with idle processors there are none, and this costs next to nothing.
		runtime.Gosched()
		l.join(q)
	}
	switch {
	case c.breaker.open.Load():
		q.err = errOpen
	case !time.Now().Before(q.end):
		q.err = errUnsent
	default:
		q.err = c.sendBatch(q)
	}
	if next := l.end(q, c.permits.abandon); next != nil {
		next.ready <- struct{}{}
	}
	for _, o := range q.batch {
		if o != nil {
			o.ready <- struct{}{}
		}
	}
	return q.err
}

// sendBatch runs the script once for a batch.
func (c *conn) sendBatch(q *call) error {
	ctx, cancel := context.WithDeadline(context.Background(), q.end)
	defer cancel()
	c.permits.leave(q.batch)
	s := c.scriptFor(q.codes) // all in the batch have the same codes
	q.batchArgs(s.sha)
	r, now, err := c.eval(ctx, s, q.args, &q.head)
	if err == nil {
		for _, o := range q.batch {
			o.now = now
			o.cut(&r)
		}
		if r.err != nil || len(r.b) > 0 {
			err = errReply
		}
	}
	c.permits.arrive(q.batch, err)
	if err != nil {
		c.fail(err)
		return reported{err}
	}
	return err
}

// eval runs the script. A reply is accepted only if it repeats the call's number.
// head is set to the argument with that number and with the time until which the
// call is worth running: a call that Redis takes up later changes nothing.
func (c *conn) eval(ctx context.Context, s *script, args []any, head *argument) (reply, int64, error) {
	end, limited := ctx.Deadline()
	for range 2 {
		seq, last := int64(c.seq.Add(1)&(1<<52-1)), int64(noEnd)
		if limited {
			last = c.clock.at(end)
		}
		head.b = appendNumber(appendNumber(head.b[:0], seq), last)
		text, err := c.evalsha(ctx, s, args)
		if err != nil {
			return reply{}, 0, s.blame(err)
		}
		r := reply{b: text}
		got, _, now := r.number(), r.number(), r.number()
		if r.err != nil || got != seq {
			return reply{}, 0, errReply
		}
		if now >= 0 {
			c.clock.learn(now)
			return r, now, nil
		}
		c.clock.learn(-now) // Redis' clock is further ahead than it was
	}
	return reply{}, 0, errLate
}

// evalsha runs the script by its hash. If Redis does not know the script, it is
// loaded and run in one more round trip: the first call charged nothing.
func (c *conn) evalsha(ctx context.Context, s *script, args []any) (string, error) {
	cmd := newOnce(ctx, args)
	err := c.client.Process(ctx, cmd)
	if err == nil || !goredis.HasErrorPrefix(err, "NOSCRIPT") {
		return textOf(cmd, err)
	}
	again := newOnce(ctx, args)
	if cluster, ok := c.client.(*goredis.ClusterClient); ok {
		if err := cluster.ScriptLoad(ctx, s.text).Err(); err != nil {
			return "", err
		}
		return textOf(again, cluster.Process(ctx, again))
	}
	pipe := c.client.Pipeline()
	load := pipe.ScriptLoad(ctx, s.text)
	_ = pipe.Process(ctx, again)
	_, err = pipe.Exec(ctx)
	if load.Err() != nil {
		return "", load.Err()
	}
	return textOf(again, err)
}

// backgroundTimeout is the least timeout of a call that no request waits for.
const backgroundTimeout = 250 * time.Millisecond

// background limits a call that no request waits for.
func (c *conn) background(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(c.o.Timeout, backgroundTimeout))
}

// end returns until when a caller waits: the timeout, or the context's deadline
// if that is earlier. A canceled context does not end a call: the request is
// charged.
func (c *conn) end(ctx context.Context) time.Time {
	end := time.Now().Add(c.o.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	return end
}

// fail reports a failed call to the observer and to the breaker.
func (c *conn) fail(err error) {
	if errors.As(err, new(reported)) || errors.Is(err, errOpen) {
		return // it was counted with the call that failed
	}
	f := classify(err)
	c.failures.Add(1)
	c.observer.get().StoreError(c.observer.name, f, err)
	if err == errUnsent || err == errUnanswered { //nolint:errorlint // they are never wrapped
		return // the call that it waited for reports the failure
	}
	if errors.As(err, new(algorithmError)) {
		return // rules without the algorithm are decided in Redis
	}
	if f == FailAway || f == FailTimeout {
		c.onLost()
	}
	c.distrust(f)
	c.breaker.failure(f, err)
}

// distrust replaces the open connections after a failure, unless Redis refused
// the call, which shows that the connection works. In a Cluster it also has the
// slots looked up again, which the client itself only does when a node redirects
// it.
func (c *conn) distrust(f Failure) {
	if f == FailRefused || f == FailWrong {
		return
	}
	c.tracker.retire()
	if cluster, ok := c.client.(*goredis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// once is a command that is never retried after a network error, because it may
// have run. Redirections of a Cluster are followed: a node that redirects a
// command has not run it.
type once struct{ *goredis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

func newOnce(ctx context.Context, args []any) once {
	cmd := goredis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return once{cmd}
}

func textOf(cmd once, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text, err := cmd.Text()
	if err != nil {
		return "", errReply
	}
	return text, nil
}
