package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// nodeEvents records which nodes are reported.
type nodeEvents struct {
	noObserver
	mu     sync.Mutex
	events []string
	wrong  int
}

func (e *nodeEvents) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, fmt.Sprintf(format, args...))
}

func (e *nodeEvents) StoreUp(_, node string) { e.add("up %s", node) }

func (e *nodeEvents) StoreDown(_, node string, f stores.Failure, _ error) {
	e.add("down %s %s", node, f)
}

func (e *nodeEvents) StoreError(_ string, f stores.Failure, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f == stores.FailWrong {
		e.wrong++
	}
}

// sinceLast returns the events since the last call.
func (e *nodeEvents) sinceLast() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	got := e.events
	e.events = nil
	return got
}

// newTestNodes returns a conn with known nodes, which are not connected to.
func newTestNodes(tb testing.TB, now *int64, addresses ...string) (*conn, []*node, *nodeEvents) {
	events := new(nodeEvents)
	to := &observer{name: "redis"}
	to.set(events)
	o := ConnOptions{Cluster: true, Addresses: []string{"127.0.0.1:1"}, Lazy: true, Prefix: "diana", Timeout: time.Second, DialTimeout: time.Second}
	clock := func() int64 { return *now }
	c := newConn(&o, clock, to, newPermits(o.Prefix, new(memory.Permits), clock))
	c.connect()
	tb.Cleanup(func() { _ = c.client.Close() })
	var all []*node
	for _, a := range addresses {
		n := c.nodes.of(a)
		c.nodes.add(n)
		all = append(all, n)
	}
	return c, all, events
}

