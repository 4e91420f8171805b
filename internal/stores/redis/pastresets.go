package redis

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/stores"
)

// pastResets are the latest resets that this instance has made or heard of. A Redis that starts from an older dump, or
// a replica that lags and is promoted, has the old counts and blocks of a key again, and not the mark of its reset.
type pastResets struct {
	o      *Options
	conn   *conn
	recent *recent
	leases *leases     // nil: nothing is leased
	older  atomic.Bool // Redis may have counts and blocks of before a reset again; otherwise it has at most lost the mark

	mu  sync.Mutex
	all []pastReset // the latest last
}

// pastReset is a reset of keys of one tag.
type pastReset struct {
	tag  stores.Key
	keys []keyToReset // that are marked
	at   int64        // by the clock of this process
	by   int64        // by that of its node, whose marks have it
}

const (
	mostPast      = 1000 // resets that are known
	resetsPerCall = 32   // that are put in force again in one call
)

// add notes resets. One that is known is as of the later.
func (p *pastResets) add(some ...pastReset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range some {
		s.keys = slices.DeleteFunc(s.keys, func(k keyToReset) bool { return k.marked == 0 })
		p.all = slices.DeleteFunc(p.all, func(o pastReset) bool {
			return o.tag == s.tag && slices.EqualFunc(o.keys, s.keys, func(a, b keyToReset) bool { return a.name == b.name })
		})
		p.all = append(p.all, s)
	}
	p.all = p.all[max(0, len(p.all)-mostPast):]
}

// list returns the resets that are known.
func (p *pastResets) list() []pastReset {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// note notes that a key was reset under counters.
func (p *pastResets) note(counters []*stores.Counter, k stores.Key) {
	if zones := zonesOf(counters, k); len(zones) > 0 {
		now := p.o.Clock()
		p.add(pastReset{k, resetsOf(p.o.Prefix, zones), now, p.conn.at(k).clock.shared(now)})
	}
}

// outdate discards what Redis said before a reset: no check is decided by it any more.
func (p *pastResets) outdate() {
	p.recent.reset(p.o.Clock())
	p.leases.clear()
}

// again puts what was reset in force again at a Redis that has perhaps lost it. Where that fails, it is done when the
// node answers.
func (p *pastResets) again(ctx context.Context) {
	perCall, older := resetsPerCall, p.older.Swap(false)
	if p.o.Cluster {
		perCall = 1
	}
	for some := range slices.Chunk(p.list(), perCall) {
		if tag := some[0].tag; !p.conn.usable(tag) || p.sendAgain(ctx, some, older) != nil {
			p.older.CompareAndSwap(false, older)
			p.conn.at(tag).unswept.Store(true)
		}
	}
	p.outdate()
}

// lost notes what a loss of memory means for resets.
func (p *pastResets) lost(older bool) {
	if older {
		p.older.Store(true)
	}
}

// sendAgain puts resets in force again, in one call.
func (p *pastResets) sendAgain(ctx context.Context, some []pastReset, older bool) error {
	ctx, cancel := p.conn.background(ctx)
	defer cancel()
	q, now, n := newCall(time.Time{}, some[0].tag), p.o.Clock(), 0
	for _, s := range some {
		for _, k := range s.keys {
			if ago := now - s.at; k.marked.Microseconds() > ago {
				q.add([]string{k.name, k.name + resetSuffix}, appendAgain(nil, k.marked.Milliseconds()-ago/1000, ago, s.by, older))
				n++
			}
		}
	}
	if n == 0 {
		return nil
	}
	return p.conn.reset(ctx, q, n)
}
