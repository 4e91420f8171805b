package redisim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// network is where clients find servers by their addresses.
type network struct {
	mu      sync.Mutex
	servers map[string]*Server
}

func (n *network) add(all ...*Server) *network {
	for _, s := range all {
		n.servers[s.Address()] = s
	}
	return n
}

func (n *network) dial(_ context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	s := n.servers[address]
	n.mu.Unlock()
	if s == nil || !s.Running() {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	go s.Serve(far)
	return near, nil
}

func address(i int) string { return fmt.Sprintf("10.0.0.%d:6379", i+1) }

// TestFaults makes a server fail in each way, and again work.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Address: address(0), Password: "secret"})
		c := redis.NewClient(&redis.Options{
			Addr: s.Address(), Dialer: (&network{servers: map[string]*Server{}}).add(s).dial, Password: "secret",
			Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
		})
		defer func() { _ = c.Close() }()
		do := func(timeout time.Duration, args ...any) string {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			v, err := c.Do(ctx, args...).Result()
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(v)
		}
		expect := func(begins string, args ...any) {
			t.Helper()
			if got := do(time.Second, args...); !strings.HasPrefix(got, begins) {
				t.Errorf("%q: %q, want %q", args, got, begins)
			}
		}
		script := "return redis.call('SET', KEYS[1], ARGV[1])"
		expect("OK", "SET", "k", "1", "PX", 10_000)
		s.Pause()
		begun := time.Now()
		expect("read pipe: i/o timeout", "SET", "k", "2")
		if took := time.Since(begun); took != time.Second {
			t.Errorf("a paused server: %v", took)
		}
		if s.Keys()["k"] != "1" {
			t.Error("a paused server executed a command")
		}
		s.Resume()
		synctest.Wait()
		if s.Keys()["k"] != "2" {
			t.Error("what was sent to a paused server is not executed afterwards")
		}
		s.Slow(300 * time.Millisecond)
		begun = time.Now()
		expect("2", "GET", "k")
		if took := time.Since(begun); took < 300*time.Millisecond || took > time.Second {
			t.Errorf("a slow server: %v", took)
		}
		s.Slow(0)
		s.SetOOM(true)
		expect("OOM command", "SET", "k", "3")
		expect("OOM command not allowed when used memory > 'maxmemory'. script: "+sha1hex(script), "EVAL", script, 1, "k", "3")
		expect("2", "GET", "k")
		s.SetOOM(false)
		s.SetReadOnly(true)
		expect("READONLY You", "SET", "k", "3")
		expect("READONLY You", "EVAL", script, 1, "k", "3")
		s.SetReadOnly(false)
		s.RefuseWrites("MISCONF Errors writing to the AOF file")
		expect("MISCONF", "SET", "k", "3")
		s.RefuseWrites("")
		s.Loading(true)
		expect("LOADING", "GET", "k")
		s.Loading(false)
		s.Busy(true)
		expect("BUSY", "GET", "k")
		s.Busy(false)
		s.MasterDown(true)
		expect("MASTERDOWN", "GET", "k")
		s.MasterDown(false)
		s.Deny("set", "info")
		expect("NOPERM", "SET", "k", "3")
		expect("ERR The user executing the script can't run this command or subcommand script: ", "EVAL", script, 1, "k", "3")
		s.Deny()
		expect("OK", "SET", "k", "3", "PX", 10_000)
		expect("OK", "SET", "l", "3", "PX", 10_000)
		if gone := s.Evict(rand.New(rand.NewPCG(1, 1)), 1); len(gone) != 1 || len(s.Keys()) != 1 {
			t.Errorf("evicted %v, left %v", gone, s.Keys())
		}
		expect("OK", "SET", "k", "3", "PX", 10_000)
		s.SetClockOffset(11 * time.Second)
		expect("redis: nil", "GET", "k")
		s.SetClockOffset(0)
		expect("OK", "SET", "k", "4", "PX", 10_000)
		sha := sha1hex(script)
		s.FlushScripts()
		expect("NOSCRIPT", "EVALSHA", sha, 1, "k", "4")
		expect(sha, "SCRIPT", "LOAD", script)
		s.FlushScripts()
		expect("NOSCRIPT", "EVALSHA", sha, 1, "k", "4")
		s.Kill()
		if got := do(time.Second, "GET", "k"); got == "4" {
			t.Error("a killed server replied")
		}
		s.Start(true)
		synctest.Wait()
		for range 20 { // connections that were closed are still in the pool
			if do(time.Second, "PING") == "PONG" {
				break
			}
		}
		expect("4", "GET", "k")
		s.Kill()
		s.Start(false)
		for range 20 {
			if do(time.Second, "PING") == "PONG" {
				break
			}
		}
		expect("redis: nil", "GET", "k")
	})
}

