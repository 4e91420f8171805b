package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dianalimiter/diana/test/simulation/redisim"
)

// faultKind is a kind of fault.
type faultKind struct {
	// away says that instances may be without Redis meanwhile, and shortly after.
	away bool

	// loses says that Redis may lose keys. stepped, that its clock is set.
	loses, stepped bool

	// answers says that each call is answered meanwhile, so that its outcome is known. whole,
	// that none is. retried, that go-redis repeats the call in a Cluster, until its deadline.
	answers, whole, retried bool

	// feigns says that a call which has run may be answered as if it had failed.
	feigns bool

	// deaf says that a message of Redis may be lost.
	deaf bool

	// moves says that keys are on another server afterwards, whose clock may differ.
	moves bool

	// at are the deployments in which the fault can occur; none: in all.
	at []topology

	// begin begins the fault, and returns how it ends; nil: it is over.
	begin func(w *world, f *step, r *rand.Rand) (end func())
}

// mainAddress is the address of the server of all stores, or of the master that Sentinels
// watch in the beginning.
const mainAddress = "main:6379"

// faultKinds are the faults by name. A new fault is a new entry.
var faultKinds = map[string]*faultKind{
	"pause":      {away: true, whole: true, begin: atServer(func(s *redisim.Server) func() { s.Pause(); return s.Resume })},
	"kill":       {away: true, whole: true, begin: atServer(func(s *redisim.Server) func() { s.Kill(); return func() { s.Start(true) } })},
	"kill-empty": {away: true, loses: true, begin: atServer(func(s *redisim.Server) func() { s.Kill(); return func() { s.Start(false) } })},
	"flush":      {loses: true, begin: atServer(func(s *redisim.Server) func() { s.Flush(); return nil })},
	// The second loss takes what instances put back after the first.
	"flush-twice":  {loses: true, begin: atServer(func(s *redisim.Server) func() { s.Flush(); return s.Flush })},
	"evict":        {loses: true, begin: func(w *world, _ *step, r *rand.Rand) func() { w.redis.pick(r).Evict(r, 1+r.IntN(8)); return nil }},
	"script-flush": {begin: atServer(func(s *redisim.Server) func() { s.FlushScripts(); return nil })},
	"oom":          {away: true, answers: true, begin: atServer(func(s *redisim.Server) func() { return toggle(s.SetOOM) })},
	"read-only":    {away: true, answers: true, retried: true, begin: atServer(readOnly)},
	"loading":      {away: true, answers: true, retried: true, begin: atServer(func(s *redisim.Server) func() { return toggle(s.Loading) })},
	"relapse":      {away: true, answers: true, retried: true, begin: relapses},
	"busy":         {away: true, answers: true, begin: atServer(func(s *redisim.Server) func() { return toggle(s.Busy) })},
	"strange":      {away: true, feigns: true, begin: atServer(func(s *redisim.Server) func() { return toggle(s.Strange) })},
	"slow":         {away: true, begin: slowNode},
	"stall":        {away: true, begin: stalls},
	// A replica would keep what the master is freed of. What others write is lost when it ends.
	"wrong-type": {away: true, answers: true, loses: true, at: []topology{single}, begin: func(w *world, _ *step, r *rand.Rand) func() {
		return w.redis.pick(r).Disguise(r, 1+r.IntN(8), ":{instances}")
	}},
	"clock-forward": {stepped: true, begin: func(w *world, _ *step, r *rand.Rand) func() {
		w.redis.setClock(w.redis.pick(r), time.Duration(r.Int64N(int64(time.Hour))))
		return nil
	}},
	"clock-back": {stepped: true, begin: func(w *world, _ *step, r *rand.Rand) func() {
		w.redis.setClock(w.redis.pick(r), -time.Duration(r.Int64N(int64(time.Hour))))
		return nil
	}},
	"failover":       {away: true, loses: true, moves: true, deaf: true, at: []topology{sentinel, clustered}, begin: failover},
	"isolate":        {away: true, loses: true, moves: true, deaf: true, at: []topology{clustered}, begin: isolate},
	"move":           {away: true, moves: true, at: []topology{clustered}, begin: moveSlots},
	"partition":      {away: true, whole: true, deaf: true, begin: onNetwork(func(d *disturbance, _ *rand.Rand) { d.dropUp, d.dropDown, d.blackhole = true, true, true })},
	"half-open-up":   {away: true, whole: true, deaf: true, begin: onNetwork(func(d *disturbance, _ *rand.Rand) { d.dropUp = true })},
	"half-open-down": {away: true, whole: true, deaf: true, begin: onNetwork(func(d *disturbance, _ *rand.Rand) { d.dropDown = true })},
	"half-open-some": {away: true, deaf: true, begin: onNetwork(func(d *disturbance, _ *rand.Rand) { d.dropDown, d.one = true, true })},
	"delay":          {away: true, begin: onNetwork(func(d *disturbance, r *rand.Rand) { d.delay = time.Duration(r.Int64N(int64(40 * time.Millisecond))) })},
	"reorder":        {away: true, begin: onNetwork(func(d *disturbance, r *rand.Rand) { d.spread = time.Duration(r.Int64N(int64(60 * time.Millisecond))) })},
	"loss":           {away: true, deaf: true, begin: onNetwork(func(d *disturbance, r *rand.Rand) { d.loss = 0.02 + 0.3*r.Float64() })},
	"refuse":         {away: true, answers: true, begin: onNetwork(func(d *disturbance, _ *rand.Rand) { d.refuse = true })},
	"slow-bytes":     {begin: onNetwork(func(d *disturbance, _ *rand.Rand) { d.slowBytes = true })},
	"reset":          {away: true, deaf: true, begin: resetConnections},
}

