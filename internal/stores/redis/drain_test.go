package redis

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// TestDrainEndsWithoutRedis replaces the configuration while Redis is away for good, with a
// permit of which it was told nothing. The store does not try to report its end for ever: the
// bubble would have a goroutine left.
func TestDrainEndsWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
			Addresses: []string{"redis:6379"}, Prefix: "diana", Timeout: 25 * time.Millisecond, DialTimeout: time.Second,
			Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") },
		}}, silent{})
		c := kit.NewTestCounter(t, "z", 5, false, nil)
		c.Table = memory.NewTable(c.Rules, 100)
		s.Hold()
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: stores.Key{Lo: 1}, Tag: stores.Key{Lo: 1}}, Cost: 1}}}
		check.ResetResults()
		s.Decide(t.Context(), check)
		if !check.Zones[0].Permit.Taken {
			t.Fatal("the request has no permit")
		}
		_ = s.Destruct()
		time.Sleep(time.Second)
		s.Finish(t.Context(), &check.Zones[0], 1)
		s.Release()
		time.Sleep(2 * time.Minute)
	})
}
