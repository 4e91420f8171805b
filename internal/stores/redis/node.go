package redis

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/hash"
)

// node is one server that decides: a master of a Cluster, or the only one.
type node struct {
	server

	batchers []batcher
	reports  []batcher // for calls with reports, while the other batchers may have more calls in flight than callsInFlight

	back     atomic.Int64 // when the node last came back, on the local clock; 0: never, it decides all its keys
	owed     atomic.Bool  // debts to this node remain
	unswept  atomic.Bool  // a snapshot of its keys could not be put back
	serves   atomic.Bool  // whether it is one of nodes.masters
	renewing atomic.Bool  // its connections are being replaced

	// Only the node's watcher uses these.
	tag        string // of its heartbeats
	toldAlone  bool   // whether the node was last reported as away because checks are decided alone
	toldOpened uint64 // how often its breaker had opened at that report

	// Under nodes.mu.
	cause     error     // why its breaker opened last
	down      bool      // whether notify was last told that the node is down
	downSince time.Time // when down last changed
}

// batcherOf returns the batcher that sends a call to the node, and how many calls that batcher may have in flight: as
// many as there are open connections for, because opening one takes longer than waiting for a call to end. The pool
// opens more connections in the background, and some are left to calls for which no request waits. Calls with
// reports are at most callsInFlight: more would let reports of a key overtake each other.
func (n *node) batcherOf(q *call, connections int) (l *batcher, most int) {
	most, of := n.distance.inFlight(min(connections/2, int(n.tracker.ready.Load())-1)), n.batchers
	if most > callsInFlight && len(q.reports) > 0 {
		most, of = callsInFlight, n.reports
	}
	return &of[q.tag.Lo%uint64(len(of))], most
}

// comesBack notes that the node is available again.
func (n *node) comesBack() {
	n.owed.Store(true)
	n.back.Store(n.clock.local())
}

// ramp is how long it takes after an outage until Redis decides all keys again. It begins with a pause, in which Redis
// decides no keys: all instances notice that Redis is back, and charge there what they admitted meanwhile. An instance
// that asked Redis earlier would find room that the others have used and not charged yet. shortestPause is longer than
// a probe and the wait before it. The pause lasts up to longestPause while this instance still owes something, because
// others owe about as much.
const (
	ramp          = time.Second
	shortestPause = 800 * time.Millisecond
	longestPause  = 10 * time.Second
)

// pause returns how long the node decides no keys after it came back.
func (n *node) pause() int64 {
	if n.owed.Load() {
		return longestPause.Microseconds()
	}
	return shortestPause.Microseconds()
}

// decidesAll says whether the node decides all its keys: it is not away, and the ramp is over.
func (n *node) decidesAll(now int64) bool {
	back := n.back.Load()
	return !n.breaker.open.Load() && (back == 0 || now-back-n.pause() >= (ramp-shortestPause).Microseconds())
}

// paid notes that the node is owed nothing any more. If that took longer than shortestPause, it decides
// more and more of its keys from now on.
func (n *node) paid(now int64) {
	if back := n.back.Load(); back != 0 && now-back > shortestPause.Microseconds() && now-back < longestPause.Microseconds() {
		n.back.CompareAndSwap(back, now-shortestPause.Microseconds())
	}
	n.owed.Store(false)
}

// nodes are the nodes of a store.
type nodes struct {
	o       *ConnOptions
	local   func() int64           // the clock of this process
	cluster *goredis.ClusterClient // nil: not a Cluster, or not connected yet

	// first is the only node. In a Cluster, first stands for its masters until
	// these are known.
	first *node
	known atomic.Bool

	byAddress atomic.Pointer[map[string]*node]

	mu      sync.Mutex // serializes changes
	masters []*node    // those in use
	since   time.Time  // when the first master went down, or the last one came back

	// notify is given each change of a master's state once and in order, with ns.mu held.
	notify func(n *node, up bool, cause error)
}

// newNodes returns the nodes of a store. notify is called for each change of a
// node's breaker.
func newNodes(o *ConnOptions, local func() int64, notify func(n *node, up bool, cause error)) *nodes {
	ns := &nodes{o: o, local: local, notify: notify, since: time.Now()}
	ns.byAddress.Store(new(map[string]*node))
	ns.first = ns.newNode("")
	ns.first.serves.Store(true)
	ns.masters = []*node{ns.first}
	return ns
}