var faultNames = names(faultKinds)

// faultsAt returns the names of the faults that can occur in a deployment.
func faultsAt(t topology) []string {
	return slices.DeleteFunc(slices.Clone(faultNames), func(name string) bool {
		at := faultKinds[name].at
		return len(at) > 0 && !slices.Contains(at, t)
	})
}

func names[T any](m map[string]T) (list []string) {
	for name := range m {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func toggle(set func(bool)) func() {
	set(true)
	return func() { set(false) }
}

// atServer returns a fault of one of the servers that decide.
func atServer(begin func(s *redisim.Server) func()) func(w *world, f *step, r *rand.Rand) func() {
	return func(w *world, _ *step, r *rand.Rand) func() { return begin(w.redis.pick(r)) }
}

// readOnly makes a server refuse writes until the end of the fault, or for as long as it is
// a replica.
func readOnly(s *redisim.Server) func() {
	s.SetReadOnly(true)
	return func() {
		if !s.Replica() {
			s.SetReadOnly(false)
		}
	}
}

// relapses has a server refuse all calls, and again whenever an instance has found that it does
// not any more, before that can charge what it owes.
func relapses(w *world, f *step, r *rand.Rand) func() {
	s := w.redis.pick(r)
	s.Loading(true)
	time.AfterFunc(f.long/4, func() {
		s.Loading(false)
		w.whenUp(func() {
			s.Loading(true)
			time.AfterFunc(50*time.Millisecond, func() { s.Loading(false) })
		})
	})
	return func() {
		w.whenUp(nil)
		s.Loading(false)
	}
}

func slowNode(w *world, _ *step, r *rand.Rand) func() {
	s := w.redis.pick(r)
	s.Slow(time.Duration(1 + r.Int64N(int64(20*time.Millisecond))))
	return func() { s.Slow(0) }
}

// longestStall and the timeout of a call are less than the silence that opens a breaker, as are
// longestSilence and the way.
const (
	longestStall   = 60 * time.Millisecond
	longestSilence = 95 * time.Millisecond
)

// stalls keeps a server busy for short, again and again.
func stalls(w *world, _ *step, r *rand.Rand) func() {
	s, stop := w.redis.pick(r), make(chan struct{})
	most := min(longestStall, longestSilence-w.plan.setup.way.longest())
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(between(r, 300*time.Millisecond, time.Second)):
				s.Stall(between(r, 20*time.Millisecond, most))
			}
		}
	}()
	return func() { close(stop) }
}

func onNetwork(change func(d *disturbance, r *rand.Rand)) func(w *world, f *step, r *rand.Rand) func() {
	return func(w *world, f *step, r *rand.Rand) func() {
		d := new(disturbance)
		if f.instance >= 0 {
			d.instance = w.instances[f.instance].name
		}
		change(d, r)
		if w.redis.topology == clustered && r.IntN(2) == 0 {
			d.address = w.redis.pick(r).Address()
		}
		w.network.add(d)
		return func() { w.network.remove(d) }
	}
}

func resetConnections(w *world, f *step, r *rand.Rand) func() {
	share := 0.2 + 0.8*r.Float64()
	w.network.reset(func(c *conn) bool {
		return (f.instance < 0 || c.instance == w.instances[f.instance].name) && r.Float64() < share
	})
	return nil
}

// eventKinds are what happens besides load and faults.
var eventKinds = map[string]func(w *world, e *step, r *rand.Rand){
	"reload": func(w *world, e *step, _ *rand.Rand) { w.reload(e.instance, "reload", func(*setup) {}) },
	"reload-pool": func(w *world, e *step, r *rand.Rand) {
		w.reload(e.instance, "reload-pool", func(s *setup) { s.pool = 5 + r.IntN(10) })
	},
	"reload-limit":  func(w *world, _ *step, r *rand.Rand) { w.changeLimits(r) },
	"reload-store":  func(w *world, _ *step, _ *rand.Rand) { w.changeStore() },
	"reload-kind":   func(w *world, _ *step, r *rand.Rand) { w.changeKinds(r) },
	"reload-prefix": func(w *world, _ *step, _ *rand.Rand) { w.changePrefix() },
	"list":          func(w *world, _ *step, r *rand.Rand) { w.changeList(r) },
	"die":           func(w *world, e *step, _ *rand.Rand) { w.restart(e, (*instance).die) },
	"stop":          func(w *world, e *step, _ *rand.Rand) { w.restart(e, (*instance).stop) },
	"document":      func(w *world, _ *step, r *rand.Rand) { w.document(r) },
	"idle":          func(w *world, e *step, _ *rand.Rand) { w.idle(e) },
	"key-reset":     func(w *world, e *step, r *rand.Rand) { w.resetKey(e, r) },
}

var eventNames = names(eventKinds)

// inject begins a fault, and ends it in time.
func (w *world) inject(f *step) {
	k := faultKinds[f.what]
	r := rand.New(rand.NewPCG(f.seed, 2)) //nolint:gosec // a simulation
	w.event("fault %s", f)
	w.oracle.begin(f, k)
	w.coverage.fault(f.what)
	w.coverage.add(faulty, 1)
	defer w.coverage.add(faulty, -1)
	end := k.begin(w, f, r)
	if end == nil {
		w.oracle.end(f, k)
		return
	}
	time.Sleep(f.long)
	end()
	w.event("fault ends %s", f)
	w.oracle.end(f, k)
	w.coverage.happens(f.what + " ends")
}
