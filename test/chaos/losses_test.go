package chaos

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// lostTwice makes Redis lose keys twice in one window while all instances share them.
func lostTwice(lose func(t *testing.T, c *redis.Client)) func(t *testing.T, out *result) {
	return func(t *testing.T, out *result) {
		srv := redistest.Start(t)
		s, c := beginMemory(t, srv.Addr), srv.Client()
		s.drive(nil)
		s.drive(func() { lose(t, c) })
		s.drive(func() { lose(t, c) })
		s.check(out)
		srv.CheckTTLs()
	}
}

// deleted deletes the keys of all zones one by one, as an eviction does.
func deleted(t *testing.T, c *redis.Client) {
	ctx := context.Background()
	keys, err := c.Keys(ctx, "diana:*").Result()
	if err != nil {
		t.Error(err)
	}
	for _, k := range keys {
		if strings.Contains(k, harness.Maintenance) {
			continue
		}
		if err := c.Del(ctx, k).Err(); err != nil {
			t.Error(err)
		}
	}
}

// lostInCluster flushes every node of a Cluster, twice.
func lostInCluster(t *testing.T, out *result) {
	nodes := redistest.StartCluster(t, 3)
	s := beginMemory(t, nodes[0].Addr, "cluster")
	flush := func() {
		for _, n := range nodes {
			flushed(t, n.Client())
		}
	}
	s.drive(nil)
	s.drive(flush)
	s.drive(flush)
	s.check(out)
}

// lostByKill kills Redis twice. It comes back empty.
func lostByKill(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := beginMemory(t, srv.Addr)
	kill := func() {
		srv.Kill()
		waitStores(t, s.caddys, false)
		srv.Run()
		waitStores(t, s.caddys, true)
	}
	s.drive(nil)
	s.drive(kill)
	s.drive(kill)
	s.check(out)
}

// lostByTwelve has Redis flap and then stall, lose its memory and be killed, while twelve instances share it.
func lostByTwelve(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := beginMemoryOf(t, 12, srv.Addr)
	s.drive(nil)
	s.drive(func() {
		for range 5 {
			srv.Kill()
			time.Sleep(1500 * time.Millisecond)
			srv.Run()
			time.Sleep(1500 * time.Millisecond)
		}
		waitStores(t, s.caddys, true)
	})
	s.drive(func() {
		srv.Stall()
		time.Sleep(3 * time.Second)
		srv.Resume()
		flushed(t, srv.Client())
		srv.Kill()
		time.Sleep(1500 * time.Millisecond)
		srv.Run()
		waitStores(t, s.caddys, true)
	})
	s.checkUpTo(2, out)
	srv.CheckTTLs()
}

// lostByFailover cuts the replication two seconds before the master is killed, so that
// the promoted replica lacks what the master was told in that time.
func lostByFailover(t *testing.T, out *result) {
	w := redistest.StartSentinel(t)
	s := beginMemory(t, strings.Join(w.Addrs(), " "), "sentinel "+redistest.SentinelMaster)
	s.drive(nil)
	s.drive(func() { cutReplication(t, w) })
	s.drive(func() {
		w.Master.Kill()
		waitStores(t, s.caddys, false)
		waitStores(t, s.caddys, true)
	})
	s.check(out)
}

// cutReplication keeps the replica from its master: the connection is closed, and the
// replica fails to authenticate itself on the next one. (What a stopped replica has
// not read stays in the buffers of its socket, so stopping it would lose nothing.)
func cutReplication(t *testing.T, w *redistest.Watched) {
	t.Helper()
	ctx, replica := context.Background(), w.Replica.Client()
	if err := replica.ConfigSet(ctx, "masterauth", "wrong").Err(); err != nil {
		t.Error(err)
	}
	if err := w.Master.Client().ClientKillByFilter(ctx, "TYPE", "replica").Err(); err != nil {
		t.Error(err)
	}
	harness.Until(t, harness.Patience, "the replica is cut off", func() bool {
		return strings.Contains(replica.Info(ctx, "replication").Val(), "master_link_status:down")
	})
}

// resetInBetween resets every key in the midst of the load, and then Redis loses its
// memory. After the reset a key may be used in full again, once: what instances were
// told before it must not return, what they were told since must.
func resetInBetween(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s, c := beginMemory(t, srv.Addr), srv.Client()
	s.drive(nil)
	resets := make(map[string][2]time.Time) // begin and end, by URL
	s.drive(func() {
		for i, k := range lostKeys {
			for _, a := range lostAlgorithms {
				begun := time.Now()
				s.reset(i, a, k.name)
				resets[s.url(0, a, k.name)] = [2]time.Time{begun, time.Now()}
			}
		}
	})
	s.drive(func() { flushed(t, c) })
	harness.OnlyStatuses(t, s.shots, http.StatusOK, http.StatusTooManyRequests)
	out.report("%d requests", len(s.shots))
	for _, a := range lostAlgorithms {
		var all []string
		for _, k := range lostKeys {
			reset := resets[s.url(0, a, k.name)]
			most, least := s.admitted(a, k.name, reset[0]), s.admitted(a, k.name, reset[1])
			all = append(all, fmt.Sprintf("%.2f", least))
			if most < lostLeast || least > lostMost {
				t.Errorf("%s, key %s: %.2f to %.2f of the limit admitted after the reset, want %.2f to %.2f", a, k.name, least, most, lostLeast, lostMost)
			}
		}
		out.report("%s %s", a, strings.Join(all, "/"))
	}
}

// reset resets a key on all instances, by the admin endpoint of one.
func (s *memoryScene) reset(instance int, algorithm, key string) {
	s.t.Helper()
	a := harness.Do(s.t, http.MethodDelete, fmt.Sprintf("%s/rate_limit/zones/%s/key?part=%s", s.caddys[instance].Admin, algorithm, key), "")
	if !strings.Contains(a.Body, `"everywhere"`) {
		s.t.Errorf("reset of %s, key %s: %d %s", algorithm, key, a.Status, a.Body)
	}
}
