package redis

import (
	"context"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/outage"
	"github.com/dianalimiter/diana/stores"
)

// outages implements [outage.Redis].
type outages struct {
	o       *Options
	conn    *conn
	permits *permits
	past    *pastResets
}

func (a *outages) Usable(tag stores.Key) bool              { return a.conn.usable(tag) }
func (a *outages) AnyUsable() bool                         { return a.conn.anyUsable() }
func (a *outages) Pausing() bool                           { return a.conn.nodes.pausing() }
func (a *outages) MayHaveRun(err error) bool               { return mayHaveRun(err) }
func (a *outages) Await(err error, then func(outage.Fate)) { await(err, then) }

func (a *outages) Unswept(tag stores.Key) { a.conn.at(tag).unswept.Store(true) }

func (a *outages) ResetAgain(ctx context.Context) { a.past.again(ctx) }

func (a *outages) Owed() (paid func()) {
	owed := a.conn.nodes.owed()
	return func() {
		for _, n := range owed {
			n.paid(a.o.Clock())
		}
	}
}

func (a *outages) Now(tag stores.Key) memory.Instant {
	local := a.o.Clock()
	return a.o.instant(local, a.conn.at(tag).clock.shared(local))
}

func (a *outages) Note(z *stores.ZoneCheck, permits, cost int64) { a.permits.note(z, permits, cost) }

func (a *outages) Uncharged(zone string, why stores.Uncharged, cost int64) {
	a.conn.observer.get().Uncharged(zone, why, cost)
}

// instant returns an instant on the clocks of this process and of a node.
func (o *Options) instant(local, shared int64) memory.Instant {
	return memory.Instant{Local: local, Shared: shared, Tolerance: 1e6 + 2*o.Timeout.Microseconds()}
}

// HandOver implements [outage.Redis]. A peek follows each handover but blocks.
func (a *outages) HandOver(ctx context.Context, some []outage.Handover) (out outage.Reply, err error) {
	// A call under way is not canceled: it would not be known whether it was made.
	ctx, cancel := a.conn.background(context.WithoutCancel(ctx))
	defer cancel()
	q, looks := newCall(time.Time{}, some[0].Zone.Tag), make([]stores.Check, len(some))
	for i := range some {
		z := &some[i].Zone
		at := &a.conn.at(z.Tag).clock
		q.handOver(a.o.Prefix, &some[i], at)
		if some[i].Block == nil {
			looks[i] = stores.Check{Peek: true, Zones: []stores.ZoneCheck{usedOf(z)}}
			q.decide(a.o.Prefix, &looks[i], at)
		}
	}
	left := a.o.Clock()
	r, now, err := a.conn.call(ctx, q)
	out.Time = a.o.instant(left, now)
	for i := 0; i < len(some) && err == nil; i++ {
		var of outage.Outcome
		if of.Refused, of.Err = r.refused(); of.Err != nil {
			a.conn.fail(of.Err)
		}
		if look := looks[i].Zones; look != nil && r.readPeek(&look[0], now) == nil {
			of.Has = &look[0]
		}
		if err = r.err; err == nil {
			out.Keys = append(out.Keys, of)
		}
	}
	return out, err
}

// handOver adds a handover.
func (q *call) handOver(prefix string, h *outage.Handover, at *clock) {
	if h.Block == nil {
		q.add([]string{string(appendName(nil, prefix, &h.Zone)), resetName(prefix, &h.Zone)}, appendHandover(nil, h, at))
		return
	}
	op := []byte{opBlock, 2}
	for _, v := range [...]int64{h.Block.Until, h.Block.Span, ruleAndStep(h.Block), h.BlockTime, h.Tolerance} {
		op = appendNumber(op, v)
	}
	name := string(appendBlock(nil, prefix, &h.Zone))
	q.add([]string{name, name + resetSuffix}, op)
}

var _ outage.Redis = (*outages)(nil)
