package test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestRedisErrors makes a running Redis return errors of every class: no response is
// a 5xx, every limit is enforced, and limits are shared again afterwards.
func TestRedisErrors(t *testing.T) {
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
			if name != "read only" { // a replica copies its empty master
				s.want(req{}, 200, 200, 200, 200, 200, 429)
			}
			srv.CheckTTLs()
		})
	}
}

// TestScriptIsReloaded flushes the script between requests: none fails, and each is
// counted exactly once.
func TestScriptIsReloaded(t *testing.T) {
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

// TestKeyOfAnotherProgram checks that a request whose Redis key holds another
// program's value is decided locally and that the log names the problem.
func TestKeyOfAnotherProgram(t *testing.T) {
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
			until(t, "Redis to be used again", func() bool {
				return s.send(req{}).status == 200 && len(c.Keys(ctx, "*:z:*").Val()) == 1
			})
		})
	}
}

// TestPermitReleasedAfterOutage ends requests during an outage: their permits are
// released when Redis is back, long before they would expire.
func TestPermitReleasedAfterOutage(t *testing.T) {
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
	until(t, "no permit in Redis", func() bool { return permitsIn(srv) == 0 })
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("released after %v", took)
	}
}

// TestPermitsAcrossOutage takes one permit through Redis and one during an outage.
// Both count during the outage and after it, until they are released.
func TestPermitsAcrossOutage(t *testing.T) {
	srv := redistest.Start(t)
	g := newGate()
	s, _ := failing(t, srv.Addr, inFlight(2, handle(t, "*", g.ServeHTTP)))
	inside := s.open(g, req{})
	srv.Kill()
	local := s.open(g, req{})
	s.want(req{}, 429)
	s.down()
	srv.Run()
	s.up(1)
	until(t, "both permits in Redis", func() bool { return permitsIn(srv) == 2 })
	s.want(req{}, 429)
	g.goOn <- true
	g.goOn <- true
	if a, b := <-inside, <-local; a != 200 || b != 200 {
		t.Errorf("statuses %d and %d", a, b)
	}
	for range 2 {
		g.goOn <- true
		until(t, "a permit", func() bool { return s.send(req{}).status == 200 })
	}
	srv.Kill()
	for range 2 {
		g.goOn <- true
		until(t, "a local permit", func() bool { return s.send(req{}).status == 200 })
	}
}

// TestRefusedStoreIsAway configures a Cluster where there is a single Redis, which answers and refuses all
// that it is asked. Metrics, zones, events and the log say that the store is away, and which option is wrong.
func TestRefusedStoreIsAway(t *testing.T) {
	srv := redistest.Start(t)
	s, seen := failing(t, srv.Addr, fiveAnHour, "cluster", "fallback_share 0.2")
	s.want(req{}, 200)
	s.down()
	s.want(req{}, 429)
	if share := s.metric("enforced_share", "store", "redis"); share != 0.2 {
		t.Errorf("a share of %v is enforced, want 0.2", share)
	}
	down := seen.wait(t, "rate_limit_store_down", 1)[0]
	if advice, _ := down.Data["advice"].(string); !strings.Contains(advice, "leave cluster out") {
		t.Errorf("event %v, want advice about cluster", down.Data)
	}
	if line := s.log.wait(t, "Redis rejects calls: on_failure applies"); !strings.Contains(fmt.Sprint(line["error"]), "cluster support disabled") {
		t.Errorf("log line %v, want the words of Redis", line)
	}
}
