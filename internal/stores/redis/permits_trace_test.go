package redis

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// world runs the permits of several instances against the script in a real Redis, over
// a network that loses, delays and doubles calls, on a virtual clock. It counts itself
// what requests hold and what they were to be charged.
type world struct {
	*testing.T
	r      *rand.Rand
	client *goredis.Client
	sha    string
	now    int64
	events events
	faults faults

	counter   *stores.Counter
	instances []*worldInstance
	keys      uint64

	running  map[uint64]int64 // by key
	charged  map[uint64]int64 // what the responses of living instances were to charge
	maybe    map[uint64]int64 // what a crashed one may have charged
	killed   map[uint64]int64 // what requests of a crashed one held
	over     int
	admitted int
	calls    int
	lost     int64 // when Redis lost its memory; 0: it did not
}

// faults are the probabilities of what may happen to a call.
type faults struct{ loss, late, double, expiry float64 }

// worldInstance is an instance with its calls in flight.
type worldInstance struct {
	p        *permits
	queue    []*worldCall
	inFlight int
	open     []*stores.Check
	restored map[uint64]bool // keys that were reported since Redis lost its memory
	dead     bool
}

// worldCall is a check, or a report without one.
type worldCall struct {
	q     *call
	check *stores.Check
	keys  []uint64
}

type event struct {
	at int64
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) } //nolint:forcetypeassert // nothing else is pushed

func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

const (
	worldTimeout = 25_000    // microseconds that a caller waits
	worldTime    = 2_000_000 // microseconds in which requests arrive
)

func (w *world) after(d int64, do func()) { heap.Push(&w.events, event{w.now + d, do}) }

func (w *world) run(until int64) {
	for len(w.events) > 0 && w.events[0].at <= until && !w.Failed() {
		e := heap.Pop(&w.events).(event) //nolint:forcetypeassert // nothing else is pushed
		w.now = e.at
		e.do()
	}
	w.now = until
}

func (w *world) chance(p float64) bool { return w.r.Float64() < p }

func (w *world) latency() int64 { return 100 + int64(2000*w.r.Float64()*w.r.Float64()) }

func (w *world) newInstance() *worldInstance {
	return &worldInstance{p: newPermits("diana", new(memory.Permits), func() int64 { return w.now }), restored: make(map[uint64]bool)}
}

// send sends what is queued, while fewer than two calls are in flight.
func (w *world) send(x *worldInstance) {
	for x.inFlight < callsInFlight && len(x.queue) > 0 && !x.dead {
		n := min(len(x.queue), 1+w.r.IntN(8))
		some := x.queue[:n:n]
		x.queue = x.queue[n:]
		var batch []*call
		for _, c := range some {
			batch = append(batch, c.q)
		}
		x.inFlight++
		w.calls++
		x.p.leave(batch)
		first := batch[0]
		first.batch = batch
		first.batchArgs(w.sha, batch)
		w.transmit(x, some, first, w.now+worldTimeout)
	}
}

// transmit has a call executed, perhaps late, twice or not at all, and its reply
// received, perhaps not.
func (w *world) transmit(x *worldInstance, some []*worldCall, first *call, end int64) {
	done := false
	resolve := func(text string, err error) {
		if done || x.dead {
			return
		}
		done = true
		x.inFlight--
		w.resolve(x, some, first, text, err)
		w.send(x)
	}
	w.after(worldTimeout, func() { resolve("", errUnanswered) })
	delay, lost := w.latency(), w.chance(w.faults.loss/2)
	if w.chance(w.faults.late) {
		delay += int64(2 * worldTimeout * w.r.Float64())
	}
	if w.chance(w.faults.double) && !slices.ContainsFunc(some, func(c *worldCall) bool { return c.check != nil }) {
		w.after(delay+w.latency(), func() { w.execute(x, some, first, end) })
	}
	if w.chance(w.faults.loss / 2) {
		return
	}
	w.after(delay, func() {
		text := w.execute(x, some, first, end)
		if !lost {
			w.after(w.latency(), func() { resolve(text, nil) })
		}
	})
}

