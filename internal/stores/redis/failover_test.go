package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// startAt starts a store that is told of nothing.
func startAt(t *testing.T, o ConnOptions) *Store {
	t.Helper()
	o.Prefix, o.DialTimeout = "diana", 5*time.Second
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second // a busy machine keeps it
	}
	start := time.Now()
	clock := func() int64 { return storestest.Hour + time.Since(start).Microseconds() }
	s := New(Options{Name: "redis", Clock: clock, ConnOptions: o}, ignoring{})
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	return s
}

// manyKeys counts more keys than a test asks for, also alone.
func manyKeys(t *testing.T) *stores.Counter {
	c := storestest.TenAnHour(t, "z", false)
	c.Table = memory.NewTable(c.Rules, true, 1_000_000)
	return c
}

// mode decides one request of a key and says how. It fails the test if the
// request was not admitted.
func (s *Store) mode(t *testing.T, c *stores.Counter, key uint64) stores.Mode {
	t.Helper()
	k := stores.Key{Hi: key * 0x9E3779B97F4A7C15, Lo: key}
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Key: k, Tag: k, Cost: 1}}}
	s.At(k).Decide(context.Background(), check)
	if !check.Admitted {
		t.Errorf("key %d was denied", key)
	}
	return check.Mode
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// clients are the ids of the connections to a server by which it was asked to
// decide.
func clients(t *testing.T, srv *redistest.Server) (ids []string) {
	t.Helper()
	list, err := srv.Client().ClientList(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(list) {
		if strings.Contains(line, " cmd=evalsha ") {
			id, _, _ := strings.Cut(line, " ")
			ids = append(ids, id)
		}
	}
	return ids
}

// TestReconnectsAtOnce calls an unavailable Redis far more often than the pool
// is large. The first call after Redis is back succeeds.
func TestReconnectsAtOnce(t *testing.T) {
	srv := redistest.Start(t)
	c := newTestConn(ConnOptions{Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second, PoolSize: 2})
	defer func() { _ = c.client.Close() }()
	srv.Kill()
	for range 20 {
		err := c.client.Ping(context.Background()).Err()
		if err == nil || classify(err) != FailAway || mayHaveRun(err) || !strings.Contains(err.Error(), srv.Addr) {
			t.Fatalf("error %v, want that nobody is at %s", err, srv.Addr)
		}
		c.distrust(classify(err))
	}
	srv.Run()
	if err := c.client.Ping(context.Background()).Err(); err != nil {
		t.Errorf("the first call after Redis is back: %v", err)
	}
}

// TestTooManyClients reports a Redis at its maxclients, which closes
// connections before they are used.
func TestTooManyClients(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client().Conn()
	defer func() { _ = admin.Close() }()
	if err := admin.ConfigSet(context.Background(), "maxclients", "1").Err(); err != nil {
		t.Fatal(err)
	}
	c := newTestConn(ConnOptions{Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second, PoolSize: 2})
	defer func() { _ = c.client.Close() }()
	for range 50 {
		err := c.client.Ping(context.Background()).Err()
		if err == nil || classify(err) != FailRefused || !strings.Contains(Advice(FailRefused, err), "maxclients") {
			t.Fatalf("error %v of class %s, want that there are too many clients", err, classify(err))
		}
	}
}

// TestNoStaleConnection makes a master a replica for a moment while many
// connections to it are open: none of them is used again, and all are closed.
func TestNoStaleConnection(t *testing.T) {
	t.Parallel()
	srv, other := redistest.Start(t), redistest.Start(t)
	s := startAt(t, ConnOptions{Addresses: []string{srv.Addr}, PoolSize: 10})
	counter := manyKeys(t)
	s.breaker.open.Store(false)
	done := make(chan stores.Mode)
	for i := range 10 {
		go func() { done <- s.mode(t, counter, uint64(100+i)) }()
	}
	for range 10 {
		<-done
	}
	before := clients(t, srv)
	if len(before) < 2 {
		t.Fatalf("%d connections", len(before))
	}
	ctx, admin := context.Background(), srv.Client()
	if err := admin.ReplicaOf(ctx, "127.0.0.1", strings.TrimPrefix(other.Addr, "127.0.0.1:")).Err(); err != nil {
		t.Fatal(err)
	}
	if m := s.mode(t, counter, 1); m != stores.ModeFallback {
		t.Errorf("mode %v on a replica", m)
	}
	if err := admin.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "Redis is asked again", func() bool { return s.mode(t, counter, uint64(time.Now().UnixNano())) == stores.ModeShared })
	waitFor(t, "the old connections are closed", func() bool {
		now := clients(t, srv)
		return !slices.ContainsFunc(before, func(id string) bool { return slices.Contains(now, id) })
	})
}

