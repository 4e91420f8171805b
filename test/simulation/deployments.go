package simulation

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/test/simulation/redisim"
)

// topology is how the Redis of a run is deployed.
type topology string

const (
	single    topology = "single"   // one server
	sentinel  topology = "sentinel" // a master, a replica that lags, and Sentinels
	clustered topology = "cluster"  // three masters, each with a replica that lags
)

// masterName is the name of the master at the Sentinels.
const masterName = "diana"

// sentinelAddresses are the addresses of the Sentinels.
var sentinelAddresses = []string{"s0:26379", "s1:26379", "s2:26379"}

// clusterAddresses are the addresses of the nodes of a Cluster: the masters of the
// beginning, then their replicas.
var clusterAddresses = []string{"c0:6379", "c1:6379", "c2:6379", "c3:6379", "c4:6379", "c5:6379"}

// masters is the number of masters of a Cluster.
const masters = 3

// drawTopology draws how Redis is deployed.
func drawTopology(r *rand.Rand) topology {
	return []topology{single, single, single, sentinel, clustered}[r.IntN(5)]
}

// addresses returns the addresses of a configuration.
func (t topology) addresses() []string {
	switch t {
	case sentinel:
		return sentinelAddresses
	case clustered:
		return clusterAddresses[:masters]
	}
	return []string{mainAddress}
}

// configure adds the options of a store that the deployment needs.
func (t topology) configure(store map[string]any) {
	store["addresses"] = t.addresses()
	switch t {
	case sentinel:
		store["sentinel"] = map[string]any{"master": masterName}
	case clustered:
		store["cluster"] = true
	}
}

// deployment is the servers of a run.
type deployment struct {
	topology
	servers   []*redisim.Server // that hold keys, replicas as well
	sentinels *redisim.Sentinels
	cluster   *redisim.Cluster

	mu     sync.Mutex
	differ bool // the clocks of the servers differ
}

// deploy starts the servers. Replicas are behind by up to two seconds.
func (w *world) deploy(t topology) *deployment {
	d := &deployment{topology: t}
	lag := time.Duration(rand.New(rand.NewPCG(w.plan.Seed, 8)).Int64N(int64(2 * time.Second))) //nolint:gosec // a simulation
	switch t {
	case sentinel:
		w.deploySentinels(d, lag)
	case clustered:
		d.cluster = redisim.NewCluster(masters, true, func(i int) redisim.Options { return redisim.Options{Address: clusterAddresses[i]} })
		d.cluster.Lag, d.servers = lag, d.cluster.Nodes()
		for i := range masters {
			d.servers[i].ReplicateTo(d.servers[masters+i], lag)
		}
	default:
		d.servers = []*redisim.Server{redisim.New(redisim.Options{Address: mainAddress})}
	}
	for _, s := range d.servers {
		w.network.servers[s.Address()] = s
	}
	return d
}

// deploySentinels starts a master, its replica, and the Sentinels. The Sentinels are reached
// without delay: go-redis holds a lock while it asks them, and who waits for a lock keeps the
// time of a bubble from passing.
func (w *world) deploySentinels(d *deployment, lag time.Duration) {
	master, replica := redisim.New(redisim.Options{Address: mainAddress}), redisim.New(redisim.Options{Address: "replica:6379"})
	var options []redisim.Options
	for _, a := range sentinelAddresses {
		options = append(options, redisim.Options{Address: a})
		w.network.instant[a] = true
	}
	d.sentinels = redisim.NewSentinels(masterName, master, replica, lag, options...)
	for _, s := range d.sentinels.Servers() {
		w.network.servers[s.Address()] = s
	}
	d.servers = []*redisim.Server{master, replica}
}

// masters returns the servers that decide now.
func (d *deployment) masters() []*redisim.Server {
	switch {
	case d.sentinels != nil:
		return []*redisim.Server{d.sentinels.Master()}
	case d.cluster != nil:
		return d.cluster.Masters()
	}
	return d.servers
}

