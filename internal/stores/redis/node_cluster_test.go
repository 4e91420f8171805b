package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// partialCluster lets the other masters of a Cluster go on when one is down.
var partialCluster = []string{"--cluster-require-full-coverage", "no"}

// clusterTraffic makes checks of new keys on each of three masters, and counts how
// many of each were decided by Redis.
type clusterTraffic struct {
	store   *Store
	counter *stores.Counter
	tags    [3]stores.Key
	next    atomic.Uint64

	all, shared [3]atomic.Int64
}

// check makes one check of a new key on a master.
func (c *clusterTraffic) check(t *testing.T, master int) {
	c.all[master].Add(1)
	if c.store.modeOfTag(t, c.counter, c.next.Add(1)<<20, c.tags[master]) == stores.ModeShared {
		c.shared[master].Add(1)
	}
}

// sequential makes checks one at a time, several of a master in a row.
func (c *clusterTraffic) sequential(t *testing.T) {
	for i := range 90 {
		c.check(t, i/5%3)
	}
}

// random makes checks of all masters concurrently.
func (c *clusterTraffic) random(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				c.check(t, rand.IntN(3))
			}
		})
	}
	wg.Wait()
}

// clusterOptions are the options of a store in a Cluster.
func clusterOptions(nodes []*redistest.Server, timeout time.Duration) ConnOptions {
	o := ConnOptions{Cluster: true, Timeout: timeout}
	for _, n := range nodes {
		o.Addresses = append(o.Addresses, n.Addr)
	}
	return o
}

// wantOthersShared fails the test unless Redis decided every check of the masters
// other than one, and hardly any of that one.
func (c *clusterTraffic) wantOthersShared(t *testing.T, away int, what string) {
	t.Helper()
	for m := range c.all {
		all, shared := c.all[m].Swap(0), c.shared[m].Swap(0)
		t.Logf("%s: master %d: %d of %d checks decided by Redis", what, m, shared, all)
		if m != away && shared != all {
			t.Errorf("%s: %d of %d checks of master %d were decided by Redis, want all", what, shared, all, m)
		}
		if m == away && shared != 0 {
			t.Errorf("%s: %d checks were decided by the master that is away", what, shared)
		}
	}
}

// TestClusterNodeAway stops, and then kills, one master of a Cluster after another: one
// that has the heartbeats and one that has not. Redis decides every check of the
// others meanwhile, and those of the master once it is back.
func TestClusterNodeAway(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3, partialCluster...)
	o := clusterOptions(nodes, 5*time.Second)
	c := &clusterTraffic{store: startStore(t, o), counter: counterOfManyKeys(t), tags: tagsOfMasters(t, nodes[0].Client())}
	slot, err := nodes[0].Client().ClusterKeySlot(context.Background(), "diana:{instances}").Result()
	if err != nil {
		t.Fatal(err)
	}
	beats := int(slot) * 3 / 16384
	for _, away := range []int{beats, (beats + 1) % 3} {
		for _, fault := range []struct {
			name     string
			set, end func()
		}{{"stopped", nodes[away].Stall, nodes[away].Resume}, {"killed", nodes[away].Kill, nodes[away].Run}} {
			what := fmt.Sprintf("master %d %s", away, fault.name)
			waitFor(t, "all masters decide before "+what, func() bool { return c.store.allShared(t, c.counter, c.tags) })
			fault.set()
			for i, n := range nodes {
				if i != away { // the script is loaded again where it is missing, and nowhere else
					if err := n.Client().ScriptFlush(context.Background()).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.random(t)
			c.wantOthersShared(t, away, what+", random")
			c.sequential(t)
			c.wantOthersShared(t, away, what+", sequential")
			if up, _, down := c.store.State(); up || len(down) != 1 || down[0].Address != nodes[away].Addr {
				t.Errorf("%s: up %v, nodes away %v, want %s", what, up, down, nodes[away].Addr)
			}
			if n := c.store.Instances(); n != 1 {
				t.Errorf("%s: %d instances, want the last number, 1", what, n)
			}
			fault.end()
		}
	}
	waitFor(t, "all masters decide", func() bool { return c.store.allShared(t, c.counter, c.tags) })
}

// TestClusterStartsWithNodesAway starts a store while one master of a Cluster is away, and
// while all are.
func TestClusterStartsWithNodesAway(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3, partialCluster...)
	o := clusterOptions(nodes, 5*time.Second)
	tags := tagsOfMasters(t, nodes[0].Client())
	nodes[0].Kill()
	waitFor(t, "the others go on", func() bool {
		info, err := nodes[1].Client().ClusterInfo(context.Background()).Result()
		return err == nil && strings.Contains(info, "cluster_slots_fail:5461")
	})
	s, counter := startStore(t, o), counterOfManyKeys(t)
	shared := func(s *Store, tag stores.Key) bool {
		return s.modeOfTag(t, counter, newKey(), tag) == stores.ModeShared
	}
	waitFor(t, "two masters decide", func() bool { return shared(s, tags[1]) && shared(s, tags[2]) })
	for range 5 {
		if shared(s, tags[0]) || !shared(s, tags[1]) || !shared(s, tags[2]) {
			t.Error("want the two masters that are there to decide")
		}
	}
	nodes[1].Kill()
	nodes[2].Kill()
	late := startStore(t, o)
	for _, tag := range tags {
		if shared(late, tag) {
			t.Error("a check is shared while all masters are away")
		}
	}
	for _, n := range nodes {
		n.Run()
	}
	waitFor(t, "all masters decide", func() bool { return s.allShared(t, counter, tags) && late.allShared(t, counter, tags) })
}

