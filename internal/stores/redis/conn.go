package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/scripts"
	"github.com/dianalimiter/diana/stores"
)

// conn calls the script of one Redis, or of the nodes of a Cluster. The script is
// loaded once at each node and called by its hash.
type conn struct {
	runner

	o        *ConnOptions
	instance uint64 // random ID of this store, whose permits and messages are not those of others in this process
	nodes    *nodes
	script   *script // for rules with built-in algorithms
	observer *observer
	permits  *permits // which calls may report
	costs    costs
	pool     int           // its size
	back     chan struct{} // receives when a node is used again

	scripts sync.Map // *script by the codes of third-party algorithms in it

	subscription subscription
}

// newConn returns a conn that does not connect before connect. local is the clock of this process.
func newConn(o *ConnOptions, local func() int64, to *observer, p *permits) *conn {
	c := &conn{
		o: o, instance: rand.Uint64(), pool: o.poolSize(), observer: to, permits: p, back: make(chan struct{}, 1), //nolint:gosec // it only has to be unique
		subscription: subscription{clock: local},
	}
	c.nodes = newNodes(o, local, func(n *node, up bool, cause error) {
		if up {
			c.fill()
			c.permits.lose()
			signal(c.back) // debts are handed over at once
			to.get().StoreUp(to.name, n.address)
		} else {
			to.get().StoreDown(to.name, n.address, classify(cause), c.advise(cause))
		}
	})
	c.script = newScript(cmp.Or(o.Script, scripts.Decide().Text), "")
	return c
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
func (c *conn) connect() {
	tracker := func(address string) *connTracker { return c.nodes.of(address).tracker }
	c.client = newClient(c.o, 0, tracker, func(client *goredis.Client) { client.AddHook(&nodeHook{c.nodes, client}) })
	c.nodes.cluster, _ = c.client.(*goredis.ClusterClient)
	c.sticky = newSticky(c.client, c.pool)
	if c.o.Master != "" {
		c.fill()
	}
}

// at returns the node that decides the keys of a tag.
func (c *conn) at(tag stores.Key) *node { return c.nodes.at(tag) }

// clientAt returns the client of the node that serves the slot of a hash tag.
func (c *conn) clientAt(ctx context.Context, tag string) (goredis.UniversalClient, error) {
	if c.nodes.cluster == nil {
		return c.client, nil
	}
	return c.nodes.cluster.MasterForKey(ctx, tag)
}

// usable says whether the node that decides the keys of a tag is to be called.
func (c *conn) usable(tag stores.Key) bool { return c.calls(c.at(tag)) }

// anyUsable says whether any node is to be called.
func (c *conn) anyUsable() bool { return slices.ContainsFunc(c.nodes.all(), c.calls) }

// calls says whether a node is to be called.
func (c *conn) calls(n *node) bool { return c.client != nil && !n.breaker.open.Load() }

// away returns that a node is not called, and why.
func (c *conn) away(n *node) error {
	c.nodes.mu.Lock()
	defer c.nodes.mu.Unlock()
	if n.cause == nil { // it was not called yet
		return stores.ErrUnavailable
	}
	return c.unavailable(n.cause)
}

// unavailable says of an error that because of it the store has not done what it was asked.
func (c *conn) unavailable(err error) error {
	return fmt.Errorf("%w: %w", stores.ErrUnavailable, c.advise(err))
}

// call runs the script over operations that share their call with no others, and reports a
// failure. It returns the reply after the header, and its time.
func (c *conn) call(ctx context.Context, q *call) (reply, int64, error) {
	o := &once{node: &c.at(q.tag).server}
	r, err := c.callAt(ctx, o, q)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) { // when the store ends
		err = c.failedAt(o, q, err)
	}
	return r, o.now, err
}

// callAt runs the script over operations at a node. It returns the reply after the
// header, in which single operations may have failed, and does not report a failure.
func (c *conn) callAt(ctx context.Context, o *once, q *call) (reply, error) {
	o.script = c.scriptFor(q.codes)
	q.batchArgs(o.script.sha, []*call{q})
	r, _, err := c.eval(ctx, o, q.args, &q.head)
	return r, err
}

