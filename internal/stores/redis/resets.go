package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/lib/subscribe"
	"github.com/dianalimiter/diana/internal/stores/outage"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/hash"
)

const resetTimeout = time.Second

// resets clears keys in this process, in Redis, and in the other instances, by
// messages on a channel.
type resets struct {
	o       *Options
	conn    *conn
	hands   *outage.Handovers
	past    *pastResets
	watched func() // is called when somebody looks at the fleet
}

// resetChannel is where instances publish resets.
func resetChannel(prefix string) string { return prefix + ":{resets}" }

// id identifies this store in messages. Another store of this process may use the same
// channel: it is told of the reset as another instance is.
func (r *resets) id() string { return strconv.FormatUint(r.conn.instance, 16) }

func (r *resets) resetLocal(counters []*stores.Counter, k stores.Key) {
	r.hands.Reset(counters, k)
	r.past.outdate()
}

func (r *resets) reset(ctx context.Context, zone string, counters []*stores.Counter, k stores.Key) error {
	r.resetLocal(counters, k)
	if !r.conn.usable(k) {
		return r.conn.away(r.conn.at(k))
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.o.Timeout, resetTimeout))
	defer cancel()
	zones := zonesOf(counters, k)
	if len(zones) == 0 { // the zone is gone
		return nil
	}
	err := r.delete(ctx, zones)
	r.past.outdate() // what was asked meanwhile was answered by the old counts
	if err != nil {
		return err
	}
	r.past.note(counters, k)
	client, err := r.conn.clientAt(ctx, k.String()) // any node of a Cluster passes it on to all
	if err != nil {
		return err
	}
	if err := client.Publish(ctx, resetChannel(r.o.Prefix), zone+" "+k.String()+" "+r.id()).Err(); err != nil {
		return fmt.Errorf("%w: %w", stores.ErrUnannounced, r.conn.advise(err))
	}
	return nil
}

// zonesOf returns the zones of counters with a key.
func zonesOf(counters []*stores.Counter, k stores.Key) []stores.ZoneCheck {
	zones := make([]stores.ZoneCheck, 0, len(counters))
	for _, c := range counters {
		zones = append(zones, stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k, Tag: k}})
	}
	return zones
}

// delete deletes the keys of zones, which lie in one slot, and marks them with the time, so that no
// instance puts back what it knew of them before, or charges a debt that it owed before. While the
// slot is moved, a node may have some of the keys and not all: then each is reset alone, and marked
// also after it was deleted, because it may have been put back between.
func (r *resets) delete(ctx context.Context, zones []stores.ZoneCheck) error {
	all := resetsOf(r.o.Prefix, zones)
	err := r.send(ctx, zones[0].Tag, resetBoth, all)
	if isMoving(err) {
		err = nil
		for i := range all {
			for _, part := range [...]byte{resetMark, resetKey, resetMark} {
				err = cmp.Or(err, r.send(ctx, zones[0].Tag, part, all[i:i+1]))
			}
		}
	}
	if err != nil {
		return r.conn.unavailable(err)
	}
	return nil
}

// keyToReset is a key that is to be deleted, and for how long it is to be marked.
type keyToReset struct {
	name   string
	marked time.Duration
}

// resetsOf returns the keys of zones, which lie in one slot: those of their counts, and that of the
// block, which other rules may have started.
func resetsOf(prefix string, zones []stores.ZoneCheck) (all []keyToReset) {
	var forgets time.Duration
	for i := range zones {
		forgets = max(forgets, forgetsAfter(zones[i].Counter))
	}
	for i := range zones {
		all = append(all, keyToReset{string(appendName(nil, prefix, &zones[i])), forgets + resetMargin})
	}
	block := keyToReset{name: string(appendBlock(nil, prefix, &zones[0]))}
	if longest := longestBlock(zones); longest > 0 {
		block.marked = longest + resetMargin
	}
	return append(all, block)
}

// send resets keys of a tag, or the parts of them that one node may have, in one call.
func (r *resets) send(ctx context.Context, tag stores.Key, part byte, keys []keyToReset) error {
	q := newCall(time.Time{}, tag)
	for _, k := range keys {
		names := []string{k.name, k.name + resetSuffix}
		switch part {
		case resetMark:
			names = names[1:]
		case resetKey:
			names = names[:1]
		}
		q.add(names, appendReset(nil, part, k.marked))
	}
	return r.conn.reset(ctx, q, len(keys))
}

