package stores

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/redistest"
)

// told is a watcher that also listens.
type told struct {
	deaf
	mu   sync.Mutex
	said []string
}

func (l *told) Forget(store, zone string, k Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, store+" "+zone+" "+k.String())
}

func (*told) Deaf(string, error) {}

func (l *told) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

// TestForgettingIsHeard by every other instance, over one connection beside the pool,
// and what is no message of ours by nobody.
func TestForgettingIsHeard(t *testing.T) {
	srv := redistest.Start(t)
	counter := tenAnHour(t, "z", false)
	var all []*Shared
	var ears []*told
	for range 2 {
		l := new(told)
		s := NewShared(SharedOptions{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, RedisOptions: RedisOptions{
			Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 10 * time.Second, DialTimeout: 10 * time.Second, PoolSize: 1,
		}}, l)
		s.Start(1)
		t.Cleanup(func() { _ = s.Destruct() })
		all, ears = append(all, s), append(ears, l)
	}
	ctx, admin := context.Background(), srv.Client()
	waitFor(t, "both to listen", func() bool { return admin.PubSubNumSub(ctx, "diana:{resets}").Val()["diana:{resets}"] == 2 })
	if n := len(clients(t, srv)); n > 4 {
		t.Errorf("%d connections of two instances with a pool of one, want at most 4", n)
	}
	for _, garbage := range []string{"", "z", "z ", "z AAAA", " \x00", strings.Repeat("x", 1<<16)} {
		admin.Publish(ctx, "diana:{resets}", garbage)
	}
	k := Key{Hi: 1, Lo: 2}
	a := Ask{Items: []Item{{Counter: counter, Key: k, Tag: k, Cost: 10}}}
	all[0].Decide(ctx, &a)
	if !a.Admitted || a.Mode != ModeShared {
		t.Fatalf("%+v", a)
	}
	if err := all[1].Forget(ctx, "z", []*Counter{counter}, k); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the message", func() bool { return ears[0].text() != "" })
	if got := ears[0].text(); got != "redis z "+k.String() {
		t.Errorf("heard %q", got)
	}
	other := Key{Hi: 3, Lo: 4} // by somebody who is no instance
	admin.Publish(ctx, "diana:{resets}", "z "+other.String())
	for i, want := range []string{"redis z " + k.String() + "\nredis z " + other.String(), "redis z " + other.String()} {
		waitFor(t, "the message", func() bool { return strings.Contains(ears[i].text(), other.String()) })
		if got := ears[i].text(); got != want {
			t.Errorf("instance %d heard %q, want %q", i, got, want)
		}
	}
	if all[0].Decide(ctx, &a); !a.Admitted {
		t.Error("a forgotten key is denied")
	}
	// A connection that was lost is made anew.
	admin.ClientKillByFilter(ctx, "TYPE", "pubsub")
	waitFor(t, "both to listen again", func() bool { return admin.PubSubNumSub(ctx, "diana:{resets}").Val()["diana:{resets}"] == 2 })
}