// execute runs a call in Redis.
func (w *world) execute(x *worldInstance, some []*worldCall, first *call, end int64) string {
	first.head.b = appendNumber(appendNumber(nil, w.now), end)
	text, err := w.client.Do(context.Background(), first.args...).Text()
	if err != nil {
		w.Fatal(err)
	}
	// A call that was in flight when Redis lost its memory may be granted what the next
	// reports do not say yet.
	if w.now <= end && end-worldTimeout > w.lost+worldTimeout {
		for _, c := range some {
			for _, k := range c.keys {
				x.restored[k] = true
			}
		}
	}
	return text
}

// resolve takes the reply to a call, or the error.
func (w *world) resolve(x *worldInstance, some []*worldCall, first *call, text string, err error) {
	if err == nil {
		r := reply{b: text}
		r.next(16)
		if now := r.number(); now < 0 {
			err = errLate
		} else {
			for _, c := range some {
				c.q.cut(&r)
			}
			if r.err != nil || len(r.b) > 0 {
				w.Fatalf("reply %q", text)
			}
		}
	}
	x.p.arrive(first.batch, err)
	for _, c := range some {
		if c.check == nil || err != nil {
			continue
		}
		if w.chance(w.faults.expiry) {
			x.p.abandon(c.q)
			continue
		}
		c.q.claim()
		if z := &c.check.Zones[0]; z.Permit.Taken {
			w.begin(x, c.check)
		}
	}
}

// begin begins a request that was admitted.
func (w *world) begin(x *worldInstance, check *stores.Check) {
	k := check.Zones[0].Key.Hi
	w.admitted++
	w.running[k]++
	x.open = append(x.open, check)
	if limit := w.counter.InFlight; limit > 0 && w.running[k] > limit {
		w.over++
		if w.restoredAll(k) {
			w.Errorf("at %d: %d requests of key %d, %d may run", w.now, w.running[k], k, limit)
		}
	}
	w.after(1000+int64(40_000*w.r.Float64()*w.r.Float64()), func() { w.end(x, check) })
}

// restoredAll says whether Redis knows what every instance holds of a key, if it has lost
// its memory.
func (w *world) restoredAll(k uint64) bool {
	for _, x := range w.instances {
		if !x.restored[k] {
			return false
		}
	}
	return true
}

// end ends a request, which half of the time is charged.
func (w *world) end(x *worldInstance, check *stores.Check) {
	if x.dead {
		return
	}
	for i := range x.open {
		if x.open[i] == check {
			x.open = append(x.open[:i], x.open[i+1:]...)
			break
		}
	}
	z, charge := &check.Zones[0], int64(0)
	if w.chance(.5) {
		charge = z.Cost
	}
	w.running[z.Key.Hi]--
	w.charged[z.Key.Hi] += charge
	q := newCall(time.Time{}, z.Tag)
	x.p.end(z, charge, q, nil)
	x.queue = append(x.queue, &worldCall{q: q, keys: []uint64{z.Key.Hi}})
	w.send(x)
}

// arrive has a request arrive.
func (w *world) arrive(x *worldInstance) {
	if x.dead {
		return
	}
	check := storekit.CheckOfKey(w.counter, 1+w.r.Uint64N(w.keys))
	z := &check.Zones[0]
	z.Cost = 1 + w.r.Int64N(3)
	z.Rules, z.InFlight = w.counter.Rules, w.counter.InFlight
	check.ResetResults()
	q := newCall(time.Time{}, z.Tag)
	q.decide("diana", check, nil)
	x.queue = append(x.queue, &worldCall{q, check, []uint64{z.Key.Hi}})
	w.send(x)
}

