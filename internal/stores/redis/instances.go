package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/stores"
)

// instances counts the live instances that share a Redis.
type instances struct {
	conn    *conn
	process uint64 // ID of this process
	fleet   string // see Options.Fleet
	closing bool   // whether the store closes: its heartbeats find out whether Redis answers, so that no report is sent in vain, and do not count
	live    *Seen
	old     atomic.Int64 // those of the last count that do not read documents of this format

	// lost is called if a node does not know this instance any more, or only from earlier: it has lost heartbeats,
	// and so perhaps counts too. older: it may have what it had before instead.
	lost func(older bool)

	mu    sync.Mutex
	fewer time.Time // since when fewer are counted; zero: they are not
}

// beat sends a heartbeat to a node, under a tag that the node serves. The node that
// serves beatTag counts the live instances; while it is away the last number holds.
func (i *instances) beat(ctx context.Context, n *node, tag string) error {
	known := n.told.Load() != 0
	live, missing, err := i.count(ctx, n, tag, "")
	switch {
	case tag != beatTag:
	case err != nil:
		i.failed()
	default:
		i.counts(live, missing && known, time.Now())
		if readers, missing, err := i.count(ctx, n, tag, formatSuffix); err == nil && (!missing || !known) {
			i.old.Store(max(0, live-readers))
		}
	}
	return err
}

// Suffixes of the names of keys that count instances.
const (
	formatSuffix = ":2"   // those that read the present format of documents, that with exceptions; another format has another
	trySuffix    = ":try" // those that try a tag whose call was rejected
)

// errElsewhere says that another node answered a heartbeat: the slot has moved.
var errElsewhere = errors.New("the slot was moved to another node")

// count returns how many instances have sent a heartbeat under a tag, this one
// included, to the key with a suffix; "": all instances. missing says that the node did not know this
// instance or, without a suffix, only an earlier heartbeat of it than the last. With a key, the heartbeat is sent where
// that is; it is not read.
func (i *instances) count(ctx context.Context, to *node, tag, suffix string, at ...string) (live int64, missing bool, err error) {
	ctx, cancel := i.conn.background(ctx)
	defer cancel()
	var told int64
	if suffix == "" {
		told = to.told.Load()
	}
	prefix := i.conn.o.Prefix + ":{" + tag + "}"
	key := prefix
	if i.fleet != "" {
		key += ":" + i.fleet
	}
	if i.closing && told >= 0 { // otherwise the server has perhaps restarted, which the others may not know
		key += ":closing"
	}
	o := &once{node: &to.server, beat: true}
	q := newCall(time.Time{}, stores.Key{})
	names := append(slices.Clone(at), key+suffix, prefix+":try")
	q.add(names, appendNumber(binary.LittleEndian.AppendUint64([]byte{opBeat, byte(len(names))}, i.process), told))
	left := to.clock.local()
	r, err := i.conn.callAt(ctx, o, q)
	ahead := offsetOf(o.now, left, to.clock.local())
	if o.node != &to.server && to.address != "" {
		return 0, false, errors.Join(errElsewhere, err)
	}
	if err == nil {
		err = r.failed()
	}
	if err != nil {
		return 0, false, err
	}
	flags, live := r.byte(), int64(r.uint32())
	missing = flags&flagMissing != 0
	if r.err == nil && suffix == "" {
		if missing {
			i.conn.permits.lose()
		}
		if missing && told != 0 { // before the first heartbeat it could not know
			i.lost(flags&flagOlder != 0 && !to.wasSet(ahead))
		}
		to.ahead.Store(ahead)
		to.told.CompareAndSwap(told, o.now) // unless it was found to have restarted meanwhile
	}
	return live, missing, r.err
}

// fewerAfter is for how long fewer instances have to be counted before that is
// accepted: a Redis that lost its memory starts to count anew, and shares of an
// outage at that moment would be too large. Nor does a share grow in an outage: keys
// that were warmed with less of what is known would be admitted the rest of it.
const fewerAfter = 5 * time.Second

// counts takes the number that Redis counted. anew says that it has begun to count anew, after a loss or
// an eviction: not all others have sent a heartbeat since.
func (i *instances) counts(n int64, anew bool, now time.Time) {
	if anew && n < i.live.Load() {
		i.failed()
		return
	}
	i.set(n, now)
}

// set takes the number that Redis counted of all.
func (i *instances) set(n int64, now time.Time) {
	if i.accept(n, now) {
		i.conn.observer.get().Live(i.conn.observer.name, int(n))
	}
}

// accept says whether the number of live instances has changed to n.
func (i *instances) accept(n int64, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	was := i.live.Load()
	switch {
	case n >= was:
		i.fewer = time.Time{}
	case i.fewer.IsZero():
		i.fewer = now
		return false
	case now.Sub(i.fewer) < fewerAfter || !i.conn.nodes.decideAll():
		return false
	}
	i.live.Store(n)
	return n != was
}

// failed follows a heartbeat that counted nothing: fewer have to be counted anew.
func (i *instances) failed() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fewer = time.Time{}
}