// TestClusterAwayOverReload replaces a store twice while no master of a Cluster answers. No store asks
// Redis in a check, though it does not know the slots, and each master is reported once when it is back.
func TestClusterAwayOverReload(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	o := clusterOptions(nodes, 5*time.Second)
	o.Prefix, o.DialTimeout = "diana", 5*time.Second
	counter, tags, start := counterOfManyKeys(t), tagsOfMasters(t, nodes[0].Client()), time.Now()
	begin := func(timeout time.Duration, to stores.Observer) *Store {
		o.Timeout = timeout
		s := New(Options{Name: "redis", Clock: func() int64 { return storekit.Hour + time.Since(start).Microseconds() }, ConnOptions: o}, to)
		t.Cleanup(func() { _ = s.Destruct() })
		return s
	}
	s := begin(200*time.Millisecond, silent{})
	s.Start(1)
	waitFor(t, "all masters decide", func() bool { return s.allShared(t, counter, tags) })
	for _, n := range nodes {
		n.Stall()
	}
	waitFor(t, "all masters are away", func() bool { return !s.allShared(t, counter, tags) && !s.conn.anyUsable() })
	var events *nodeEvents
	for range 2 {
		events = new(nodeEvents)
		next := begin(5*time.Second, events)
		next.Begin(s)
		next.BeginAs(s)
		next.connectOnly() // without heartbeats, which open a breaker too
		for _, tag := range tags {
			check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: counter, Subject: stores.Subject{Key: testKey(newKey()), Tag: tag}, Cost: 1}}}
			if next.At(tag).Decide(context.Background(), check); check.Mode != stores.ModeFallback || check.Waited != 0 || next.lastCall() != 0 {
				t.Errorf("mode %v after %d calls, which took %d us: want the fallback, and none", check.Mode, next.lastCall(), check.Waited)
			}
		}
		if up, _, down := next.State(); up || len(down) != 3 {
			t.Errorf("up %v, away %v, want three masters", up, down)
		}
		s = next
	}
	last := begin(5*time.Second, events)
	last.Begin(s)
	last.BeginAs(s)
	last.Start(1)
	for _, n := range nodes {
		n.Resume()
	}
	waitFor(t, "all masters decide again", func() bool { return last.allShared(t, counter, tags) })
	got := events.sinceLast()
	for i, n := range nodes {
		if len(got) != 3 || !slices.Contains(got, "up "+n.Addr) {
			t.Errorf("events %q, want once that each master is back, %d at %s too", got, i, n.Addr)
		}
	}
}

// resetCounter counts the resets by other instances.
type resetCounter struct {
	noObserver
	resets atomic.Int64
}

func (o *resetCounter) Reset(string, string, stores.Key) { o.resets.Add(1) }
func (o *resetCounter) Unsubscribed(string, error)       {}

