package redis

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// startStore starts a store without an observer.
func startStore(t *testing.T, o ConnOptions) *Store {
	t.Helper()
	o.Prefix, o.DialTimeout = "diana", 5*time.Second
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second // exceeded by no call, even on a busy machine
	}
	start := time.Now()
	clock := func() int64 { return storekit.Hour + time.Since(start).Microseconds() }
	s := New(Options{Name: "redis", Clock: clock, ConnOptions: o}, silent{})
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	return s
}

// counterOfManyKeys has room for all keys of a test, also in the fallback.
func counterOfManyKeys(t *testing.T) *stores.Counter {
	c := kit.TenPerHour(t, "z", false)
	c.Table = memory.NewTable(c.Rules, 1_000_000)
	return c
}

// testKey returns the key with a number.
func testKey(n uint64) stores.Key { return stores.Key{Hi: n * 0x9E3779B97F4A7C15, Lo: n} }

// mode decides one check of a key and returns its mode. It fails the test if the
// check is denied.
func (s *Store) mode(t *testing.T, c *stores.Counter, key uint64) stores.Mode {
	t.Helper()
	return s.modeOfTag(t, c, key, testKey(key))
}

// modeOfTag is mode with another tag, whose slot of a Cluster holds the key.
func (s *Store) modeOfTag(t *testing.T, c *stores.Counter, key uint64, tag stores.Key) stores.Mode {
	t.Helper()
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: testKey(key), Tag: tag}, Cost: 1}}}
	s.At(tag).Decide(context.Background(), check)
	if !check.Admitted {
		t.Errorf("key %d was denied", key)
	}
	return check.Mode
}

// newKey returns the number of a key that was not used before.
func newKey() uint64 { return uint64(time.Now().UnixNano()) }

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const most = 2 * time.Minute
	for deadline := time.Now().Add(most); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", most, what)
		}
	}
}

// clients returns the IDs of the connections to a server whose last command ran
// the script, or is about to.
func clients(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	return connections(t, admin, " cmd=evalsha ")
}

// connections returns the IDs of the connections to a server whose entries in
// CLIENT LIST contain a text.
func connections(t *testing.T, admin *redis.Client, text string) (ids []string) {
	t.Helper()
	list, err := admin.ClientList(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(list) {
		if strings.Contains(line, text) {
			id, _, _ := strings.Cut(line, " ")
			ids = append(ids, id)
		}
	}
	return ids
}

// TestReconnectsAtOnce makes more calls to an unavailable Redis than the pool has
// connections. The first call after Redis is available again succeeds.
func TestReconnectsAtOnce(t *testing.T) {
	srv := redistest.Start(t)
	c := newTestConn(ConnOptions{Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second, PoolSize: 2})
	defer func() { _ = c.client.Close() }()
	srv.Kill()
	for range 20 {
		err := c.client.Ping(context.Background()).Err()
		if err == nil || classify(err) != stores.FailAway || mayHaveRun(err) || !strings.Contains(err.Error(), srv.Addr) {
			t.Fatalf("error %v, want a refused connection to %s", err, srv.Addr)
		}
		c.distrust(&c.nodes.first.server, classify(err), err, time.Now())
	}
	srv.Run()
	if err := c.client.Ping(context.Background()).Err(); err != nil {
		t.Errorf("the first call after the restart: %v", err)
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
		if err == nil || classify(err) != stores.FailRejected || !strings.Contains(advice(stores.FailRejected, err), "maxclients") {
			t.Fatalf("error %v of class %s, want one about maxclients", err, classify(err))
		}
	}
}

// TestNoStaleConnection makes a master a replica for a moment while several
// connections to it are open. None of them is used again, and all are closed.
func TestNoStaleConnection(t *testing.T) {
	t.Parallel()
	srv, other := redistest.Start(t), redistest.Start(t)
	// The timeout is also how long the old connections remain open.
	s := startStore(t, ConnOptions{Addresses: []string{srv.Addr}, PoolSize: 10, Timeout: 10 * time.Second})
	counter := counterOfManyKeys(t)
	ctx, admin := context.Background(), srv.Client()
	waitFor(t, "Redis decides", func() bool { return s.mode(t, counter, newKey()) == stores.ModeShared })
	waitFor(t, "the ramp ends", func() bool { return !s.conn.nodes.first.ramping(s.o.Clock()) })
	// A paused Redis replies to no call, so each call in flight needs a
	// connection of its own.
	resume := pause(t, admin)
	var wg sync.WaitGroup
	for i := range uint64(10) {
		wg.Go(func() { s.mode(t, counter, 100+i) })
	}
	var before []string
	waitFor(t, "two calls are in flight", func() bool {
		before = clients(t, admin)
		return len(before) >= callsInFlight
	})
	resume()
	wg.Wait()
	if err := admin.ReplicaOf(ctx, "127.0.0.1", strings.TrimPrefix(other.Addr, "127.0.0.1:")).Err(); err != nil {
		t.Fatal(err)
	}
	if m := s.mode(t, counter, 1); m != stores.ModeFallback {
		t.Errorf("mode %v on a replica", m)
	}
	if err := admin.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "Redis decides again", func() bool { return s.mode(t, counter, newKey()) == stores.ModeShared })
	waitFor(t, "the old connections are closed", func() bool {
		now := connections(t, admin, "id=")
		return !slices.ContainsFunc(before, func(id string) bool { return slices.Contains(now, id) })
	})
}