// TestSentinelFailover kills a master that Sentinels monitor. Every request is
// decided, counts are shared at the new master, and the old one gets no calls
// after it is back as a replica.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	w := redistest.StartSentinel(t)
	s := startAt(t, ConnOptions{Addresses: w.Addrs(), Master: redistest.SentinelMaster})
	counter := manyKeys(t)
	waitFor(t, "counts are shared", func() bool { return s.mode(t, counter, uint64(time.Now().UnixNano())) == stores.ModeShared })
	w.Master.Kill()
	begun := time.Now()
	if m := s.mode(t, counter, 1); m != stores.ModeFallback {
		t.Errorf("mode %v without a master", m)
	}
	waitFor(t, "counts are shared", func() bool { return s.mode(t, counter, uint64(time.Now().UnixNano())) == stores.ModeShared })
	t.Logf("shared again %v after the master was killed", time.Since(begun))
	w.Master.Run()
	// As the Sentinels would, later.
	if err := w.Master.Client().ReplicaOf(context.Background(), "127.0.0.1", strconv.Itoa(w.Replica.Port)).Err(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if m := s.mode(t, counter, uint64(time.Now().UnixNano())); m != stores.ModeShared {
			t.Errorf("mode %v after the failover", m)
		}
	}
	if n := w.Replica.Client().DBSize(context.Background()).Val(); n < 6 {
		t.Errorf("%d keys at the new master", n)
	}
	list := w.Master.Client().ClientList(context.Background()).Val()
	if strings.Contains(list, "cmd=evalsha") {
		t.Errorf("connections to the old master:\n%s", list)
	}
}

// TestClusterFailover kills the master of a slot. Every request is decided,
// keys of other slots stay shared or soon are again, and those of that slot are
// once its replica is promoted.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartReplicatedCluster(t, 3)
	o := ConnOptions{Cluster: true}
	for _, n := range nodes[:3] {
		o.Addresses = append(o.Addresses, n.Addr)
	}
	s := startAt(t, o)
	t.Cleanup(func() {
		for i, n := range nodes {
			if t.Failed() {
				text, err := n.Client().ClusterNodes(context.Background()).Result()
				output, _ := n.Ended()
				t.Logf("node %d on %s (%v):\n%s\n%s", i, n.Addr, err, text, output)
			}
		}
	})
	counter := manyKeys(t)
	waitFor(t, "counts are shared in all slots", func() bool { return s.shares(t, counter) })
	clients := make(map[*redistest.Server]*redis.Client)
	for _, n := range nodes {
		clients[n] = n.Client()
	}
	role := func(n *redistest.Server) []any {
		said, _ := clients[n].Do(context.Background(), "role").Slice()
		return append(said, make([]any, 4)...)
	}
	killed := make(map[*redistest.Server]bool)
	for range 2 { // one of them may hold the instances
		// Where all was still for longer than the nodes' timeout, another than the
		// first three may be a master by now.
		var victim *redistest.Server
		waitFor(t, "a master to kill", func() bool {
			i := slices.IndexFunc(nodes, func(n *redistest.Server) bool { return !killed[n] && role(n)[0] == "master" })
			if i >= 0 {
				victim = nodes[i]
			}
			return i >= 0
		})
		killed[victim] = true
		victim.Kill()
		begun := time.Now()
		waitFor(t, "counts are shared in all slots", func() bool { return s.shares(t, counter) })
		t.Logf("shared again %v after the master was killed", time.Since(begun))
		victim.Run()
		waitFor(t, "the old master is a replica", func() bool {
			r := role(victim)
			return r[0] == "slave" && r[3] == "connected"
		})
	}
}

// shares says whether twenty different keys are counted in Redis.
func (s *Store) shares(t *testing.T, c *stores.Counter) bool {
	for i := range uint64(20) {
		if s.mode(t, c, uint64(time.Now().UnixNano())+i) != stores.ModeShared {
			return false
		}
	}
	return true
}
