package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/stores"
)

// Seen is a number of live instances. It outlives the store that counted them. 0: none was ever
// counted.
type Seen struct{ atomic.Int64 }

// Destruct implements caddy.Destructor. No store needs the number any more.
func (*Seen) Destruct() error { return nil }

// instances counts the live instances that share a Redis.
type instances struct {
	conn    *conn
	process uint64 // ID of this process
	fleet   string // see Options.Fleet
	live    *Seen
	old     atomic.Int64 // those of the last count that do not read documents of this format

	// lost is called if a node does not know this instance: it has lost the heartbeats, and
	// so perhaps the counts too. known says that a heartbeat has succeeded before.
	lost func(known bool)

	mu    sync.Mutex
	fewer time.Time // since when fewer are counted; zero: they are not
}

// beat sends a heartbeat to a node, under a tag that the node serves. The node that
// serves beatTag counts the live instances; while it is away the last number holds.
func (i *instances) beat(ctx context.Context, n *node, tag string) error {
	live, err := i.count(ctx, n, tag, "")
	switch {
	case tag != beatTag:
	case err != nil:
		i.failed()
	default:
		i.set(live, time.Now())
		if readers, err := i.count(ctx, n, tag, formatSuffix); err == nil {
			i.old.Store(max(0, live-readers))
		}
	}
	return err
}

// formatSuffix ends the name of the key that counts the instances which read the present format of
// documents, that with exceptions. Another format has another suffix.
const formatSuffix = ":2"

// errElsewhere says that another node answered a heartbeat: the slot has moved.
var errElsewhere = errors.New("the slot was moved to another node")

// count returns how many instances have sent a heartbeat under a tag, this one
// included, to the key with a suffix; "": all instances.
func (i *instances) count(ctx context.Context, to *node, tag, suffix string) (int64, error) {
	ctx, cancel := i.conn.background(ctx)
	defer cancel()
	op := binary.LittleEndian.AppendUint64([]byte{opBeat, 2}, i.process)
	prefix := i.conn.o.Prefix + ":{" + tag + "}"
	key := prefix
	if i.fleet != "" {
		key += ":" + i.fleet
	}
	o := &once{node: to, beat: true}
	q := newCall(time.Time{}, stores.Key{})
	q.add([]string{key + suffix, prefix + ":try"}, op)
	r, err := i.conn.callAt(ctx, o, q)
	if o.node != to && to.address != "" {
		return 0, errElsewhere
	}
	if err == nil {
		err = r.failed()
	}
	if err != nil {
		return 0, err
	}
	flags := r.byte()
	n := int64(r.uint32())
	if r.err != nil {
		return 0, r.err
	}
	if suffix == "" {
		if flags&flagMissing != 0 {
			i.lost(to.beats.Load())
		}
		to.beats.Store(true)
	}
	return n, nil
}

// fewerAfter is for how long fewer instances have to be counted before that is
// accepted: a Redis that lost its memory starts to count anew, and shares of an
// outage at that moment would be too large. Nor does a share grow in an outage: keys
// that were warmed with less of what is known would be admitted the rest of it.
const fewerAfter = 5 * time.Second

// set takes the number that Redis counted.
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

// failed follows a heartbeat that failed: fewer have to be counted anew.
func (i *instances) failed() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fewer = time.Time{}
}