// send makes a call, alone or in a batch with others, and returns its reply. A
// failure is reported. The call must not be used afterwards.
func (c *conn) send(q *call) (r reply, now int64, err error) {
	at := c.at(q.tag)
	n := &at.server
	q.node = n
	l, most := at.batcherOf(q, c.pool)
	if err = l.do(q, most, c); err == nil {
		n = q.node // another, if the call was redirected
		r, now = reply{b: q.text}, q.now
		if !q.checks {
			err = r.failed()
		}
		q.claim()
	}
	end := q.end
	if q.reusable() {
		q.release()
	}
	if err != nil {
		return r, now, c.failed(n, err, end.Add(-c.o.Timeout))
	}
	n.breaker.success()
	n.alone.decided.Add(1)
	return r, now, nil
}

// sendsApart says whether a call is sent apart from its caller, because the node is far or in trouble, and until when:
// opening a connection may take as long.
func (c *conn) sendsApart(q *call) (end time.Time, apart bool) {
	if n := q.node; n.distance.far() || n.breaker.trouble.Load() != 0 {
		return time.Now().Add(n.tracker.grace), true
	}
	return end, false
}

// abandon gives back what a call was granted whose caller did not wait.
func (c *conn) abandon(q *call) { c.permits.abandon(q) }

// sendBatch runs the script once for a batch. A node that has some of the keys of a
// moving slot, and not all, refuses them together, so that they are sent one by one.
func (c *conn) sendBatch(q *call, end time.Time) {
	ctx := &deadline{at: end}
	defer ctx.release()
	err := c.sendSome(ctx, q, q.batch)
	if len(q.batch) > 1 && isMoving(err) {
		for i, o := range q.batch {
			o.fate = c.sendSome(ctx, q, q.batch[i:i+1])
		}
		return
	}
	switch {
	case err == nil, err == errUnsent: //nolint:errorlint // it is never wrapped; each caller reports its own
	case end.After(q.end) && classify(err) == stores.FailTimeout && time.Now().After(q.end):
		err = reported{err} // when it expired
	default:
		err = c.failedAt(&q.cmd, q.batch[0], err)
	}
	for _, o := range q.batch {
		o.fate = err
	}
}

