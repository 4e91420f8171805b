package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/subscribe"
)

// ErrAway says that a key was reset in this process only.
var ErrAway = errors.New("Redis is away: the key is forgotten by this instance only") //nolint:staticcheck // a name

const (
	keysPerDelete = 1000 // of one command
	resetTimeout  = time.Second
)

// resets clears keys in this process, in Redis, and in the other instances, by
// messages on a channel.
type resets struct {
	o       *Options
	conn    *conn
	denials *denials
	leasing *leasing // nil: nothing is leased

	cancel atomic.Pointer[context.CancelFunc] // ends the current subscription
	last   atomic.Int64                       // when resubscribe last did so
	from   atomic.Pointer[node]               // that the current subscription is at
}

// channel is where instances publish resets.
func (r *resets) channel() string { return r.o.Prefix + ":{resets}" }

// id identifies this instance in messages.
func (r *resets) id() string { return strconv.FormatUint(r.conn.instance, 16) }

func (r *resets) resetLocal(counters []*stores.Counter, k stores.Key) {
	for _, c := range counters {
		c.Reset(k)
	}
	r.denials.clear()
	r.leasing.clear()
}

func (r *resets) reset(ctx context.Context, zone string, counters []*stores.Counter, k stores.Key) error {
	r.resetLocal(counters, k)
	if !r.conn.usable(k) {
		return ErrAway
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.o.Timeout, resetTimeout))
	defer cancel()
	names := make([]string, 0, len(counters))
	for _, c := range counters {
		names = append(names, namesOf(r.o.Prefix, &stores.ZoneCheck{Counter: c, Key: k, Tag: k})[0])
	}
	if err := r.conn.client.Del(ctx, names...).Err(); err != nil {
		return errors.Join(ErrAway, err)
	}
	client, err := r.conn.clientAt(ctx, k.String()) // any node of a Cluster passes it on to all
	if err != nil {
		return err
	}
	return client.Publish(ctx, r.channel(), zone+" "+k.String()+" "+r.id()).Err()
}

func (r *resets) resetFingerprints(ctx context.Context, c *stores.Counter, k stores.Key, fingerprints []stores.Key) error {
	names := make([]string, 0, len(fingerprints))
	for _, f := range fingerprints {
		c.Reset(f)
		names = append(names, string(appendName(nil, r.o.Prefix, &stores.ZoneCheck{Counter: c, Key: f, Tag: k})))
	}
	if r.conn.client == nil {
		return ErrAway
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.o.Timeout, resetTimeout))
	defer cancel()
	for some := range slices.Chunk(names, keysPerDelete) {
		if !r.conn.usable(k) {
			return ErrAway
		}
		if err := r.conn.client.Del(ctx, some...).Err(); err != nil {
			return errors.Join(ErrAway, err)
		}
	}
	return nil
}

// subscribe receives the resets of other instances until ctx ends, over a
// connection of its own.
func (r *resets) subscribe(ctx context.Context) {
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(ctx)
		r.cancel.Store(&cancel)
		r.subscribeOnce(one)
		cancel()
	}
}

// resubscribe replaces the subscription's connection after a failure of its node,
// because it may lead to a server that is no longer the master. At most once a second.
func (r *resets) resubscribe(failed *node) {
	if from := r.from.Load(); from != failed && from != r.conn.nodes.first {
		return
	}
	now, last := r.o.Clock(), r.last.Load()
	if cancel := r.cancel.Load(); cancel != nil && now-last >= 1e6 && r.last.CompareAndSwap(last, now) {
		(*cancel)()
	}
}

func (r *resets) subscribeOnce(ctx context.Context) {
	o := r.o.ConnOptions
	o.PoolSize, o.Lazy, o.Timeout = 1, true, o.DialTimeout
	from := r.conn.nodes.anyUp()
	if r.from.Store(from); from.address != "" { // every node of a Cluster has all messages
		o.Cluster, o.Addresses = false, []string{from.address}
	}
	client := NewClient(&o)
	defer func() { _ = client.Close() }()
	subscribe.Subscribe(ctx, client, r.channel(), subscribe.Callbacks{
		Subscribed: func() {}, // the keys of resets that were missed are gone with Redis
		Message:    r.receive,
		Failed: func(err error) {
			if from.address != "" { // another node may do
				r.resubscribe(from)
			}
			if l, ok := r.conn.observer.get().(ResetObserver); ok && classify(err) == FailRefused {
				l.Unsubscribed(r.o.Name, err)
			}
		},
	})
}

// receive handles a message: a zone, a key, and the instance that sent it. Others
// are ignored. So are those of this instance, which has reset the key already:
// what was charged since must remain.
func (r *resets) receive(payload string) {
	zone, text, _ := strings.Cut(payload, " ")
	text, from, _ := strings.Cut(text, " ")
	if from == r.id() {
		return
	}
	k, ok := stores.ParseKey(text)
	if l, observes := r.conn.observer.get().(ResetObserver); ok && observes {
		l.Reset(r.o.Name, zone, k)
	}
}