// TestPublishInCluster subscribes at one node and publishes at another.
func TestPublishInCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCluster(2, false, func(i int) Options { return Options{Address: address(i)} })
		n := (&network{servers: map[string]*Server{}}).add(c.Nodes()...)
		at := func(i int) *redis.Client {
			return redis.NewClient(&redis.Options{Addr: address(i), Dialer: n.dial, Protocol: 2, DisableIdentity: true})
		}
		from, to := at(0), at(1)
		defer func() { _ = from.Close() }()
		defer func() { _ = to.Close() }()
		sub := to.Subscribe(t.Context(), "news")
		defer func() { _ = sub.Close() }()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := from.Publish(t.Context(), "news", "hello").Err(); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "hello" {
			t.Errorf("%v, %v", m, err)
		}
		if err := sub.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if m, err := sub.Receive(t.Context()); err != nil || fmt.Sprint(m) != "Pong" {
			t.Errorf("%v, %v", m, err)
		}
	})
}

// TestSentinelFailover writes through Sentinels while the master is killed. What had not
// reached the replica is lost, and the old master follows the new one.
func TestSentinelFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := New(Options{Address: address(0)}), New(Options{Address: address(1)})
		n := NewSentinels("main", a, b, 100*time.Millisecond, Options{Address: address(2)}, Options{Address: address(3)})
		net := (&network{servers: map[string]*Server{}}).add(a, b).add(n.Servers()...)
		c := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "main", SentinelAddrs: []string{address(2), address(3)}, Dialer: net.dial,
			Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second,
		})
		defer func() { _ = c.Close() }()
		for i := range 10 {
			if err := c.Set(t.Context(), fmt.Sprint("k", i), i, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Millisecond)
		}
		a.Kill()
		if !n.Failover() {
			t.Fatal("no failover")
		}
		synctest.Wait()
		for range 20 {
			if c.Set(t.Context(), "after", 1, time.Hour).Err() == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if len(b.Keys()) != 8 || b.Keys()["after"] != "1" || b.Replica() {
			t.Errorf("the new master holds %v", b.Keys())
		}
		a.Start(true)
		if got := a.Keys(); len(got) != 8 || !a.Replica() {
			t.Errorf("the old master holds %v", got)
		}
		if err := c.Set(t.Context(), "later", 1, time.Hour).Err(); err != nil {
			t.Error(err)
		}
		if a.Keys()["later"] != "" {
			t.Error("the replica does not lag")
		}
		time.Sleep(100 * time.Millisecond)
		if a.Keys()["later"] != "1" {
			t.Error("the replica does not follow")
		}
	})
}

// TestClusterFailover writes through a Cluster's client while a slot moves and a master is
// replaced by its replica.
func TestClusterFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCluster(3, true, func(i int) Options { return Options{Address: address(i)} })
		n := (&network{servers: map[string]*Server{}}).add(c.Nodes()...)
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{address(0), address(1), address(2)}, Dialer: n.dial, Protocol: 2, DisableIdentity: true, DisableRoutingPolicies: true,
			MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second, ClusterStateReloadInterval: time.Second,
		})
		defer func() { _ = client.Close() }()
		set := func(i int) error { return client.Set(t.Context(), fmt.Sprint("k", i), i, time.Hour).Err() }
		for i := range 100 {
			if err := set(i); err != nil {
				t.Fatal(err)
			}
		}
		slot := Slot("k7")
		from := c.Owner(slot)
		to := c.Nodes()[0]
		if from == to {
			to = c.Nodes()[1]
		}
		c.BeginMove(slot, to)
		if err := set(7); err != nil {
			t.Error("at its old node:", err)
		}
		c.StepMove(slot, 1)
		if err := set(7); err != nil {
			t.Error("asked for at the new node:", err)
		}
		c.EndMove(slot)
		if err := set(7); err != nil || to.Keys()["k7"] != "7" {
			t.Error("at its new node:", err)
		}
		time.Sleep(time.Second)
		from.Kill()
		time.Sleep(2 * time.Second)
		other := 0
		for c.Owner(Slot(fmt.Sprint("k", other))) == from {
			other++
		}
		if err := set(other); err == nil || !strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
			t.Errorf("without one of the masters: %v", err)
		}
		if !c.Failover(from) {
			t.Fatal("no failover")
		}
		from.Start(false)
		for range 20 {
			if set(0) == nil && set(1) == nil && set(2) == nil {
				break
			}
			time.Sleep(time.Second)
		}
		for i := range 100 {
			if got, err := client.Get(t.Context(), fmt.Sprint("k", i)).Result(); err != nil || got != fmt.Sprint(i) {
				t.Errorf("k%d is %q, %v", i, got, err)
			}
		}
		time.Sleep(time.Second)
		if got, want := len(from.Keys()), len(c.Owner(Slot("k7")).Keys()); !from.Replica() || got == 0 && want == 0 {
			t.Errorf("the old master holds %d keys", got)
		}
	})
}