func (ns *nodes) newNode(address string) *node {
	n := &node{batchers: newBatchers(ns.o.Cluster), reports: newBatchers(ns.o.Cluster)}
	n.address, n.serial, n.clock.local = address, nodeSerials.Add(1), ns.local
	n.tracker, n.doubted = newConnTracker(max(ns.o.Timeout, minReadTimeout)), make(chan struct{}, 1)
	n.breaker = newBreaker(
		ns.o.Timeout,
		n.comesBack, // before a request calls the node
		func(up bool, cause error) { ns.changed(n, up, cause) },
	)
	return n
}

// beginDown opens the breaker of a node at the start, because an earlier store has reported the node as down. It does
// not report that again. An empty address is the address of first.
func (ns *nodes) beginDown(address string) {
	n := ns.first
	if address != "" {
		n = ns.of(address)
	}
	n.breaker.begin()
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n.down, n.downSince = true, time.Now()
	if !n.serves.Swap(true) {
		ns.masters = append(slices.Clone(ns.masters), n)
	}
}

// beginAway opens the breaker of first at the start if all masters of a Cluster were unavailable to an earlier store:
// none of them would tell the slots.
func (ns *nodes) beginAway(before *nodes) {
	if ns.o.Cluster && before.anyUp().breaker.open.Load() {
		ns.first.breaker.begin()
	}
}

// beginAs takes over from another store the estimates of the nodes' clocks, and, at the same place, when each node
// last had a heartbeat of this instance.
func (ns *nodes) beginAs(before *nodes, samePlace bool) {
	kept := before.first.clock.kept.Load()
	if samePlace {
		ns.first.toldAs(&before.first.server)
	}
	for address, n := range *before.byAddress.Load() {
		kept = n.clock.kept.Load()
		after := ns.of(address)
		after.clock.kept.Store(kept)
		if samePlace {
			after.toldAs(&n.server)
		}
	}
	ns.first.clock.kept.Store(kept) // in a Cluster it stands for the masters until they are known
}

// of returns the node with an address.
func (ns *nodes) of(address string) *node {
	if !ns.o.Cluster {
		return ns.first
	}
	if n := (*ns.byAddress.Load())[address]; n != nil {
		return n
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	old := *ns.byAddress.Load()
	if n := old[address]; n != nil {
		return n
	}
	n, all := ns.newNode(address), make(map[string]*node, len(old)+1)
	maps.Copy(all, old)
	all[address] = n
	ns.byAddress.Store(&all)
	return n
}

// at returns the node that serves a tag's slot. It does no I/O.
func (ns *nodes) at(tag stores.Key) *node {
	if !ns.known.Load() {
		return ns.first
	}
	var b [32]byte
	return ns.serving(string(hash.AppendKey(b[:0], tag)))
}

// serving returns the node that serves the slot of a hash tag. It does no I/O.
func (ns *nodes) serving(tag string) *node {
	if !ns.known.Load() {
		return ns.first
	}
	client, err := ns.cluster.MasterForKey(context.Background(), tag)
	if err != nil {
		return ns.first // the client is closed
	}
	return ns.join(client)
}

// join returns the master that a client of the Cluster calls.
func (ns *nodes) join(client *goredis.Client) *node {
	n := ns.of(client.Options().Addr)
	if !n.serves.Load() || !ns.known.Load() {
		ns.add(n)
	}
	return n
}

// called returns the node that a client calls.
func (ns *nodes) called(client *goredis.Client) *node {
	if ns.cluster != nil && !ns.known.Load() { // the slots were looked up for this call
		return ns.join(client)
	}
	return ns.of(client.Options().Addr)
}

// add adds a master. If it takes over the keys of one that is unavailable, it
// decides more and more of them, as after an outage of its own.
func (ns *nodes) add(n *node) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if !n.serves.Load() {
		if !ns.allUp() {
			n.comesBack()
		}
		n.serves.Store(true)
		ns.masters = append(slices.Clone(ns.masters), n)
	}
	if ns.known.CompareAndSwap(false, true) {
		ns.removeLocked(ns.first)
	}
	if n.breaker.open.Load() {
		ns.report(n, false, n.cause)
	}
}

// keep removes the nodes that are no longer masters, so that their states no longer count.
func (ns *nodes) keep(masters []*node) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	rest := maps.Clone(*ns.byAddress.Load())
	for _, n := range ns.masters {
		if !slices.Contains(masters, n) {
			ns.removeLocked(n)
		}
	}
	maps.DeleteFunc(rest, func(_ string, n *node) bool {
		return !n.serves.Load() && !n.tracker.any() // a replica with connections may be promoted
	})
	ns.byAddress.Store(&rest)
}

