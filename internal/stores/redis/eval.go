package redis

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/scripts"
)

// once is a call of the script. It is never retried after a network error, because
// it may have run. Redirections of a Cluster are followed: a node that redirects a
// command has not run it.
type once struct {
	*goredis.Cmd
	node    *node // that is to run it; afterwards the last one that was called
	script  *script
	beat    bool  // whether it is sent though the node's breaker is open
	loads   int   // how often the script was loaded for it
	loading bool  // whether it is sent behind the script
	now     int64 // the time in its reply
	sent    time.Time
	took    time.Duration

	end time.Time // until when the call is worth running; zero: as long as its context
}

// maxLoads is how often the script is loaded for one call. A node may forget it
// again before the call arrives, because others may be served in between.
const maxLoads = 3

// NoRetry implements redis.Cmder.
func (*once) NoRetry() bool { return true }

// renew replaces the command by a new one with its arguments.
func (o *once) renew(ctx context.Context, args []any) {
	o.Cmd, o.loads = goredis.NewCmd(ctx, args...), 0
	o.SetFirstKeyPos(3)
}

// eval runs the script. A reply is accepted only if it repeats the call's number.
// head is set to the argument with that number and with the time until which the
// call is worth running: a call that Redis takes up later changes nothing. That time
// is by the clock of the node; a call that is redirected may be late by the clock of
// the other, and is then sent once more if there is time.
func (c *conn) eval(ctx context.Context, o *once, args []any, head *heading) (reply, int64, error) {
	end, limited := ctx.Deadline()
	worth := end
	if !o.end.IsZero() {
		worth = o.end
	}
	for range 2 {
		seq, last := int64(c.seq.Add(1)&(1<<52-1)), int64(noEnd)
		if limited {
			last = o.node.clock.at(worth)
		}
		head.begin(seq, last)
		begin := time.Now()
		o.sent = begin
		o.node.breaker.sent(begin)
		text, err := c.evalsha(ctx, o, args)
		after := time.Now()
		o.took = after.Sub(begin)
		if err != nil {
			if head.is.Load() != written {
				err = dialError{err}
			}
			return reply{}, 0, o.script.blame(whetherLate(err, end, after))
		}
		o.node.breaker.answered()
		r := reply{b: text}
		got, _, now := r.number(), r.number(), r.number()
		if r.err != nil || got != seq {
			o.node.tracker.retire(begin) // the connection may be out of step
			return reply{}, 0, errReply
		}
		if o.loads == 0 {
			o.node.distance.add(o.took)
		}
		if now >= 0 {
			o.node.clock.learn(now)
			o.now = now
			return r, now, nil
		}
		o.node.clock.learn(-now) // the node's clock is further ahead than it was
		if head.is.Load() == revoked || !after.Before(worth) {
			break
		}
	}
	return reply{}, 0, errLate
}

// evalsha runs the script by its hash.
func (c *conn) evalsha(ctx context.Context, o *once, args []any) (string, error) {
	o.renew(ctx, args)
	if err := c.client.Process(ctx, o); err != nil {
		return "", err
	}
	text, err := o.Text()
	if err != nil {
		return "", errReply
	}
	return text, nil
}

// nodeHook runs calls of the script at one node, wherever they come from: the first
// node, or one that redirects them. If the node does not know the script, it is
// loaded there and run in one more round trip: the first call charged nothing.
type nodeHook struct {
	conn   *conn
	client *goredis.Client
}

// enter makes the node the one that runs a call.
func (h *nodeHook) enter(o *once) error {
	if n := h.conn.nodes.called(h.client); n != o.node {
		o.node = n
		n.breaker.sent(time.Now())
	}
	if !o.beat && o.node.breaker.open.Load() {
		o.SetErr(errOpen)
		return errOpen
	}
	return nil
}

// needsScript says whether the script has to be loaded for a call that failed. A node that has run
// heartbeats had it: it may have restarted, from what it had saved.
func needsScript(o *once, err error) bool {
	if err == nil || o.loads == maxLoads || !goredis.HasErrorPrefix(err, "NOSCRIPT") {
		return false
	}
	o.loads++
	if told := o.node.told.Load(); told != 0 && o.script.codes == "" {
		o.node.told.CompareAndSwap(told, restarted)
	}
	return true
}

// DialHook implements redis.Hook.
func (*nodeHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h *nodeHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		o, ok := cmd.(*once)
		if !ok {
			return next(ctx, cmd)
		}
		if err := h.enter(o); err != nil {
			return err
		}
		err := next(ctx, cmd)
		for needsScript(o, err) {
			err = h.load(ctx, o)
		}
		return err
	}
}

// load loads the script at the node and runs a call.
func (h *nodeHook) load(ctx context.Context, o *once) error {
	o.loading = true
	defer func() { o.loading = false }()
	pipe := h.client.Pipeline()
	load := pipe.ScriptLoad(ctx, o.script.text)
	_ = pipe.Process(ctx, o)
	_, _ = pipe.Exec(ctx)
	return cmp.Or(load.Err(), o.Err())
}

// ProcessPipelineHook implements redis.Hook. A Cluster's client sends a call that a
// node redirects for a moving slot behind ASKING.
func (h *nodeHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		o, ok := cmds[len(cmds)-1].(*once)
		if !ok || o.loading {
			return next(ctx, cmds)
		}
		if err := h.enter(o); err != nil {
			return err
		}
		err := next(ctx, cmds)
		for needsScript(o, o.Err()) {
			load := goredis.NewStringCmd(ctx, "script", "load", o.script.text)
			err = next(ctx, slices.Insert(slices.Clone(cmds), 0, goredis.Cmder(load)))
			if load.Err() != nil {
				o.SetErr(load.Err())
			}
		}
		return err
	}
}

// inScript matches the position of an error in a script.
var inScript = regexp.MustCompile(`user_script:(\d+):`)

// blame returns an error of Redis with the names of the third-party algorithms that may
// have caused it: an error of Lua, in a script that has any.
func (s *script) blame(err error) error {
	var answered goredis.Error
	if s.codes == "" || !errors.As(err, &answered) || findAnswer(answered.Error()) != nil {
		return err
	}
	at := inScript.FindStringSubmatch(answered.Error())
	if at == nil {
		return err
	}
	line, _ := strconv.Atoi(at[1])
	return algorithmError{scripts.Decide().Names(s.text, s.codes, line), err}
}