func wantEvents(t *testing.T, e *nodeEvents, want ...string) {
	t.Helper()
	if got := e.sinceLast(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// failUntilOpen makes as many calls to a node fail as open its breaker.
func (c *conn) failUntilOpen(n *node) {
	for range failuresToOpen {
		_ = c.failed(&n.server, errors.New("connection reset"), time.Now())
	}
}

// TestBreakerOfEachNode lets nodes fail and succeed again. Each has a breaker, a count
// of failures, a ramp and an epoch of its own. The store is up while all nodes are.
func TestBreakerOfEachNode(t *testing.T) {
	now := int64(storekit.Hour)
	c, n, events := newTestNodes(t, &now, "a:1", "b:2", "c:3")
	if n[0].epoch() == n[1].epoch() || n[0].connected() == n[1].connected() {
		t.Error("two nodes have one epoch")
	}
	for range failuresToOpen - 1 { // not in a row at any node
		_ = c.failed(&n[0].server, errors.New("connection reset"), time.Now())
		_ = c.failed(&n[1].server, errors.New("connection reset"), time.Now())
	}
	wantEvents(t, events)
	epochs := []uint64{n[0].epoch(), n[1].epoch(), n[2].epoch()}
	_ = c.failed(&n[1].server, errors.New("connection reset"), time.Now())
	wantEvents(t, events, "down b:2 away")
	if n[0].epoch() != epochs[0] || n[2].epoch() != epochs[2] || n[1].epoch() == epochs[1] {
		t.Error("a failure does not change the epoch of its node alone")
	}
	if !c.calls(n[0]) || c.calls(n[1]) || !c.calls(n[2]) {
		t.Errorf("called: %v %v %v, want all but the second", c.calls(n[0]), c.calls(n[1]), c.calls(n[2]))
	}
	c.failUntilOpen(n[2])
	wantEvents(t, events, "down c:3 away")
	if up, _, down := c.nodes.state(); up || len(down) != 2 || down[0].Address != "b:2" || down[1].Address != "c:3" {
		t.Errorf("up %v, down %v, want b:2 and c:3 down", up, down)
	}
	_, since, _ := c.nodes.state()
	n[1].breaker.close(n[1].breaker.opened.Load())
	wantEvents(t, events, "up b:2")
	if up, then, _ := c.nodes.state(); up || !then.Equal(since) {
		t.Errorf("up %v since %v, want down since the first node was away, at %v", up, then, since)
	}
	if !n[1].ramping(now) || n[0].ramping(now) || n[1].ramping(now+rampLasts) {
		t.Error("want the keys of the second node alone to return gradually")
	}
	n[2].breaker.close(n[2].breaker.opened.Load())
	wantEvents(t, events, "up c:3")
	if up, then, down := c.nodes.state(); !up || len(down) > 0 || !then.After(since) {
		t.Errorf("up %v since %v, down %v, want all up since now", up, then, down)
	}
}

// TestNodeIsReplaced removes a node that is away, because another was promoted in its
// place. The store is up, and the other decides more and more of the keys.
func TestNodeIsReplaced(t *testing.T) {
	now := int64(storekit.Hour)
	c, n, events := newTestNodes(t, &now, "a:1", "b:2")
	c.failUntilOpen(n[1])
	wantEvents(t, events, "down b:2 away")
	promoted := c.nodes.of("c:3")
	c.nodes.add(promoted)
	if !promoted.ramping(now) {
		t.Error("the promoted node decides all keys at once")
	}
	c.nodes.keep([]*node{n[0], promoted})
	wantEvents(t, events, "up b:2")
	if up, _, down := c.nodes.state(); !up || len(down) > 0 {
		t.Errorf("up %v, down %v", up, down)
	}
	if again := c.nodes.of("b:2"); again == n[1] || again.breaker.open.Load() {
		t.Error("a node that was removed comes back with its failures")
	}
	c.nodes.keep([]*node{n[0], promoted})
	if len(*c.nodes.byAddress.Load()) != 2 {
		t.Errorf("%d nodes are kept, want 2", len(*c.nodes.byAddress.Load()))
	}
	n[1].breaker.close(n[1].breaker.opened.Load()) // by a call that was under way
	c.failUntilOpen(n[1])
	wantEvents(t, events)
}

// TestBreakerChangesWhileNodesChange adds and removes nodes whose breakers have just changed:
// the change is reported late, when the node is a master already, or none any more.
func TestBreakerChangesWhileNodesChange(t *testing.T) {
	now := int64(storekit.Hour)
	c, n, events := newTestNodes(t, &now, "a:1", "b:2")
	joined := c.nodes.of("c:3")
	c.failUntilOpen(joined) // a replica
	joined.breaker.delayed(func() {
		joined.breaker.close(joined.breaker.opened.Load())
		c.nodes.add(joined)
	})
	wantEvents(t, events)
	n[1].breaker.delayed(func() {
		c.failUntilOpen(n[1])
		c.nodes.keep([]*node{n[0], joined})
	})
	wantEvents(t, events)
	c.failUntilOpen(n[0])
	wantEvents(t, events, "down a:1 away")
	n[0].breaker.delayed(func() {
		n[0].breaker.close(n[0].breaker.opened.Load())
		c.nodes.keep([]*node{joined})
	})
	wantEvents(t, events, "up a:1")
	if up, _, down := c.nodes.state(); !up {
		t.Errorf("%v down, want none", down)
	}
}

// delayed calls f, and has the nodes told afterwards of the changes that it has made.
func (b *breaker) delayed(f func()) {
	changed, late := b.changed, []func(){}
	b.changed = func(up bool, cause error) { late = append(late, func() { changed(up, cause) }) }
	f()
	b.changed = changed
	for _, told := range late {
		told()
	}
}

// TestBeginDown begins with a node of a Cluster that is away, as was reported of the store
// before. It is reported to be back, whether it answers or is replaced.
func TestBeginDown(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		now := int64(storekit.Hour)
		c, _, events := newTestNodes(t, &now)
		c.nodes.beginDown("b:2")
		if up, _, down := c.nodes.state(); up || len(down) != 1 || down[0].Address != "b:2" {
			t.Errorf("up %v, down %v, want b:2 down", up, down)
		}
		a, b := c.nodes.of("a:1"), c.nodes.of("b:2")
		c.nodes.add(b)
		c.nodes.add(a)
		wantEvents(t, events)
		if len(c.nodes.all()) != 2 || c.calls(b) {
			t.Errorf("%d nodes, the second is called: %v, want 2 and false", len(c.nodes.all()), c.calls(b))
		}
		if replaced {
			c.nodes.keep([]*node{a})
		} else {
			b.breaker.close(b.breaker.opened.Load())
		}
		wantEvents(t, events, "up b:2")
		if up, _, down := c.nodes.state(); !up {
			t.Errorf("%v down, want none", down)
		}
	}
}

// TestBeginClocks begins with nodes whose clocks were set. Before they answer, what is counted
// without them goes on in their time.
func TestBeginClocks(t *testing.T) {
	now := int64(storekit.Hour)
	before, n, _ := newTestNodes(t, &now, "a:1", "b:2")
	n[0].clock.learn(now - storekit.Hour/2)
	n[1].clock.learn(now + storekit.Hour)
	c, _, _ := newTestNodes(t, &now)
	c.nodes.beginAs(before.nodes, true)
	for address, want := range map[string]int64{"a:1": now - storekit.Hour/2, "b:2": now + storekit.Hour, "c:3": now} {
		if got := c.nodes.of(address).clock.now(); got != want {
			t.Errorf("%s: %d, want %d", address, got, want)
		}
	}
	if c.nodes.first.clock.now() == now {
		t.Error("no clock is known until the masters are")
	}
}

// TestBeginAway begins as a store whose nodes were all away. In a Cluster nothing tells the slots
// until one is back. A single server is asked by the store itself, which may be the first to reach it.
func TestBeginAway(t *testing.T) {
	for _, cluster := range []bool{true, false} {
		var all [2]*conn
		for i := range all {
			all[i] = newTestConn(ConnOptions{Cluster: cluster, Addresses: []string{"127.0.0.1:1"}, Lazy: true, Prefix: "diana", Timeout: time.Second, DialTimeout: time.Second})
			defer func() { _ = all[i].client.Close() }()
		}
		before, after := all[0].nodes, all[1].nodes
		all[0].failUntilOpen(before.first)
		after.beginAway(before)
		if open := after.first.breaker.open.Load(); open != cluster {
			t.Errorf("cluster %v: the store after it begins with an open breaker: %v", cluster, open)
		}
	}
}

// TestAllNodesAwayAtStart lets all nodes be away at the start. What stands for them is
// no longer reported once a node is known.
func TestAllNodesAwayAtStart(t *testing.T) {
	now := int64(storekit.Hour)
	c, _, events := newTestNodes(t, &now)
	c.failUntilOpen(c.nodes.at(testKey(1)))
	wantEvents(t, events, "down  away")
	n := c.nodes.of("a:1")
	c.nodes.add(n)
	wantEvents(t, events, "up ")
	if up, _, down := c.nodes.state(); !up || len(down) > 0 || !n.ramping(now) {
		t.Errorf("up %v, down %v, gradually %v", up, down, n.ramping(now))
	}
}

// TestWhatNodesAreBlamedFor reports failures of calls. Those of a check or a slot
// leave the node in use, whatever their number.
func TestWhatNodesAreBlamedFor(t *testing.T) {
	for _, c := range []struct {
		err   error
		calls int // that fail until the node is not used any more; 0: it stays in use
	}{
		{errors.New("connection reset"), failuresToOpen},
		{timeoutError{errors.New("i/o timeout")}, 2},
		{refusal("LOADING Redis is loading the dataset in memory"), failuresToOpen},
		{refusal("CLUSTERDOWN The cluster is down"), failuresToOpen},
		{refusal("OOM command not allowed when used memory > 'maxmemory'."), 1},
		{refusal("WRONGTYPE Operation against a key holding the wrong kind of value"), 0},
		{refusal("CROSSSLOT Keys in request don't hash to the same slot"), 0},
		{refusal("ERR Error running script: attempt to compare number with nil"), 0},
		{errReply, 0},
		{errUnsent, 0},
		{errUnanswered, 0},
		{refusal("MOVED 3999 127.0.0.1:6381"), 0},
		{refusal("ASK 3999 127.0.0.1:6381"), 0},
		{refusal("TRYAGAIN Multiple keys request during rehashing of slot"), 0},
		{refusal("CLUSTERDOWN Hash slot not served"), 0},
	} {
		now := int64(storekit.Hour)
		conn, n, _ := newTestNodes(t, &now, "a:1")
		for i := 1; i <= 10; i++ {
			n[0].breaker.sent(time.Now().Add(-time.Second))
			_ = conn.failed(&n[0].server, c.err, time.Now())
			if open, want := n[0].breaker.open.Load(), c.calls > 0 && i >= c.calls; open != want {
				t.Errorf("%v: after %d failures the breaker is open: %v, want %v", c.err, i, open, want)
			}
		}
	}
}

// TestLastNumberOfInstancesHolds sends a heartbeat to a node that is away.
func TestLastNumberOfInstancesHolds(t *testing.T) {
	srv := redistest.Start(t)
	c := newTestConn(ConnOptions{Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second})
	defer func() { _ = c.client.Close() }()
	i := &instances{conn: c, live: new(Seen)}
	i.live.Store(3)
	srv.Kill()
	if err := i.beat(context.Background(), c.nodes.first, beatTag); err == nil || i.live.Load() != 3 {
		t.Errorf("%d instances after %v, want the last number, 3", i.live.Load(), err)
	}
}

// TestWrongAnswersConcernOneCheck spoils a key with a value of another program. Each
// check of it is reported and decided without Redis, also several in a row; other
// checks and connections are not affected.
func TestWrongAnswersConcernOneCheck(t *testing.T) {
	srv := redistest.Start(t)
	s := newTestShared(t, srv, func() int64 { return storekit.Hour })
	events := new(nodeEvents)
	s.Observe(events)
	c := counterOfManyKeys(t)
	ctx, client := context.Background(), srv.Client()
	name := namesOf("diana", &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: testKey(1), Tag: testKey(1)}})[0]
	if err := client.RPush(ctx, name, "a task").Err(); err != nil {
		t.Fatal(err)
	}
	s.mode(t, c, 2)
	connections := s.conn.nodes.first.tracker.current()
	const checks = 5 * failuresToOpen
	for i := range checks {
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: testKey(1), Tag: testKey(1)}, Cost: 1}}}
		if s.Decide(ctx, check); check.Mode != stores.ModeFallback {
			t.Errorf("mode %v of the spoiled key", check.Mode)
		}
		if i%failuresToOpen < failuresToOpen-1 {
			continue
		}
		if m := s.mode(t, c, newKey()); m != stores.ModeShared {
			t.Errorf("mode %v of another key", m)
		}
	}
	wantEvents(t, events)
	if events.wrong < checks { // and one for each second, in which what the key owes is handed over
		t.Errorf("%d wrong answers reported, want at least %d", events.wrong, checks)
	}
	for c := range connections {
		if c.retired.Load() {
			t.Error("a connection was replaced")
		}
	}
	if n := client.LLen(ctx, name).Val(); n != 1 {
		t.Errorf("the value of the other program has %d elements, want 1", n)
	}
}