// TestClusterResetsWithNodesAway resets a key while each master in turn is away that does
// not serve it. Another instance is told.
func TestClusterResetsWithNodesAway(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3, partialCluster...)
	o := clusterOptions(nodes, 5*time.Second)
	s, other, told := startStore(t, o), startStore(t, o), new(resetCounter)
	other.Observe(told)
	counter, tags := counterOfManyKeys(t), tagsOfMasters(t, nodes[0].Client())
	reset := func(tag stores.Key) error {
		return s.Reset(context.Background(), "z", []*stores.Counter{counter}, tag)
	}
	for away := range nodes {
		waitFor(t, "all masters decide", func() bool { return s.allShared(t, counter, tags) && other.allShared(t, counter, tags) })
		nodes[away].Kill()
		key, before := tags[(away+1)%3], told.resets.Load()
		waitFor(t, "the other instance is told", func() bool {
			if err := reset(key); err != nil {
				t.Errorf("master %d away: %v", away, err)
			}
			return t.Failed() || told.resets.Load() > before
		})
		nodes[away].Run()
	}
}

// TestClusterSlotMoves moves a slot, key by key, to another master while its keys
// are checked. Redis decides every check, and no charge is lost or made twice.
func TestClusterSlotMoves(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	s := newClusterStore(t, nodes)
	counter := counterOfManyKeys(t)
	tag := tagsOfMasters(t, nodes[0].Client())[0]
	var admitted [40]atomic.Int64
	key := func(i int) uint64 { return 1 + uint64(i)<<20 }
	check := func(i int) {
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: counter, Subject: stores.Subject{Key: testKey(key(i)), Tag: tag}, Cost: 1}}}
		s.At(tag).Decide(context.Background(), check)
		if check.Mode != stores.ModeShared {
			t.Errorf("key %d: mode %v", i, check.Mode)
		}
		if check.Admitted {
			admitted[i].Add(1)
		}
	}
	for i := range len(admitted) / 2 { // the others are created while the slot moves
		check(i)
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !done.Load() {
				check(rand.IntN(len(admitted)))
			}
		})
	}
	moveSlot(t, nodes, tag, 0, 1)
	for i := range admitted {
		check(i)
	}
	done.Store(true)
	wg.Wait()
	for i := range admitted {
		for range 11 {
			check(i)
		}
		if n := admitted[i].Load(); n != 10 {
			t.Errorf("key %d: %d admitted, want 10", i, n)
		}
	}
	if up, _, _ := s.State(); !up {
		t.Error("the store is down")
	}
}

// TestClusterNodeIsBackWhileASlotMoves stops one master of a Cluster after another while the slot of
// its heartbeats is moved, which takes longer than the test. Redis decides again once it is back.
func TestClusterNodeIsBackWhileASlotMoves(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3, partialCluster...)
	o := clusterOptions(nodes, time.Second)
	s, counter, tags := startStore(t, o), counterOfManyKeys(t), tagsOfMasters(t, nodes[0].Client())
	for master, beats := range beatTagsOf(t, nodes[0].Client()) {
		waitFor(t, "all masters decide", func() bool { return s.allShared(t, counter, tags) })
		slot := slotOf(t, nodes[0].Client(), beats)
		beginMove(t, nodes[master], nodes[(master+1)%3], slot)
		nodes[master].Stall()
		waitFor(t, "the master to be away", func() bool {
			s.allShared(t, counter, tags)
			up, _, _ := s.State()
			return !up
		})
		nodes[master].Resume()
	}
	waitFor(t, "all masters decide in the end", func() bool { return s.allShared(t, counter, tags) })
}

// beatTagsOf returns the hash tag of the heartbeats to each master of a Cluster of three.
func beatTagsOf(t *testing.T, client *goredis.Client) (tags [3]string) {
	t.Helper()
	for i, left := -1, len(tags); left > 0; i++ {
		tag := beatTag
		if i >= 0 {
			tag += strconv.Itoa(i)
		}
		if master := slotOf(t, client, tag) * 3 / 16384; tags[master] == "" {
			tags[master] = tag
			left--
		}
	}
	return tags
}

func slotOf(t *testing.T, client *goredis.Client, tag string) int {
	t.Helper()
	slot, err := client.ClusterKeySlot(context.Background(), tag).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}

// beginMove begins to move a slot.
func beginMove(t *testing.T, from, to *redistest.Server, slot int) {
	t.Helper()
	setSlot(t, to, slot, "importing", from)
	setSlot(t, from, slot, "migrating", to)
}

