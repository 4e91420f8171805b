package chaos

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// countsLost makes Redis lose counts while all instances share them.
func countsLost(lose func(t *testing.T, c *redis.Client)) func(t *testing.T, out *result) {
	return func(t *testing.T, out *result) {
		srv := redistest.Start(t)
		s, c := begin(t, srv.Addr), srv.Client()
		before := s.errors()
		var lost time.Time
		r := s.play(play{calm: 3 * time.Second, fault: time.Second, after: 3 * time.Second, begin: func() {
			lost = time.Now()
			lose(t, c)
		}})
		s.checkAll(r, out, promise{wait: timeout + 10*time.Millisecond, lost: []time.Time{lost}})
		checkRecovery(t, r, out, r.ended, 50*time.Millisecond) // immediately: a few requests later
		after := s.errors()
		if n := after["away"] + after["rejected"] + after["wrong"] - before["away"] - before["rejected"] - before["wrong"]; n > 0 {
			t.Errorf("%v calls failed, want none", n)
		}
	}
}

func flushed(t *testing.T, c *redis.Client) {
	if err := c.FlushAll(context.Background()).Err(); err != nil {
		t.Error(err)
	}
}

// evicted fills Redis' memory for a moment, so that it evicts about half of the
// keys.
func evicted(t *testing.T, c *redis.Client) {
	ctx := context.Background()
	pipe := c.Pipeline()
	for i := range 3000 {
		pipe.Set(ctx, "junk:"+time.Now().String()+strings.Repeat("x", i%7), strings.Repeat("x", 1000), time.Minute)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Error(err)
	}
	conn := c.Conn()
	defer func() { _ = conn.Close() }()
	do("config set maxmemory-policy allkeys-random", "config set maxmemory 2500000", "config set maxmemory 0", "config set maxmemory-policy noeviction")(t, conn)
	if info := c.Info(ctx, "stats").Val(); !strings.Contains(info, "evicted_keys:") || strings.Contains(info, "evicted_keys:0\r") {
		t.Error("nothing was evicted")
	}
}
