package test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/redistest"
)

// TestRedisInTrouble makes a running Redis refuse in many ways: no request is
// answered 5xx, each limit holds, and when the trouble is over limits are
// shared again.
func TestRedisInTrouble(t *testing.T) {
	ctx := context.Background()
	other := redistest.Start(t)
	for name, c := range map[string]struct {
		begin, end func(c *redis.Client) error
	}{
		"memory": {
			func(c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", "1").Err() },
			func(c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", "0").Err() },
		},
		"replicas": {
			func(c *redis.Client) error { return c.ConfigSet(ctx, "min-replicas-to-write", "1").Err() },
			func(c *redis.Client) error { return c.ConfigSet(ctx, "min-replicas-to-write", "0").Err() },
		},
		"read only": {
			func(c *redis.Client) error { return c.ReplicaOf(ctx, "127.0.0.1", fmt.Sprint(other.Port)).Err() },
			func(c *redis.Client) error { return c.ReplicaOf(ctx, "NO", "ONE").Err() },
		},
		"rights": {
			func(c *redis.Client) error { return c.Do(ctx, "ACL", "SETUSER", "default", "-evalsha").Err() },
			func(c *redis.Client) error { return c.Do(ctx, "ACL", "SETUSER", "default", "+evalsha").Err() },
		},
		"rights in the script": {
			func(c *redis.Client) error { return c.Do(ctx, "ACL", "SETUSER", "default", "-time").Err() },
			func(c *redis.Client) error { return c.Do(ctx, "ACL", "SETUSER", "default", "+time").Err() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			s, _ := failing(t, srv.Addr, fiveAnHour)
			s.want(req{}, 200)
			client := srv.Client()
			if err := c.begin(client); err != nil {
				t.Fatal(err)
			}
			s.want(req{ip: "10.0.0.1"}, 200, 200, 200, 200, 200, 200, 429)
			until(t, "the store to be down", func() bool { return s.metric("store_up", "store", "redis") == 0 })
			if err := c.end(client); err != nil {
				t.Fatal(err)
			}
			s.up(1)
			if name != "read only" { // a replica takes over what the other has: nothing
				s.want(req{}, 200, 200, 200, 200, 200, 429)
			}
			srv.CheckTTLs()
		})
	}
}

// TestScriptIsLoadedAgain takes the script away between requests: none fails,
// and none is counted twice or not at all.
func TestScriptIsLoadedAgain(t *testing.T) {
	srv := redistest.Start(t)
	s, _ := failing(t, srv.Addr, fiveAnHour)
	for i := range 6 {
		s.wantHeader(s.want(req{}, 200), "RateLimit", fmt.Sprintf(`"z";r=%d;t=3600`, 5-i))
		if err := srv.Client().ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.want(req{}, 429)
	if n := len(s.log.lines(t, storeIsDown)); n != 0 {
		t.Errorf("%d times down", n)
	}
}

// TestForeignKeyInRedis finds another program's value under a zone's key: the
// request is decided without Redis, and the log says what is wrong.
func TestForeignKeyInRedis(t *testing.T) {
	ctx := context.Background()
	for name, spoil := range map[string]func(c *redis.Client, key string) error{
		"another type": func(c *redis.Client, key string) error { return c.LPush(ctx, key, "x").Err() },
		"nonsense":     func(c *redis.Client, key string) error { return c.Set(ctx, key, "nonsense", time.Minute).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			s, _ := failing(t, srv.Addr, fiveAnHour)
			s.want(req{}, 200)
			c := srv.Client()
			keys, err := c.Keys(ctx, "*:z:*").Result()
			if err != nil || len(keys) != 1 {
				t.Fatalf("keys %q %v", keys, err)
			}
			if err := c.Del(ctx, keys[0]).Err(); err != nil {
				t.Fatal(err)
			}
			if err := spoil(c, keys[0]); err != nil {
				t.Fatal(err)
			}
			s.want(req{}, 200)
			s.log.wait(t, "Redis gave an unexpected answer")
			if err := c.Del(ctx, keys[0]).Err(); err != nil {
				t.Fatal(err)
			}
			until(t, "Redis to be asked again", func() bool {
				return s.send(req{}).status == 200 && len(c.Keys(ctx, "*:z:*").Val()) == 1
			})
		})
	}
}

// TestPlaceIsGivenBackLate answers requests while Redis does not: their places
// are free when it is back, long before they would lapse.
func TestPlaceIsGivenBackLate(t *testing.T) {
	srv := redistest.Start(t)
	g := newGate()
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 200ms"), site: inFlight(2, handle(t, "*", g.ServeHTTP))})
	until(t, "Redis", func() bool { return s.metric("store_up", "store", "redis") == 1 })
	first, second := s.open(g, req{}), s.open(g, req{})
	s.want(req{}, 429)
	if err := syscall.Kill(srv.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	g.goOn <- true
	g.goOn <- true
	if a, b := <-first, <-second; a != 200 || b != 200 {
		t.Errorf("statuses %d and %d", a, b)
	}
	if err := syscall.Kill(srv.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	until(t, "no place in Redis", func() bool {
		n, err := srv.Client().Exists(context.Background(), srv.Client().Keys(context.Background(), "*:holds").Val()...).Result()
		return err != nil || n == 0
	})
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("given back after %v", took)
	}
}

// TestPlaceOutlivesAnOutage takes a place while Redis is away and gives it back
// when it is there, and the other way round.
func TestPlaceOutlivesAnOutage(t *testing.T) {
	srv := redistest.Start(t)
	g := newGate()
	s, _ := failing(t, srv.Addr, inFlight(1, handle(t, "*", g.ServeHTTP)))
	inside := s.open(g, req{})
	srv.Kill()
	alone := s.open(g, req{}) // nobody knows of the other here
	s.want(req{}, 429)
	s.down()
	srv.Run()
	s.up(1)
	g.goOn <- true
	g.goOn <- true
	if a, b := <-inside, <-alone; a != 200 || b != 200 {
		t.Errorf("statuses %d and %d", a, b)
	}
	for range 2 {
		g.goOn <- true
		until(t, "a place", func() bool { return s.send(req{}).status == 200 })
	}
	srv.Kill()
	for range 2 {
		g.goOn <- true
		until(t, "a place alone", func() bool { return s.send(req{}).status == 200 })
	}
}