// reset makes a call that resets n keys.
func (c *conn) reset(ctx context.Context, q *call, n int) error {
	reply, _, err := c.call(ctx, q)
	for range n {
		err = cmp.Or(err, reply.failed())
		reply.byte()
	}
	return cmp.Or(err, reply.err)
}

// longestBlock returns how long a block lasts at most that the rule sets of a key start, and makes
// the next one longer; 0 if no rule blocks.
func longestBlock(zones []stores.ZoneCheck) (longest time.Duration) {
	for i := range zones {
		c := zones[i].Counter
		for i, d := range c.Blocks {
			if d == 0 {
				continue
			}
			var grows time.Duration
			if c.Grows != nil {
				d, grows = slices.Max(append([]int64{d}, c.Grows[i]...)), stores.GrowsWithin*time.Microsecond
			}
			longest = max(longest, time.Duration(d)*time.Microsecond+grows, forgetsAfter(c)+grows)
		}
	}
	return longest
}

// resetMargin is how much longer a key is marked as reset than an instance may know of it.
const resetMargin = 2 * time.Second

// longestMark is the longest that a key is marked as reset, about 285 years.
const longestMark = 2 * (1 << 52) * time.Microsecond

// forgetsAfter returns after how long the states of a counter are as if unused, at most: a
// debt may be as large as the capacity.
func forgetsAfter(c *stores.Counter) (most time.Duration) {
	for _, r := range c.Rules {
		windows := max(1, float64(r.Capacity())/float64(r.Limit()))
		if _, refills := r.(algorithms.Refilling); refills && c.Varies() {
			windows = float64(r.Capacity()) // under a limit of 1
		}
		us := min(2*windows*float64(r.Window()), float64(longestMark/time.Microsecond))
		most = max(most, time.Duration(us)*time.Microsecond)
	}
	return most
}

// subscribe receives the resets of other instances until ctx ends, over a
// connection of its own, which has the greatest age of the others.
func (r *resets) subscribe(ctx context.Context) {
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(ctx)
		r.conn.subscription.cancel.Store(&cancel)
		r.subscribeOnce(one)
		cancel()
	}
}

// subscription is the connection over which the resets of other instances are received.
type subscription struct {
	clock  func() int64
	cancel atomic.Pointer[context.CancelFunc] // ends it
	from   atomic.Pointer[server]             // that it is at; nil: it was never opened
	last   atomic.Int64                       // when replace last ended it
}

// replace replaces the connection after a failure of its node, because it may lead to a server that is no longer
// the master. At most once a second. One that is at no node of its own may be at any.
func (s *subscription) replace(failed *server) {
	from := s.from.Load()
	if from == nil || from != failed && from.address != "" {
		return
	}
	now, last := s.clock(), s.last.Load()
	if cancel := s.cancel.Load(); cancel != nil && now-last >= 1e6 && s.last.CompareAndSwap(last, now) {
		(*cancel)()
	}
}

func (r *resets) subscribeOnce(ctx context.Context) {
	o := r.o.ConnOptions
	o.PoolSize, o.Lazy, o.Timeout = 1, true, o.DialTimeout
	from := &r.conn.nodes.anyUp().server
	if r.conn.subscription.from.Store(from); from.address != "" { // every node of a Cluster has all messages
		o.Cluster, o.Addresses = false, []string{from.address}
	}
	client := NewClient(&o)
	defer func() { _ = client.Close() }()
	subscribe.Subscribe(ctx, client, resetChannel(r.o.Prefix), lifeOf(r.o.MaxAge), subscribe.Callbacks{
		Subscribed: func() {}, // keys whose reset was missed are marked in Redis
		Message:    r.receive,
		Failed: func(err error) {
			if from.address != "" { // another node may do
				r.conn.subscription.replace(from)
			}
			if l, ok := r.conn.observer.get().(stores.ResetObserver); ok && classify(err) == stores.FailRejected {
				l.Unsubscribed(r.o.Name, advise(stores.FailRejected, err))
			}
		},
	})
}

// receive handles a message: a zone, a key, and the store that sent it. Others
// are ignored. So are those of this store, which has reset the key already:
// what was charged since must remain.
func (r *resets) receive(payload string) {
	if payload == watchedText {
		r.watched()
		return
	}
	zone, text, _ := strings.Cut(payload, " ")
	text, from, _ := strings.Cut(text, " ")
	if from == r.id() {
		return
	}
	k, ok := hash.ParseKey(text)
	if l, observes := r.conn.observer.get().(stores.ResetObserver); ok && observes {
		l.Reset(r.o.Name, zone, k)
	}
}
