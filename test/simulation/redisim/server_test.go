package redisim

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/scripts"
)

// dial returns a client of a server, as the plugin configures it, over connections in memory.
func dial(t *testing.T, s *Server) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: s.Address(), Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: time.Hour,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go s.Serve(far)
			return near, nil
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func doubles(ns ...float64) string {
	var b []byte
	for _, n := range ns {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
	}
	return string(b)
}

func TestScriptInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Address: "10.0.0.1:6379"})
		c := dial(t, s)
		ctx := t.Context()
		sha, err := c.ScriptLoad(ctx, scripts.Decide().Text).Result()
		if err != nil {
			t.Fatal(err)
		}
		beat := "\x04\x02" + "instance" + doubles(0)
		got, err := c.EvalSha(ctx, sha, []string{"d:{x}:instances", "d:{x}:try"}, doubles(7, 1e17), beat).Text()
		want := doubles(7, 1e17, float64(time.Now().UnixMicro())) + "\x40\x01\x00\x00\x00"
		if err != nil || got != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
		if ttl := s.TTLs()["d:{x}:instances"]; ttl != 5*time.Second {
			t.Errorf("ttl %v", ttl)
		}
		time.Sleep(6 * time.Second)
		if n := len(s.Keys()); n != 0 {
			t.Errorf("%d keys after their time", n)
		}
	})
}
