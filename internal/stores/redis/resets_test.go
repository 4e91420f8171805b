package redis

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// told is a watcher that also listens.
type told struct {
	ignoring
	mu   sync.Mutex
	said []string
}

func (l *told) Reset(store, zone string, k stores.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, store+" "+zone+" "+k.String())
}

func (*told) Unsubscribed(string, error) {}

func (l *told) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

// TestResetReachesOtherInstances resets a key. Every other instance receives
// it, over one connection in addition to the pool. Other messages on the
// channel are ignored.
func TestResetReachesOtherInstances(t *testing.T) {
	srv := redistest.Start(t)
	counter := storestest.TenAnHour(t, "z", false)
	var all []*Store
	var ears []*told
	for range 2 {
		l := new(told)
		s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
			Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 10 * time.Second, DialTimeout: 10 * time.Second, PoolSize: 1,
		}}, l)
		s.Start(1)
		t.Cleanup(func() { _ = s.Destruct() })
		all, ears = append(all, s), append(ears, l)
	}
	ctx, admin := context.Background(), srv.Client()
	waitFor(t, "both to listen", func() bool { return admin.PubSubNumSub(ctx, "diana:{resets}").Val()["diana:{resets}"] == 2 })
	if n := len(clients(t, admin)); n > 4 {
		t.Errorf("%d connections of two instances with a pool of one, want at most 4", n)
	}
	for _, garbage := range []string{"", "z", "z ", "z AAAA", " \x00", strings.Repeat("x", 1<<16)} {
		admin.Publish(ctx, "diana:{resets}", garbage)
	}
	k := stores.Key{Hi: 1, Lo: 2}
	check := stores.Check{Zones: []stores.ZoneCheck{{Counter: counter, Key: k, Tag: k, Cost: 10}}}
	all[0].Decide(ctx, &check)
	if !check.Admitted || check.Mode != stores.ModeShared {
		t.Fatalf("%+v", check)
	}
	if err := all[1].Reset(ctx, "z", []*stores.Counter{counter}, k); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the message", func() bool { return ears[0].text() != "" })
	if got := ears[0].text(); got != "redis z "+k.String() {
		t.Errorf("heard %q", got)
	}
	other := stores.Key{Hi: 3, Lo: 4} // by somebody who is no instance
	admin.Publish(ctx, "diana:{resets}", "z "+other.String())
	for i, want := range []string{"redis z " + k.String() + "\nredis z " + other.String(), "redis z " + other.String()} {
		waitFor(t, "the message", func() bool { return strings.Contains(ears[i].text(), other.String()) })
		if got := ears[i].text(); got != want {
			t.Errorf("instance %d heard %q, want %q", i, got, want)
		}
	}
	if all[0].Decide(ctx, &check); !check.Admitted {
		t.Error("a forgotten key is denied")
	}
	// A connection that was lost is made anew.
	admin.ClientKillByFilter(ctx, "TYPE", "pubsub")
	waitFor(t, "both to listen again", func() bool { return admin.PubSubNumSub(ctx, "diana:{resets}").Val()["diana:{resets}"] == 2 })
}
