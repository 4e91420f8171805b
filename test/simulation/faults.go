package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// faultKind is a kind of fault.
type faultKind struct {
	// away says that instances may be without Redis meanwhile, and shortly after.
	away bool

	// loses says that Redis may lose keys. stepped, that its clock is set.
	loses, stepped bool

	// answers says that each call is answered meanwhile, so that its outcome is known. whole,
	// that none is.
	answers, whole bool

	// deaf says that a message of Redis may be lost.
	deaf bool

	// begin begins the fault, and returns how it ends; nil: it is over.
	begin func(w *world, f *step, r *rand.Rand) (end func())
}

// mainAddress is the address of the server of all stores.
const mainAddress = "main:6379"

// faultKinds are the faults by name. A new fault is a new entry.
var faultKinds = map[string]*faultKind{
	"pause":        {away: true, whole: true, begin: func(w *world, _ *step, _ *rand.Rand) func() { w.main.Pause(); return w.main.Resume }},
	"kill":         {away: true, whole: true, begin: func(w *world, _ *step, _ *rand.Rand) func() { w.main.Kill(); return func() { w.main.Start(true) } }},
	"kill-empty":   {away: true, loses: true, begin: func(w *world, _ *step, _ *rand.Rand) func() { w.main.Kill(); return func() { w.main.Start(false) } }},
	"flush":        {loses: true, begin: func(w *world, _ *step, _ *rand.Rand) func() { w.main.Flush(); return nil }},
	"evict":        {loses: true, begin: func(w *world, _ *step, r *rand.Rand) func() { w.main.Evict(r, 1+r.IntN(8)); return nil }},
	"script-flush": {begin: func(w *world, _ *step, _ *rand.Rand) func() { w.main.FlushScripts(); return nil }},
	"oom":          {away: true, answers: true, begin: func(w *world, _ *step, _ *rand.Rand) func() { return toggle(w.main.SetOOM) }},
	"read-only":    {away: true, answers: true, begin: func(w *world, _ *step, _ *rand.Rand) func() { return toggle(w.main.SetReadOnly) }},
	"loading":      {away: true, answers: true, begin: func(w *world, _ *step, _ *rand.Rand) func() { return toggle(w.main.Loading) }},
	"busy":         {away: true, answers: true, begin: func(w *world, _ *step, _ *rand.Rand) func() { return toggle(w.main.Busy) }},
	"slow":         {away: true, begin: slowNode},
	"wrong-type": {away: true, answers: true, begin: func(w *world, _ *step, r *rand.Rand) func() {
		return w.main.Disguise(r, 1+r.IntN(8), ":{instances}")
	}},
	"clock-forward": {stepped: true, begin: func(w *world, _ *step, r *rand.Rand) func() {
		w.setClock(time.Duration(r.Int64N(int64(time.Hour))))
		return nil
	}},
	"clock-back": {stepped: true, begin: func(w *world, _ *step, r *rand.Rand) func() {
		w.setClock(-time.Duration(r.Int64N(int64(time.Hour))))
		return nil
	}},
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

func slowNode(w *world, _ *step, r *rand.Rand) func() {
	w.main.Slow(time.Duration(1 + r.Int64N(int64(20*time.Millisecond))))
	return func() { w.main.Slow(0) }
}

func onNetwork(change func(d *disturbance, r *rand.Rand)) func(w *world, f *step, r *rand.Rand) func() {
	return func(w *world, f *step, r *rand.Rand) func() {
		d := new(disturbance)
		if f.instance >= 0 {
			d.instance = w.instances[f.instance].name
		}
		change(d, r)
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
	"reload-limit": func(w *world, _ *step, r *rand.Rand) { w.changeLimits(r) },
	"die":          func(w *world, e *step, _ *rand.Rand) { w.restart(e, (*instance).die) },
	"stop":         func(w *world, e *step, _ *rand.Rand) { w.restart(e, (*instance).stop) },
	"document":     func(w *world, _ *step, r *rand.Rand) { w.document(r) },
	"idle":         func(w *world, e *step, _ *rand.Rand) { w.idle(e) },
	"key-reset":    func(w *world, e *step, r *rand.Rand) { w.resetKey(e, r) },
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
