package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// runner runs the script.
type runner struct {
	client goredis.UniversalClient // nil until conn.connect
	sticky *sticky                 // of the client's connections; nil: none
	seq    atomic.Uint64           // number of the last call
}

// eval runs the script. A reply is accepted only if it repeats the call's number.
// head is set to the argument with that number and with the time until which the
// call is worth running: a call that Redis takes up later changes nothing. That time
// is by the clock of the node; a call that is redirected may be late by the clock of
// the other, and is then sent once more if there is time.
func (c *runner) eval(ctx context.Context, o *once, args []any, head *heading) (reply, int64, error) {
	end, limited := ctx.Deadline()
	worth := end
	if !o.end.IsZero() {
		worth = o.end
	}
	for range 2 {
		begin := time.Now()
		if !o.end.IsZero() && !begin.Before(o.end) {
			return reply{}, 0, errUnsent
		}
		seq, last := int64(c.seq.Add(1)&(1<<52-1)), int64(noEnd)
		if limited {
			last = o.node.clock.at(worth, begin)
		}
		head.begin(seq, last)
		o.sent = begin
		o.node.breaker.sent(begin)
		p := c.sticky.take(ctx, o, begin)
		text, err := c.evalsha(ctx, p, o, args)
		after := time.Now()
		o.took = after.Sub(begin)
		if err != nil {
			c.sticky.put(o, p, after, err)
			if head.is.Load() != written {
				err = dialError{err}
			}
			return reply{}, 0, o.script.blame(whetherLate(err, end, after))
		}
		o.node.breaker.answered()
		r := reply{b: text}
		got, _, now := r.number(), r.number(), r.number()
		if r.err != nil || got != seq {
			c.sticky.put(o, p, after, errReply)
			o.node.tracker.retire(begin) // the connection may be out of step
			return reply{}, 0, errReply
		}
		c.sticky.put(o, p, after, nil)
		if !o.taught {
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
func (c *runner) evalsha(ctx context.Context, p holder, o *once, args []any) (string, error) {
	o.renew(ctx, args)
	if err := p.over(c.client).Process(ctx, o); err == goredis.Nil { //nolint:errorlint // within another it is the Sentinels' answer
		return "", fmt.Errorf("%w, but nil", errReply)
	} else if err != nil {
		return "", err
	}
	text, err := o.Text()
	if err != nil {
		return "", errReply
	}
	return text, nil
}