// removeLocked removes a master. ns.mu is held.
func (ns *nodes) removeLocked(n *node) {
	n.serves.Store(false)
	ns.masters = slices.DeleteFunc(slices.Clone(ns.masters), func(m *node) bool { return m == n })
	n.tracker.retire(time.Now())
	ns.report(n, true, nil) // other masters serve its keys
}

// changed handles a change of a node's breaker, whose lock is held.
func (ns *nodes) changed(n *node, up bool, cause error) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n.cause = cause
	if n.serves.Load() {
		ns.report(n, up, cause)
	}
}

// report reports the state of a master if it differs from the last report: the breaker of a node may change while the
// node is added or removed. ns.mu is held.
func (ns *nodes) report(n *node, up bool, cause error) {
	if n.down == !up {
		return
	}
	n.down, n.downSince = !up, time.Now()
	others := true
	for _, m := range ns.masters {
		others = others && (m == n || !m.breaker.open.Load())
	}
	if others { // this node alone decides whether all are up
		ns.since = time.Now()
	}
	ns.notify(n, up, cause)
}

// allUp says whether no master is unavailable. ns.mu is held.
func (ns *nodes) allUp() bool {
	return !slices.ContainsFunc(ns.masters, func(n *node) bool { return n.breaker.open.Load() })
}

// state says whether all nodes are used, since when that is so, and which are not.
func (ns *nodes) state() (up bool, since time.Time, down []stores.NodeDown) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for _, n := range ns.masters {
		if n.down {
			down = append(down, stores.NodeDown{Address: n.address, Since: n.downSince})
		}
	}
	slices.SortFunc(down, func(a, b stores.NodeDown) int { return a.Since.Compare(b.Since) })
	return len(down) == 0, ns.since, down
}

// all returns the masters in use.
func (ns *nodes) all() []*node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.masters
}

// pausing says whether a node that is back decides no keys yet.
func (ns *nodes) pausing() bool {
	return slices.ContainsFunc(ns.all(), func(n *node) bool {
		back := n.back.Load()
		return back != 0 && ns.local()-back < n.pause()
	})
}

// decideAll says whether all nodes decide all their keys.
func (ns *nodes) decideAll() bool {
	now := ns.local()
	return !slices.ContainsFunc(ns.all(), func(n *node) bool { return !n.decidesAll(now) })
}

// owed returns the nodes in use to which debts remain.
func (ns *nodes) owed() (all []*node) {
	for _, n := range ns.all() {
		if n.owed.Load() && !n.breaker.open.Load() {
			all = append(all, n)
		}
	}
	return all
}

// anyUp returns a node that is used, or any if none is.
func (ns *nodes) anyUp() *node {
	all := ns.all()
	for _, i := range rand.Perm(len(all)) { //nolint:gosec // it only spreads load
		if !all[i].breaker.open.Load() {
			return all[i]
		}
	}
	return all[0]
}

// refreshTimeout limits a look-up of a Cluster's slots: a stalled node that is
// asked first takes the client's read timeout.
const refreshTimeout = 3 * minReadTimeout

// refresh learns the masters of a Cluster, and removes the nodes that are no longer masters.
func (ns *nodes) refresh(ctx context.Context) {
	if ns.cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	var mu sync.Mutex
	var masters []*node
	err := ns.cluster.ForEachMaster(ctx, func(_ context.Context, client *goredis.Client) error {
		n := ns.join(client)
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, n)
		return nil
	})
	if err == nil && len(masters) > 0 {
		ns.keep(masters)
	}
}

// beatTag is the hash tag of the key in which live instances are counted.
const beatTag = "instances"

// maxBeatTags bounds the search for a tag. Each of the 16384 slots has a tag with a number below it.
const maxBeatTags = 150_000

// tagOf returns the hash tag for a node's heartbeats, in a slot that the node serves: beatTag if possible; empty: it
// found none. It does not return moving, whose slot is being moved. Only the node's watcher calls it.
func (ns *nodes) tagOf(n *node, moving string) string {
	if n == ns.first || moving != beatTag && ns.known.Load() && ns.serving(beatTag) == n {
		return beatTag
	}
	if !ns.known.Load() { // it began down, and whether it is a master still is not known
		return ""
	}
	if n.tag != "" && n.tag != moving && ns.serving(n.tag) == n {
		return n.tag
	}
	for i := range maxBeatTags {
		n.tag = beatTag + strconv.Itoa(i)
		if n.tag != moving && ns.serving(n.tag) == n {
			return n.tag
		}
	}
	n.tag = ""
	return ""
}