// TestSentinelFailover kills a master that Sentinels monitor. Every check is
// decided, counts are shared at the new master, and the old one receives no calls
// after it has returned as a replica.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	w := redistest.StartSentinel(t)
	s := startStore(t, ConnOptions{Addresses: w.Addrs(), Master: redistest.SentinelMaster})
	counter := counterOfManyKeys(t)
	waitFor(t, "counts are shared", func() bool { return s.mode(t, counter, newKey()) == stores.ModeShared })
	w.Master.Kill()
	start := time.Now()
	if m := s.mode(t, counter, 1); m != stores.ModeFallback {
		t.Errorf("mode %v without a master", m)
	}
	waitFor(t, "counts are shared", func() bool { return s.mode(t, counter, newKey()) == stores.ModeShared })
	t.Logf("shared again %v after the master was killed", time.Since(start))
	w.Master.Run()
	// The Sentinels would do the same later.
	if err := w.Master.Client().ReplicaOf(context.Background(), "127.0.0.1", strconv.Itoa(w.Replica.Port)).Err(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if m := s.mode(t, counter, newKey()); m != stores.ModeShared {
			t.Errorf("mode %v after the failover", m)
		}
	}
	if to := s.leads(); to != w.Replica.Addr {
		t.Errorf("the connections are to %s, want to the new master %s", to, w.Replica.Addr)
	}
	if n := w.Replica.Client().DBSize(context.Background()).Val(); n < 6 {
		t.Errorf("%d keys at the new master, want at least 6", n)
	}
	list := w.Master.Client().ClientList(context.Background()).Val()
	if strings.Contains(list, "cmd=evalsha") {
		t.Errorf("connections to the old master:\n%s", list)
	}
}

// TestSentinelsThatDisagree names two Sentinels by one address, each of which knows another master, and
// closes connections meanwhile. Checks are decided over the same few connections all the same.
func TestSentinelsThatDisagree(t *testing.T) {
	t.Parallel()
	masters := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	sentinels := []*redistest.Server{redistest.StartSentinelOf(t, masters[0]), redistest.StartSentinelOf(t, masters[1])}
	const either, most = "sentinels:26379", 200
	var asked atomic.Int64
	s := startStore(t, ConnOptions{
		Addresses: []string{either}, Master: redistest.SentinelMaster,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != either {
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			c, err := new(net.Dialer).DialContext(ctx, network, sentinels[asked.Add(1)%2].Addr)
			if err == nil {
				time.AfterFunc(20*time.Millisecond, func() { _ = c.Close() }) // so that another is asked
			}
			return c, err
		},
	})
	counter := counterOfManyKeys(t)
	for range 3 {
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				for range 100 {
					s.mode(t, counter, newKey())
				}
			})
		}
		all.Wait()
		for _, m := range masters {
			m.Client().ClientKillByFilter(context.Background(), "TYPE", "normal")
		}
	}
	if n := s.opened(); n > most {
		t.Errorf("%d connections were opened for 9,600 checks, want at most %d", n, most)
	}
}

// TestSentinelThatIsNotConfigured configures one of three Sentinels, which goes away with the master. The
// connections to the others, which it has named, take none of those that the pool may have to the
// master.
func TestSentinelThatIsNotConfigured(t *testing.T) {
	t.Parallel()
	w := redistest.StartSentinel(t)
	s := startStore(t, ConnOptions{Addresses: w.Addrs()[:1], Master: redistest.SentinelMaster, PoolSize: 1})
	counter := counterOfManyKeys(t)
	waitFor(t, "counts are shared", func() bool { return s.mode(t, counter, newKey()) == stores.ModeShared })
	w.Sentinels[0].Kill()
	w.Master.Kill()
	waitFor(t, "there is no master", func() bool { return s.mode(t, counter, newKey()) == stores.ModeFallback })
	waitFor(t, "counts are shared again", func() bool { return s.mode(t, counter, newKey()) == stores.ModeShared })
}

// TestSubscriptionOutlivesSentinel ends the only Sentinel that is configured for a client of one connection,
// and the subscription's connection: the client subscribes again at the master that another Sentinel
// names, and can be closed.
func TestSubscriptionOutlivesSentinel(t *testing.T) {
	t.Parallel()
	w, ctx := redistest.StartSentinel(t), context.Background()
	client := NewClient(&ConnOptions{
		Addresses: w.Addrs()[:1], Master: redistest.SentinelMaster, PoolSize: 1, Lazy: true, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
	})
	sub, admin := client.Subscribe(ctx, "c"), w.Master.Client()
	subscribed := func() bool {
		_, _ = sub.ReceiveTimeout(ctx, 100*time.Millisecond)
		return admin.PubSubNumSub(ctx, "c").Val()["c"] == 1
	}
	waitFor(t, "the client has subscribed", subscribed)
	w.Sentinels[0].Kill()
	admin.ClientKillByFilter(ctx, "TYPE", "pubsub")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !subscribed() {
			time.Sleep(5 * time.Millisecond)
		}
		_ = client.Close()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("the client still waits for a connection")
	}
}