// pick returns one of the servers that decide now.
func (d *deployment) pick(r *rand.Rand) *redisim.Server {
	all := d.masters()
	if len(all) == 1 {
		return all[0]
	}
	return all[r.IntN(len(all))]
}

// kill ends all servers.
func (d *deployment) kill() {
	for _, s := range d.servers {
		s.Kill()
	}
	if d.sentinels != nil {
		for _, s := range d.sentinels.Servers() {
			s.Kill()
		}
	}
}

// client returns a client of an operator.
func (d *deployment) client(n *network) goredis.UniversalClient {
	o := &goredis.UniversalOptions{
		Addrs: d.addresses(), IsClusterMode: d.topology == clustered, Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, PipelinePoolSize: -1, Dialer: n.dialer("operator", "operator"),
	}
	if d.topology == sentinel {
		o.MasterName = masterName
	}
	return goredis.NewUniversalClient(o)
}

// setClock sets the clock of a server, relative to the right time.
func (d *deployment) setClock(s *redisim.Server, offset time.Duration) {
	d.mu.Lock()
	d.differ = d.differ || len(d.servers) > 1
	d.mu.Unlock()
	s.SetClockOffset(offset)
}

// clocksDiffer says whether keys that another server takes over meet another time there.
func (d *deployment) clocksDiffer() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.differ
}

// failover makes the replica of a master the master.
func (d *deployment) failover(s *redisim.Server) bool {
	if d.sentinels != nil {
		return d.sentinels.Failover()
	}
	return d.cluster.Failover(s)
}

// failover replaces a master by its replica: when it has died, or while it runs.
func failover(w *world, _ *step, r *rand.Rand) func() {
	s := w.redis.pick(r)
	if r.IntN(3) == 0 {
		w.event("failover of %s, which runs: %v", s.Address(), w.redis.failover(s))
		w.coverage.failedOver()
		return nil
	}
	s.Kill()
	time.Sleep(500*time.Millisecond + time.Duration(r.Int64N(int64(2*time.Second))))
	w.event("failover of %s: %v", s.Address(), w.redis.failover(s))
	w.coverage.failedOver()
	return func() { s.Start(true) }
}

// detection is how long the nodes of a Cluster take to replace a master that they have lost.
const detection = 1500 * time.Millisecond

// isolate cuts a master of a Cluster off from the other nodes. If that lasts, its replica
// takes its place.
func isolate(w *world, f *step, r *rand.Rand) func() {
	s := w.redis.pick(r)
	w.event("%s is isolated", s.Address())
	w.redis.cluster.Isolate(s, true)
	if f.long > detection {
		time.Sleep(detection)
		w.event("failover of %s: %v", s.Address(), w.redis.failover(s))
		w.coverage.failedOver()
	}
	return func() { w.redis.cluster.Isolate(s, false) }
}

// isAway says whether an instance may have to decide a check of the site without Redis in a
// span. A check of one key is followed to where its slot moves.
func (one *site) isAway(s *span) bool {
	return s.away && (s.what != "move" || one.Kind != bounded) || s.what == farAcross && one.Kind == across
}

// moveSlots moves slots that have keys from one master of a Cluster to another, key by key.
func moveSlots(w *world, f *step, r *rand.Rand) func() {
	c := w.redis.cluster
	from := w.redis.pick(r)
	others := slices.DeleteFunc(c.Masters(), func(s *redisim.Server) bool { return s == from })
	to := others[r.IntN(len(others))]
	var slots []int
	for _, name := range names(from.Keys()) {
		if slot := redisim.Slot(name); c.Owner(slot) == from && !c.Moves(slot) && !slices.Contains(slots, slot) {
			slots = append(slots, slot)
		}
	}
	r.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	slots = slots[:min(len(slots), 1+r.IntN(4))]
	w.event("slots %v move from %s to %s", slots, from.Address(), to.Address())
	for _, slot := range slots {
		c.BeginMove(slot, to)
	}
	const parts = 6
	for range parts {
		time.Sleep(f.long / parts)
		for _, slot := range slots {
			c.StepMove(slot, 1)
		}
	}
	for _, slot := range slots {
		c.EndMove(slot)
	}
	return nil
}