// sendSome runs the script once for some calls of a batch.
func (c *conn) sendSome(ctx context.Context, q *call, some []*call) error {
	if q.cmd.node = q.node; q.node.breaker.open.Load() {
		return errOpen
	}
	c.permits.leave(some)
	q.cmd.script = c.scriptFor(q.codes) // all in the batch have the same codes
	q.batchArgs(q.cmd.script.sha, some)
	q.cmd.end = q.end
	r, now, err := c.eval(ctx, &q.cmd, q.args, &q.head)
	if err != errUnsent { //nolint:errorlint // it is never wrapped
		c.costs.add(len(some), q.cmd.took)
	}
	if err == nil {
		for _, o := range some {
			o.node, o.now = q.cmd.node, now // the node may be another than expected
			o.cut(&r)
		}
		if r.err != nil || len(r.b) > 0 {
			err = errReply
		}
	}
	c.permits.arrive(some, err)
	c.outcome(q.cmd.node, some, err)
	return err
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

// fail reports a failed call to the observer, once. Only failed also changes the breaker of the
// node that was called.
func (c *conn) fail(err error) {
	if errors.As(err, new(reported)) || errors.Is(err, errOpen) {
		return // it was counted with the call that failed
	}
	c.observer.get().StoreError(c.observer.name, classify(err), c.advise(err))
}

// announces is what to do about addresses that a Cluster tells, and that lead to no node from here.
const announces = "; if the Cluster tells addresses that cannot be reached from here, set cluster-announce-ip or " +
	"cluster-announce-hostname, and cluster-announce-port, at its nodes"

// advise is the function of this name. Where a node of a Cluster is, the Cluster itself tells.
func (c *conn) advise(err error) error {
	f := classify(err)
	if text := advice(f, err); c.o.Cluster && (f == stores.FailAway || f == stores.FailTimeout) && errors.As(err, new(dialError)) {
		return advised{err, text + announces}
	}
	return advise(f, err)
}

// failed reports the failure of a call to a node, which was sent at some time. It returns the error as one
// that is reported; nil if the call did not fail.
func (c *conn) failed(n *server, err error, sent time.Time) error {
	if err == nil || errors.As(err, new(reported)) || errors.Is(err, errOpen) {
		return err
	}
	c.fail(err)
	f, now := c.classify(err), time.Now()
	if f == stores.FailWrong || c.o.Cluster && aboutSlot(err) {
		n.breaker.answered()
		n.breaker.troubled(now)
		return reported{err}
	}
	n.failures.Add(1)
	if errors.Is(err, errUnsent) || errors.Is(err, errUnanswered) && !sendsBatch(err) {
		return reported{err} // the call that it waited for is counted
	}
	n.breaker.failure(f, err, now)
	if f == stores.FailTimeout && !n.breaker.open.Load() {
		signal(n.doubted) // a heartbeat shows whether Redis answers again
		return reported{err}
	}
	if f != stores.FailRejected {
		c.subscription.replace(n)
	}
	c.distrust(n, f, err, sent)
	return reported{err}
}

// classify is the function of this name for a call: of a server that has slots, one is enough to show
// that it is a node of a Cluster.
func (c *conn) classify(err error) stores.Failure {
	if !c.o.Cluster && aboutSlot(err) && !isMoving(err) {
		return stores.FailRejected
	}
	return classify(err)
}

// failedAt is failed for a call, with others perhaps. If the node is away because of it, heartbeats are sent where it was
// sent, too: a node may accept their keys and reject others.
func (c *conn) failedAt(o *once, q *call, err error) error {
	opened := o.node.breaker.opened.Load()
	if err != nil && c.classify(err) == stores.FailRejected {
		o.node.rejected.Store(targetOf(q))
	}
	told := c.failed(o.node, err, o.sent)
	if o.node.breaker.opened.Load() != opened {
		o.node.rejected.Store(targetOf(q))
	}
	return told
}

// beatFailed follows a heartbeat that failed, and was sent at some time. A node that is known to be away is
// not reported again.
func (c *conn) beatFailed(n *server, err error, sent time.Time) {
	if n.breaker.open.Load() {
		c.distrust(n, classify(err), err, sent)
		return
	}
	_ = c.failed(n, err, sent)
	n.breaker.beatFailed(err, time.Now())
}

// distrust replaces the open connections to a node after a failure, unless the node
// refused the call, which shows that the connection works, if not its login. Words that are not known may be those
// of something else. In a Cluster it also looks the slots up again, which the client itself only
// does when a node redirects it.
func (c *conn) distrust(n *server, f stores.Failure, err error, sent time.Time) {
	if f == stores.FailRejected && !refusesLogin(err) {
		return
	}
	n.tracker.retire(sent)
	if c.nodes.cluster != nil {
		c.nodes.cluster.ReloadState(context.Background())
	} else if !n.breaker.open.Load() {
		c.fill()
	}
}

// kept returns how many connections are kept ready. When one is used, a pool opens another beside requests,
// except that of a master that Sentinels name (see newClient). That pool is given as many as calls may be in
// flight at a far master, and some for reports and heartbeats.
func (c *conn) kept() int {
	calls := c.nodes.first.distance.inFlight(c.pool / 2)
	if c.o.Master == "" || calls <= callsInFlight {
		return keptReady
	}
	return max(keptReady, min(calls+callsInFlight+keptReady, c.pool-keptReady))
}

// refill opens connections to a master that Sentinels name, if fewer are open than are kept ready, beside that of
// the subscription.
func (c *conn) refill(n *node) {
	if c.o.Master != "" && int(n.tracker.ready.Load())-1 < c.kept() {
		c.fill()
	}
}

// fill opens the connections that are kept ready, beside requests: the pool finds out that its own are
// retired only when a request needs one. A Cluster's client has a pool for each node, which does as much
// when it is created.
func (c *conn) fill() {
	client, ok := c.client.(*goredis.Client)
	if !ok || c.o.Lazy {
		return
	}
	for range c.kept() {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), c.o.DialTimeout)
			defer cancel()
			_ = client.Ping(ctx).Err() // what fails is found by calls
		}()
	}
}
