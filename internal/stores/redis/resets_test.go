package redis

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// resetObserver records the resets that an instance receives.
type resetObserver struct {
	noObserver
	mu     sync.Mutex
	resets []string
}

func (o *resetObserver) Reset(store, zone string, k stores.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resets = append(o.resets, store+" "+zone+" "+k.String())
}

func (*resetObserver) Unsubscribed(string, error) {}

func (o *resetObserver) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.resets, "\n")
}

// TestResetReachesOtherInstances resets a key. Every other instance receives the
// reset, over one connection in addition to the pool. Invalid messages on the
// channel are ignored.
func TestResetReachesOtherInstances(t *testing.T) {
	srv := redistest.Start(t)
	counter := kit.TenPerHour(t, "z", false)
	var all []*Store
	var observers []*resetObserver
	for range 2 {
		o := new(resetObserver)
		s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
			Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 10 * time.Second, DialTimeout: 10 * time.Second, PoolSize: 1,
		}}, o)
		s.Start(1)
		t.Cleanup(func() { _ = s.Destruct() })
		all, observers = append(all, s), append(observers, o)
	}
	ctx, admin := context.Background(), srv.Client()
	waitFor(t, "both to subscribe", func() bool { return admin.PubSubNumSub(ctx, "diana:{resets}").Val()["diana:{resets}"] == 2 })
	if n := len(clients(t, admin)); n > 4 {
		t.Errorf("%d connections of two instances with a pool of one, want at most 4", n)
	}
	for _, garbage := range []string{"", "z", "z ", "z AAAA", " \x00", strings.Repeat("x", 1<<16)} {
		admin.Publish(ctx, "diana:{resets}", garbage)
	}
	k := stores.Key{Hi: 1, Lo: 2}
	check := stores.Check{Zones: []stores.ZoneCheck{{Counter: counter, Subject: stores.Subject{Key: k, Tag: k}, Cost: 10}}}
	all[0].Decide(ctx, &check)
	if !check.Admitted || check.Mode != stores.ModeShared {
		t.Fatalf("%+v", check)
	}
	if err := all[1].Reset(ctx, "z", []*stores.Counter{counter}, k); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the message", func() bool { return observers[0].text() != "" })
	if got := observers[0].text(); got != "redis z "+k.String() {
		t.Errorf("received %q", got)
	}
	other := stores.Key{Hi: 3, Lo: 4} // published by another client
	admin.Publish(ctx, "diana:{resets}", "z "+other.String())
	for i, want := range []string{"redis z " + k.String() + "\nredis z " + other.String(), "redis z " + other.String()} {
		waitFor(t, "the message", func() bool { return strings.Contains(observers[i].text(), other.String()) })
		if got := observers[i].text(); got != want {
			t.Errorf("instance %d received %q, want %q", i, got, want)
		}
	}
	if all[0].Decide(ctx, &check); !check.Admitted {
		t.Error("a key is denied after its reset")
	}
	// A lost connection is opened again.
	admin.ClientKillByFilter(ctx, "TYPE", "pubsub")
	waitFor(t, "both to subscribe again", func() bool { return admin.PubSubNumSub(ctx, "diana:{resets}").Val()["diana:{resets}"] == 2 })
}

// meanwhile does something before the client sends commands together.
type meanwhile func()

func (meanwhile) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (meanwhile) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (m meanwhile) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		m()
		return next(ctx, cmds)
	}
}

// TestResetForgetsWhatWasAskedMeanwhile has a check denied after the instance has begun to reset its
// key, and before Redis does. The next one asks Redis again.
func TestResetForgetsWhatWasAskedMeanwhile(t *testing.T) {
	srv := redistest.Start(t)
	s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
		Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 10 * time.Second, DialTimeout: 10 * time.Second, Lazy: true,
	}}, silent{})
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	counter, k, ctx := kit.TenPerHour(t, "meanwhile", false), stores.Key{Hi: 5, Lo: 6}, context.Background()
	admitted := func() bool {
		check := stores.Check{Zones: []stores.ZoneCheck{{Counter: counter, Subject: stores.Subject{Key: k, Tag: k}, Cost: 10}}}
		s.Decide(ctx, &check)
		return check.Admitted
	}
	if !admitted() || admitted() {
		t.Fatal("want the first check admitted, and the second denied")
	}
	var once sync.Once
	s.hook(meanwhile(func() {
		once.Do(func() {
			if admitted() {
				t.Error("admitted before Redis has reset the key")
			}
		})
	}))
	if err := s.Reset(ctx, "meanwhile", []*stores.Counter{counter}, k); err != nil {
		t.Fatal(err)
	}
	if !admitted() {
		t.Error("denied after the reset")
	}
}