// TestSlotsOfOneCheckDiffer uses a node of a Cluster as a single Redis. Checks with
// keys in several slots are decided without it, and others by it.
func TestSlotsOfOneCheckDiffer(t *testing.T) {
	srv := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	client := srv.Client()
	if err := client.ClusterAddSlotsRange(context.Background(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the slots are served", func() bool { return client.Get(context.Background(), "any").Err().Error() == "redis: nil" })
	s := newTestShared(t, srv, func() int64 { return storekit.Hour })
	events := new(nodeEvents)
	s.Observe(events)
	c := counterOfManyKeys(t)
	for range 2 * failuresToOpen {
		check := &stores.Check{Zones: []stores.ZoneCheck{
			{Counter: c, Subject: stores.Subject{Key: testKey(1), Tag: testKey(1)}, Cost: 1},
			{Counter: kit.TenPerHour(t, "other", false), Subject: stores.Subject{Key: testKey(2), Tag: testKey(2)}, Cost: 1},
		}}
		if s.Decide(context.Background(), check); check.Mode != stores.ModeFallback {
			t.Errorf("mode %v of a check with keys in two slots", check.Mode)
		}
		if m := s.mode(t, c, newKey()); m != stores.ModeShared {
			t.Errorf("mode %v of a check with one key", m)
		}
	}
	wantEvents(t, events)
}

// TestNodesHaveTheirOwnClocks teaches the time of one node of a Cluster. That of the
// others, in calls and in the fallback, is not affected.
func TestNodesHaveTheirOwnClocks(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	o := ConnOptions{Cluster: true, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second}
	for _, n := range nodes {
		o.Addresses = append(o.Addresses, n.Addr)
	}
	s := New(Options{Name: "cluster", Clock: func() int64 { return storekit.Hour }, ConnOptions: o}, strictObserver{t})
	s.connectOnly() // without heartbeats, which teach the time of all nodes
	t.Cleanup(s.closeClient)
	s.conn.nodes.refresh(context.Background())
	c, tags := counterOfManyKeys(t), tagsOfMasters(t, nodes[0].Client())
	if m := s.modeOfTag(t, c, newKey(), tags[0]); m != stores.ModeShared {
		t.Fatalf("mode %v", m)
	}
	for i, tag := range tags {
		if known := s.conn.at(tag).clock.known.Load(); known != (i == 0) {
			t.Errorf("master %d: time known %v after a call of the first", i, known)
		}
	}
	s.conn.at(tags[1]).clock.learn(storekit.Hour + 7_000_000)
	s.Observe(silent{})
	for i, tag := range tags {
		s.conn.at(tag).breaker.trip(errors.New("gone"))
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: testKey(newKey()), Tag: tag}, Cost: 1}}}
		s.At(tag).Decide(context.Background(), check)
		if ahead := check.Now == storekit.Hour+7_000_000; check.Mode != stores.ModeFallback || ahead != (i == 1) {
			t.Errorf("master %d: mode %v, %d us ahead", i, check.Mode, check.Now-storekit.Hour)
		}
	}
}

// TestTagOfEverySlot finds a tag for heartbeats in each slot, as a master may have a single one.
func TestTagOfEverySlot(t *testing.T) {
	t.Parallel()
	const slots = 16384
	found := make(map[uint16]bool, slots)
	for i := range maxBeatTags {
		var crc uint16 // CRC-16/XMODEM, as of https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec
		for _, c := range []byte(beatTag + strconv.Itoa(i)) {
			crc ^= uint16(c) << 8
			for range 8 {
				if crc&0x8000 != 0 {
					crc = crc<<1 ^ 0x1021
				} else {
					crc <<= 1
				}
			}
		}
		found[crc%slots] = true
	}
	if len(found) != slots {
		t.Errorf("tags in %d of %d slots", len(found), slots)
	}
}