// renew makes a round of renewals, and another after retryEvery.
func (w *world) renew(x *worldInstance) {
	if x.dead {
		return
	}
	x.p.round++
	for {
		due := x.p.due(1 + w.r.IntN(3))
		if len(due) == 0 {
			break
		}
		some := due[0] // the only rules have no third-party algorithm
		c := &worldCall{q: newCall(time.Time{}, some[0].zone.Tag)}
		for _, rec := range some {
			c.q.reportOf(rec, nil)
			c.keys = append(c.keys, rec.zone.Key.Hi)
		}
		x.queue = append(x.queue, c)
	}
	w.send(x)
	w.after(retryEvery.Microseconds(), func() { w.renew(x) })
}

// crash ends an instance and starts another.
func (w *world) crash(i int) {
	x := w.instances[i]
	x.dead = true
	for _, check := range x.open {
		z := &check.Zones[0]
		w.running[z.Key.Hi]--
		w.killed[z.Key.Hi] += z.HeldCost()
	}
	for _, rec := range x.p.records {
		k := rec.zone.Key.Hi
		w.charged[k] -= rec.charges.total - rec.charges.acked
		w.maybe[k] += rec.charges.total - rec.charges.acked
	}
	w.instances[i] = w.newInstance()
	w.instances[i].restored = x.restored // it holds nothing
	w.renew(w.instances[i])
}

// lose makes Redis lose its memory. A second later the instances notice.
func (w *world) lose() {
	if err := w.client.FlushAll(context.Background()).Err(); err != nil {
		w.Fatal(err)
	}
	w.lost = w.now
	for _, x := range w.instances {
		x.restored = make(map[uint64]bool)
		for k := range w.keys + 1 {
			x.restored[k] = true
		}
		for _, check := range x.open {
			x.restored[check.Zones[0].Key.Hi] = false
		}
		for _, rec := range x.p.records { // a call in flight may be granted what is claimed later
			x.restored[rec.zone.Key.Hi] = false
		}
		w.after(1_000_000, x.p.lose)
	}
}

// TestRandomPermits runs random traces: several instances and keys, calls that are lost,
// late and given up, reports that arrive twice (checks are never sent twice), crashes, and a Redis that loses its memory. Never do more
// requests run than may, unless Redis has lost what an instance holds; every cost is
// charged once; and nothing remains when all have ended.
func TestRandomPermits(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client()
	sha, err := client.ScriptLoad(context.Background(), virtualScript(t)).Result()
	if err != nil {
		t.Fatal(err)
	}
	r := storekit.Seeded(t)
	total := storekit.Operations(t)
	calls, admitted, over := 0, 0, 0
	for round := 0; calls < total && !t.Failed(); round++ {
		kind := []string{"no faults", "faults", "crashes", "lost memory"}[round%4]
		w := newWorld(t, r, client, sha, kind, round)
		w.play(kind)
		if t.Failed() {
			t.Logf("round %d, %s, %d instances, %d permits", round, kind, len(w.instances), w.counter.InFlight)
		}
		calls, admitted, over = calls+w.calls, admitted+w.admitted, over+w.over
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d calls, %d requests admitted, %d of them too many after lost memory", calls, admitted, over)
	if admitted == 0 {
		t.Error("nothing was admitted")
	}
}

func newWorld(t *testing.T, r *rand.Rand, client *goredis.Client, sha, kind string, round int) *world {
	t.Helper()
	limit, hold := int64(1+r.IntN(5)), r.IntN(2) == 0
	if hold && r.IntN(2) == 0 {
		limit = 0
	}
	spec := algorithms.Spec{Limit: 1_000_000, Window: storekit.Hour, Cost: 1, Overdraws: true}
	if hold {
		spec.Limit = 20 + r.Int64N(200)
	}
	w := &world{
		T: t, r: r, client: client, sha: sha, now: virtualStart, keys: 1 + r.Uint64N(2),
		counter: kit.NewTestCounter(t, fmt.Sprint("w", round), limit, hold, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: spec}),
		running: make(map[uint64]int64), charged: make(map[uint64]int64), maybe: make(map[uint64]int64), killed: make(map[uint64]int64),
	}
	if kind != "no faults" {
		w.faults = faults{loss: []float64{.02, .2}[r.IntN(2)], late: .03, double: .02, expiry: .02}
	}
	for range 2 + r.IntN(4) {
		x := w.newInstance()
		for k := range w.keys + 1 {
			x.restored[k] = true
		}
		w.instances = append(w.instances, x)
		w.renew(x)
	}
	return w
}

