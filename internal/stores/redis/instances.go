package redis

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// instances counts the live instances that share a Redis.
type instances struct {
	conn    *conn
	process uint64       // ID of this process
	fleet   string       // see Options.Fleet
	live    atomic.Int64 // 0: never counted
	beats   bool         // a heartbeat has succeeded
	fewer   time.Time    // since when fewer are counted; zero: they are not

	// lost is called if Redis does not know this instance: it has lost the heartbeats, and
	// so perhaps the counts too. known says that a heartbeat has succeeded before.
	lost func(known bool)
}

// beat tells Redis that this instance is alive, and counts the live instances.
func (i *instances) beat(ctx context.Context) error {
	n, err := i.count(ctx)
	if err == nil {
		i.set(n, time.Now())
	}
	return err
}

// count returns how many instances are alive, this one included.
func (i *instances) count(ctx context.Context) (int64, error) {
	ctx, cancel := i.conn.background(ctx)
	defer cancel()
	op := binary.LittleEndian.AppendUint64([]byte{opBeat, 2}, i.process)
	prefix := i.conn.o.Prefix + ":{instances}"
	key := prefix
	if i.fleet != "" {
		key += ":" + i.fleet
	}
	r, err := i.conn.call(ctx, []string{key, prefix + ":try"}, op)
	if err != nil {
		return 0, err
	}
	flags := r.byte()
	n := int64(r.uint32())
	if r.err != nil {
		return 0, r.err
	}
	if flags&flagMissing != 0 {
		i.lost(i.beats)
	}
	i.beats = true
	return n, nil
}

// fewerAfter is for how long fewer instances have to be counted before that is
// accepted: a Redis that lost its memory starts to count anew, and shares of an
// outage at that moment would be too large.
const fewerAfter = 5 * time.Second

// set takes the number that Redis counted. Only the heartbeat calls it.
func (i *instances) set(n int64, now time.Time) {
	was := i.live.Load()
	switch {
	case n >= was:
		i.fewer = time.Time{}
	case i.fewer.IsZero():
		i.fewer = now
		return
	case now.Sub(i.fewer) < fewerAfter:
		return
	}
	if n != was {
		i.live.Store(n)
		i.conn.observer.get().Live(i.conn.observer.name, int(n))
	}
}