// TestNoSentinelAnswers asks for the master where no Sentinel listens, and where one does not
// answer: what is not sent has certainly not run, and does not keep the pool from trying again.
func TestNoSentinelAnswers(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for _, addr := range []string{"127.0.0.1:1", silent.Addr().String()} {
		c := newTestConn(ConnOptions{Addresses: []string{addr}, Master: "m", Prefix: "diana", Timeout: 100 * time.Millisecond, DialTimeout: 100 * time.Millisecond, Lazy: true, PoolSize: 1})
		for range 3 {
			ctx, cancel := c.background(context.Background())
			q := newCall(time.Time{}, stores.Key{})
			q.add([]string{"diana:{k}"}, []byte{opPeek})
			_, _, err := c.call(ctx, q)
			cancel()
			if err == nil || mayHaveRun(err) {
				t.Errorf("%s: %v, want an error of a call that was not sent", addr, err)
			}
		}
	}
}

// TestClusterFailover kills two masters, one after the other. Every check is
// decided, and once the replica is promoted Redis decides in all slots.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartReplicatedCluster(t, 3)
	o := ConnOptions{Cluster: true}
	for _, n := range nodes[:3] {
		o.Addresses = append(o.Addresses, n.Addr)
	}
	s := startStore(t, o)
	t.Cleanup(func() {
		for i, n := range nodes {
			if t.Failed() {
				text, err := n.Client().ClusterNodes(context.Background()).Result()
				output, _ := n.Ended()
				t.Logf("node %d on %s (%v):\n%s\n%s", i, n.Addr, err, text, output)
			}
		}
	})
	counter := counterOfManyKeys(t)
	clients := make(map[*redistest.Server]*redis.Client)
	for _, n := range nodes {
		clients[n] = n.Client()
	}
	tags := tagsOfMasters(t, clients[nodes[0]])
	waitFor(t, "counts are shared in all slots", func() bool { return s.allShared(t, counter, tags) })
	role := func(n *redistest.Server) []any {
		reply, _ := clients[n].Do(context.Background(), "role").Slice()
		return append(reply, make([]any, 4)...)
	}
	killed := make(map[*redistest.Server]bool)
	for range 2 { // one of them may hold the instances
		// After a stall of more than cluster-node-timeout a node other than the
		// first three may be a master, and its replica may not be in sync: such a
		// replica is never promoted.
		var victim *redistest.Server
		waitFor(t, "a master has a replica in sync", func() bool {
			i := slices.IndexFunc(nodes, func(n *redistest.Server) bool {
				r := role(n)
				replicas, _ := r[2].([]any)
				return !killed[n] && r[0] == "master" && len(replicas) > 0
			})
			if i >= 0 {
				victim = nodes[i]
			}
			return i >= 0
		})
		killed[victim] = true
		victim.Kill()
		start := time.Now()
		// A master that is started again before its replica is promoted remains
		// the master.
		waitFor(t, "the replica is promoted", func() bool {
			masters := 0
			for _, n := range nodes {
				if n != victim && role(n)[0] == "master" {
					masters++
				}
			}
			return masters == 3
		})
		waitFor(t, "counts are shared in all slots", func() bool { return s.allShared(t, counter, tags) })
		t.Logf("shared again %v after the master was killed", time.Since(start))
		victim.Run()
		waitFor(t, "the old master is a replica", func() bool {
			r := role(victim)
			return r[0] == "slave" && r[3] == "connected"
		})
	}
}

// tagsOfMasters returns a tag in the slots of each of three masters.
func tagsOfMasters(t *testing.T, node *redis.Client) (tags [3]stores.Key) {
	t.Helper()
	for n, found := uint64(1), 0; found < len(tags); n++ {
		tag := testKey(n << 20) // in the first batcher of its node
		name := namesOf("diana", &stores.ZoneCheck{Counter: new(stores.Counter), Subject: stores.Subject{Key: tag, Tag: tag}})[0]
		slot, err := node.ClusterKeySlot(context.Background(), name).Result()
		if err != nil {
			t.Fatal(err)
		}
		if i := slot * 3 / 16384; tags[i] == (stores.Key{}) {
			tags[i] = tag
			found++
		}
	}
	return tags
}

// allShared says whether Redis decides checks of new keys under all tags.
func (s *Store) allShared(t *testing.T, c *stores.Counter, tags [3]stores.Key) bool {
	t.Helper()
	for range 7 {
		for _, tag := range tags {
			if s.modeOfTag(t, c, newKey(), tag) != stores.ModeShared {
				return false
			}
		}
	}
	return true
}