// play runs a trace to its end, and checks what remains.
func (w *world) play(kind string) {
	for at := int64(0); at < worldTime; at += int64([]float64{500, 3000, 30_000}[w.r.IntN(3)] * w.r.Float64()) {
		i, n := w.r.IntN(len(w.instances)), 1+w.r.IntN(4)
		w.after(at, func() {
			for range n {
				w.arrive(w.instances[i])
			}
		})
	}
	switch kind {
	case "crashes":
		w.after(worldTime/2, func() { w.crash(0) })
	case "lost memory":
		w.after(worldTime/2, w.lose)
	}
	w.run(w.now + worldTime + 200_000)
	w.faults = faults{} // so that the last reports arrive
	if kind == "crashes" {
		w.run(w.now + lapse.Microseconds())
	}
	w.run(w.now + 2*renewEvery.Microseconds())
	if w.Failed() {
		return
	}
	for _, x := range w.instances {
		if x.p.any() {
			w.Errorf("an instance keeps %d records after all requests have ended", len(x.p.records))
		}
	}
	for k := uint64(1); k <= w.keys; k++ {
		w.checkKey(k, kind)
	}
}

// checkKey checks what Redis has of a key after all requests have ended.
func (w *world) checkKey(k uint64, kind string) {
	held, used := w.look(k)
	if kind == "crashes" { // what the crashed instance held is charged half a minute after the first call
		if held < w.killed[k] {
			w.Errorf("key %d holds a cost of %d, want at least the %d that a crashed instance held", k, held, w.killed[k])
		}
		w.charged[k] += held
		w.now += lapse.Microseconds()
		held, used = w.look(k)
	}
	if held != 0 {
		w.Errorf("key %d holds a cost of %d after all requests have ended", k, held)
	}
	if n := permitsIn(w.T, w.client, w.names(k)[1]); n != 0 && kind != "crashes" { // there no call has removed what lapsed
		w.Errorf("key %d has %d permits after all requests have ended", k, n)
	}
	if w.counter.HoldCost && kind != "lost memory" {
		if used < w.charged[k] || used > w.charged[k]+w.maybe[k] {
			w.Errorf("key %d was charged %d, want %d, and %d that a crashed instance may have charged", k, used, w.charged[k], w.maybe[k])
		}
		if limit := w.counter.Rules[0].Limit(); used > limit {
			w.Errorf("key %d was charged %d, limit %d", k, used, limit)
		}
	}
}

// names returns the names of a key's values.
func (w *world) names(k uint64) []string {
	z := &storekit.CheckOfKey(w.counter, k).Zones[0]
	z.Reserve = true
	return namesOf("diana", z)
}

// look returns what requests hold of a key, and what was charged.
func (w *world) look(k uint64) (held, used int64) {
	check := storekit.CheckOfKey(w.counter, k)
	check.Peek = true
	q := newCall(time.Time{}, check.Zones[0].Tag)
	check.Zones[0].Rules = w.counter.Rules
	check.ResetResults()
	q.decide("diana", check, nil)
	q.batch = []*call{q}
	q.batchArgs(w.sha, q.batch)
	x := &worldInstance{restored: make(map[uint64]bool)}
	r := &reply{b: w.execute(x, nil, q, noEnd)}
	r.next(24)
	if _, err := r.readZone(&check.Zones[0], w.now); err != nil {
		w.Fatal(err)
	}
	if s := check.Zones[0].Results[0].State; len(s) > 1 {
		used = s[1]
	}
	return check.Zones[0].Held, used
}
