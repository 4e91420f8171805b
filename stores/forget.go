package stores

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dianalimiter/diana/internal/listen"
)

// Forgetting a key: in Redis, in this process, and in the other instances, which
// hear of it by a message.

// Listener is a [Watcher] that also wants to know what other instances say.
type Listener interface {
	// Forget is called when another instance was told to forget a key. The zone's
	// counters have to be given to [Shared.Drop].
	Forget(store, zone string, k Key)

	// Deaf is called when other instances cannot be heard though Redis answers.
	Deaf(store string, err error)
}

// ErrAway says that a key was forgotten in this process only.
var ErrAway = errors.New("Redis is away: the key is forgotten by this instance only") //nolint:staticcheck // a name

// Drop forgets what this process keeps of a key under counters of this store.
func (s *Shared) Drop(counters []*Counter, k Key) {
	for _, c := range counters {
		c.Drop(k)
	}
	s.denials.drop()
	s.leases.drop()
}

// Forget forgets a key under all counters of a zone: here, in Redis, and, by a
// message, in every other instance. With [ErrAway] it is still there elsewhere.
func (s *Shared) Forget(ctx context.Context, zone string, counters []*Counter, k Key) error {
	s.Start(0)
	s.Drop(counters, k)
	if s.conn == nil || s.breaker.open.Load() {
		return ErrAway
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.o.Timeout, forgetTimeout))
	defer cancel()
	names := make([]string, 0, len(counters))
	for _, c := range counters {
		names = append(names, namesOf(s.conn.prefix, &Item{Counter: c, Key: k, Tag: k})[0])
	}
	if err := s.conn.client.Del(ctx, names...).Err(); err != nil {
		return errors.Join(ErrAway, err)
	}
	return s.conn.client.Publish(ctx, s.resets(), zone+" "+k.String()+" "+s.name()).Err()
}

// ForgetTwins forgets what is counted under a counter beside a key itself, with
// the key as its tag, here and in Redis. With [ErrAway] it is still there.
func (s *Shared) ForgetTwins(ctx context.Context, c *Counter, k Key, twins []Key) error {
	s.Start(0)
	names := make([]string, 0, len(twins))
	for _, twin := range twins {
		c.Drop(twin)
		names = append(names, string(appendName(nil, s.o.Prefix, &Item{Counter: c, Key: twin, Tag: k})))
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
func (s *Shared) resets() string { return s.o.Prefix + ":{resets}" }

// listen hears what other instances say until ctx ends, over a connection of
// its own. Like those of requests it is given up when Redis fails: it may lead
// to a server that is no longer the master.
func (s *Shared) listen(ctx context.Context) {
	for ctx.Err() == nil {
		one, stop := context.WithCancel(ctx)
		s.hearing.Store(&stop)
		s.listenOnce(one)
		stop()
	}
}

// unhear has the channel listened to anew, at most once a second.
func (s *Shared) unhear() {
	now, last := s.o.Clock(), s.unheard.Load()
	if stop := s.hearing.Load(); stop != nil && now-last >= 1e6 && s.unheard.CompareAndSwap(last, now) {
		(*stop)()
	}
}

func (s *Shared) listenOnce(ctx context.Context) {
	o := s.o.RedisOptions
	o.PoolSize, o.Lazy, o.Timeout = 1, true, o.DialTimeout
	client := NewClient(&o)
	defer func() { _ = client.Close() }()
	listen.Listen(ctx, client, s.resets(), listen.Ears{
		Subscribed: func() {}, // whatever was missed while Redis was away is gone with it
		Message:    s.hear,
		Failed: func(err error) {
			if l, ok := s.watch().(Listener); ok && classify(err) == FailRefused {
				l.Deaf(s.o.Name, err)
			}
		},
	})
}

// name tells this instance from others.
func (s *Shared) name() string { return strconv.FormatUint(s.id, 16) }

// hear takes a message: a zone, a key, and who says it. What is no zone and key
// is nobody's, and what this instance said itself it has done: what came since
// is not to be forgotten.
func (s *Shared) hear(payload string) {
	zone, text, _ := strings.Cut(payload, " ")
	text, from, _ := strings.Cut(text, " ")
	if from == s.name() {
		return
	}
	k, ok := ParseKey(text)
	if l, listens := s.watch().(Listener); ok && listens {
		l.Forget(s.o.Name, zone, k)
	}
}
