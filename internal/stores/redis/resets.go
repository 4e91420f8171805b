package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dianalimiter/diana/internal/listen"
	"github.com/dianalimiter/diana/internal/stores"
)

// Forgetting a key: in Redis, in this process, and in the other instances, which
// hear of it by a message.

// ResetObserver is a [Watcher] that also wants to know what other instances say.
type ResetObserver interface {
	// Reset is called when another instance was told to forget a key. The zone's
	// counters have to be given to [Shared.Drop].
	Reset(store, zone string, k stores.Key)

	// Unsubscribed is called when other instances cannot be heard though Redis answers.
	Unsubscribed(store string, err error)
}

// ErrAway says that a key was forgotten in this process only.
var ErrAway = errors.New("Redis is away: the key is forgotten by this instance only") //nolint:staticcheck // a name

// ResetLocal forgets what this process keeps of a key under counters of this store.
func (s *Store) ResetLocal(counters []*stores.Counter, k stores.Key) {
	for _, c := range counters {
		c.Reset(k)
	}
	s.denials.clear()
	s.leases.clear()
}

// Reset forgets a key under all counters of a zone: here, in Redis, and, by a
// message, in every other instance. With [ErrAway] it is still there elsewhere.
func (s *Store) Reset(ctx context.Context, zone string, counters []*stores.Counter, k stores.Key) error {
	s.Start(0)
	s.ResetLocal(counters, k)
	if s.conn == nil || s.breaker.open.Load() {
		return ErrAway
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.o.Timeout, forgetTimeout))
	defer cancel()
	names := make([]string, 0, len(counters))
	for _, c := range counters {
		names = append(names, namesOf(s.conn.prefix, &stores.ZoneCheck{Counter: c, Key: k, Tag: k})[0])
	}
	if err := s.conn.client.Del(ctx, names...).Err(); err != nil {
		return errors.Join(ErrAway, err)
	}
	return s.conn.client.Publish(ctx, s.resets(), zone+" "+k.String()+" "+s.name()).Err()
}

// ResetFingerprints forgets what is counted under a counter beside a key itself, with
// the key as its tag, here and in Redis. With [ErrAway] it is still there.
func (s *Store) ResetFingerprints(ctx context.Context, c *stores.Counter, k stores.Key, twins []stores.Key) error {
	s.Start(0)
	names := make([]string, 0, len(twins))
	for _, twin := range twins {
		c.Reset(twin)
		names = append(names, string(appendName(nil, s.o.Prefix, &stores.ZoneCheck{Counter: c, Key: twin, Tag: k})))
	}
	if s.conn == nil {
		return ErrAway
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.o.Timeout, forgetTimeout))
	defer cancel()
	for some := range slices.Chunk(names, maxForgotten) {
		if s.breaker.open.Load() {
			return ErrAway
		}
		if err := s.conn.client.Del(ctx, some...).Err(); err != nil {
			return errors.Join(ErrAway, err)
		}
	}
	return nil
}

// maxForgotten is how many keys one command deletes at most.
const maxForgotten = 1000

const forgetTimeout = time.Second

// resets is the channel on which instances tell each other of forgotten keys.
func (s *Store) resets() string { return s.o.Prefix + ":{resets}" }

// listen hears what other instances say until ctx ends, over a connection of
// its own. Like those of requests it is given up when Redis fails: it may lead
// to a server that is no longer the master.
func (s *Store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		one, stop := context.WithCancel(ctx)
		s.hearing.Store(&stop)
		s.listenOnce(one)
		stop()
	}
}

// unhear has the channel listened to anew, at most once a second.
func (s *Store) unhear() {
	now, last := s.o.Clock(), s.unheard.Load()
	if stop := s.hearing.Load(); stop != nil && now-last >= 1e6 && s.unheard.CompareAndSwap(last, now) {
		(*stop)()
	}
}

func (s *Store) listenOnce(ctx context.Context) {
	o := s.o.ConnOptions
	o.PoolSize, o.Lazy, o.Timeout = 1, true, o.DialTimeout
	client := NewClient(&o)
	defer func() { _ = client.Close() }()
	listen.Listen(ctx, client, s.resets(), listen.Ears{
		Subscribed: func() {}, // whatever was missed while Redis was away is gone with it
		Message:    s.hear,
		Failed: func(err error) {
			if l, ok := s.watch().(ResetObserver); ok && classify(err) == FailRefused {
				l.Unsubscribed(s.o.Name, err)
			}
		},
	})
}

// name tells this instance from others.
func (s *Store) name() string { return strconv.FormatUint(s.id, 16) }

// hear takes a message: a zone, a key, and who says it. What is no zone and key
// is nobody's, and what this instance said itself it has done: what came since
// is not to be forgotten.
func (s *Store) hear(payload string) {
	zone, text, _ := strings.Cut(payload, " ")
	text, from, _ := strings.Cut(text, " ")
	if from == s.name() {
		return
	}
	k, ok := stores.ParseKey(text)
	if l, listens := s.watch().(ResetObserver); ok && listens {
		l.Reset(s.o.Name, zone, k)
	}
}