// setSlot sets the state of a slot at a master, to or from another one.
func setSlot(t *testing.T, at *redistest.Server, slot int, state string, other *redistest.Server) {
	t.Helper()
	id, err := other.Client().Do(context.Background(), "cluster", "myid").Text()
	if err != nil {
		t.Fatal(err)
	}
	if err := at.Client().Do(context.Background(), "cluster", "setslot", slot, state, id).Err(); err != nil {
		t.Fatal(state, err)
	}
}

// moveSlot moves the slot of a tag from one master to another, as redis-cli does.
func moveSlot(t *testing.T, nodes []*redistest.Server, tag stores.Key, from, to int) {
	t.Helper()
	ctx := context.Background()
	source, target := nodes[from].Client(), nodes[to].Client()
	slot := slotOf(t, source, tag.String())
	do := func(c *goredis.Client, args ...any) {
		t.Helper()
		if err := c.Do(ctx, args...).Err(); err != nil {
			t.Fatal(args, err)
		}
	}
	beginMove(t, nodes[from], nodes[to], slot)
	do(target, "script", "flush") // the script is loaded again where a call is redirected to
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, 1).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		do(source, "migrate", "127.0.0.1", strconv.Itoa(nodes[to].Port), keys[0], 0, 5000)
		time.Sleep(10 * time.Millisecond) // leave time for checks meanwhile
	}
	setSlot(t, nodes[to], slot, "node", nodes[to])
	setSlot(t, nodes[from], slot, "node", nodes[to])
}

// clusterRights are the permissions in docs/redis.md, and those that it names for a
// Cluster.
const clusterRights = "resetchannels &diana:* ~diana:* -@all +evalsha +script|load +time +get +set +setrange +getrange +del +pexpire +select +publish +subscribe +ping " +
	"+cluster|slots +asking"

// TestClusterRights moves a slot while its keys are checked by a user with no more
// permissions than docs/redis.md names.
func TestClusterRights(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	o := ConnOptions{Cluster: true, Username: "diana", Password: "secret", Timeout: 5 * time.Second}
	for _, n := range nodes {
		o.Addresses = append(o.Addresses, n.Addr)
		args := []any{"acl", "setuser", "diana", "on", ">secret"}
		for right := range strings.FieldsSeq(clusterRights) {
			args = append(args, right)
		}
		if err := n.Client().Do(context.Background(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s, counter, tags := startStore(t, o), counterOfManyKeys(t), tagsOfMasters(t, nodes[0].Client())
	waitFor(t, "all masters decide", func() bool { return s.allShared(t, counter, tags) })
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !done.Load() {
			if m := s.modeOfTag(t, counter, newKey(), tags[0]); m != stores.ModeShared {
				t.Errorf("mode %v while the slot moves", m)
			}
			time.Sleep(time.Millisecond) // each check adds a key to be moved
		}
	})
	moveSlot(t, nodes, tags[0], 0, 1)
	done.Store(true)
	wg.Wait()
	for i, n := range nodes {
		if log := n.Client().Do(context.Background(), "acl", "log").Val().([]any); len(log) != 0 { //nolint:forcetypeassert // it is documented
			t.Errorf("master %d denied a command: %v", i, log)
		}
	}
}

// TestClusterPutsBackWhereItFailed has the snapshots put back, after a loss, while the master that
// has lost a key does not answer. It is put back when the master does.
func TestClusterPutsBackWhereItFailed(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3, partialCluster...)
	o := clusterOptions(nodes, time.Second)
	s, c := startStore(t, o), counterOfManyKeys(t)
	storekit.Adopt(t, s, c)
	key := tagsOfMasters(t, nodes[0].Client())[1]
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: key, Tag: key}, Cost: 1}}}
	waitFor(t, "the master decides", func() bool {
		s.At(key).Decide(context.Background(), check)
		return check.Mode == stores.ModeShared
	})
	name := namesOf("diana", &check.Zones[0])[0]
	lost := nodes[1].Client()
	if n, err := lost.Del(context.Background(), name).Result(); n != 1 || err != nil {
		t.Fatalf("%d keys %q deleted: %v", n, name, err)
	}
	nodes[1].Stall()
	waitFor(t, "the master is away", func() bool { up, _, _ := s.State(); return !up })
	s.loseMemory()
	waitFor(t, "the snapshots are put back", s.conn.at(key).unswept.Load)
	nodes[1].Resume()
	waitFor(t, "the key is put back", func() bool { return lost.Exists(context.Background(), name).Val() == 1 })
}
