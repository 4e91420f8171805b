// Package simulation runs instances, a Redis and the network between them in one bubble of
// testing/synctest, injects faults by a seed, and checks the promises: docs/internals/simulation.md.
package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dianalimiter/diana/internal/limiter"
)

// world is one run: instances, servers and the network between them, in one synctest
// bubble.
type world struct {
	t          *testing.T
	plan       *Plan
	begun      time.Time
	network    *network
	redis      *deployment
	instances  []*instance
	oracle     *oracle
	coverage   *coverage
	documents  documents
	background sync.WaitGroup
	logLevel   string

	mu       sync.Mutex
	setup    *setup   // in force
	last     []rule   // of the last document
	lastSite string   // the zone that it has rules for
	listed   []string // the keys of the list
	up       func()   // called when an instance tells that a store is up; nil: nothing
	unsure   bool     // whether Redis has a document that was written is not known
	timeline []line
}

// line is a line of the timeline.
type line struct {
	at   time.Duration
	text string
}

// now is the time since the run began.
func (w *world) now() time.Duration { return time.Since(w.begun) }

// event adds a line to the timeline.
func (w *world) event(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timeline = append(w.timeline, line{w.now(), fmt.Sprintf(format, args...)})
}

// Result is the outcome of a run.
type Result struct {
	Plan       Plan           // what was run
	Simulated  time.Duration  // simulated time
	Took       time.Duration  // real time
	Requests   int            // number of requests
	Faults     map[string]int // how often each fault was injected
	Checked    map[string]int // how often each promise was checked
	Pairs      map[string]int // how often a fault met what was under way
	Sometimes  map[string]int // how often a state that matters was seen
	Violations []Violation    // promises that were not kept
	Instances  int            // number of instances
	Events     int            // number of events other than requests
	Stuck      bool           // it was cut off: see stuck
}

// Violation is a promise that was not kept.
type Violation struct {
	Promise string   // its name
	What    string   // how it was violated
	Lines   []string // of the timeline
}

// Run runs a plan.
func Run(t *testing.T, p *Plan) (result *Result) {
	began := time.Now()
	p.draw()
	ended := make(chan struct{})
	defer close(ended)
	n := newNetwork(p.Seed)
	var running atomic.Pointer[world]
	go n.watch(&running, ended)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, p, n)
		running.Store(w)
		w.run()
		result = w.result()
	})
	result.Took = time.Since(began)
	return result
}

func newWorld(t *testing.T, p *Plan, n *network) *world {
	p.setup.file, p.setup.list = filepath.Join(t.TempDir(), "rules.json"), filepath.Join(t.TempDir(), "keys.txt")
	w := &world{t: t, plan: p, begun: time.Now(), network: n, setup: p.setup, logLevel: "ERROR"}
	if l := os.Getenv("DIANA_SIMULATION_LOG"); l != "" {
		w.logLevel = l
	}
	logs.Store(w)
	w.oracle, w.coverage = newOracle(w), newCoverage()
	w.redis = w.deploy(p.setup.topology)
	w.network.servers[documentAddress] = &w.documents
	for i := range p.Instances {
		w.instances = append(w.instances, &instance{w: w, name: "i" + strconv.Itoa(i), turn: make(chan struct{}, 1), requests: new(sync.WaitGroup)})
	}
	w.writeList()
	storages.Clear()
	return w
}

// quiet is how long nothing happens at the end.
const quiet = 70 * time.Second

func (w *world) run() {
	w.far()
	for i, in := range w.instances {
		if err := in.start(w.setup); err != nil {
			w.t.Fatalf("instance %d: %v", i, err)
		}
		time.Sleep(137 * time.Millisecond)
	}
	var steps sync.WaitGroup
	for i := range w.plan.steps {
		s := &w.plan.steps[i]
		steps.Go(func() {
			time.Sleep(s.at - w.now())
			w.step(s)
		})
	}
	steps.Wait()
	time.Sleep(w.plan.load - w.now())
	w.event("quiet")
	time.Sleep(quiet)
	w.oracle.finish()
	for _, in := range w.instances {
		in.stop()
	}
	w.background.Wait()
	for gone := w.now() + lingers; w.network.open("") > 0 && w.now() < gone; {
		time.Sleep(time.Second)
	}
	if n := w.network.open(""); n > 0 {
		w.oracle.violate("nothing is left over", fmt.Sprintf("%d connections are open after all instances have stopped", n))
	}
	w.network.reset(func(*conn) bool { return true })
	w.redis.kill()
	synctest.Wait()
}

func (w *world) step(s *step) {
	switch {
	case s.what == "patient":
		w.patient(s)
	case s.client:
		w.client(s)
	case faultKinds[s.what] != nil:
		w.inject(s)
	default:
		w.event("%s", s)
		eventKinds[s.what](w, s, rand.New(rand.NewPCG(s.seed, 2))) //nolint:gosec // a simulation
	}
}

// pick returns an instance that serves requests.
func (w *world) pick(s *step, r *rand.Rand) *instance {
	n := s.instance
	if n < 0 {
		n = r.IntN(len(w.instances))
	}
	for range w.instances {
		if n %= len(w.instances); !w.instances[n].idle.Load() {
			break
		}
		n++
	}
	return w.instances[n%len(w.instances)]
}

// client sends requests at random times.
func (w *world) client(s *step) {
	r := rand.New(rand.NewPCG(s.seed, 3)) //nolint:gosec // a simulation
	var requests sync.WaitGroup
	end := w.now() + s.long
	for {
		time.Sleep(time.Duration(r.ExpFloat64() / s.rate * float64(time.Second)))
		if s.rest > 0 && (w.now()-s.at)%(s.burst+s.rest) > s.burst {
			time.Sleep(s.burst + s.rest - (w.now()-s.at)%(s.burst+s.rest))
		}
		if w.now() >= end {
			break
		}
		n := 1
		if r.IntN(12) == 0 {
			n += r.IntN(6)
		}
		for range n {
			q := w.draw(s, r)
			in := w.pick(s, r)
			requests.Go(func() { w.send(in, q) })
		}
	}
	requests.Wait()
}

// draw draws a request.
func (w *world) draw(s *step, r *rand.Rand) *request {
	one := &w.plan.setup.sites[s.site]
	q := &request{site: s.site, key: s.key, cost: 1 + r.Int64N(one.MaxCost), status: 200, method: http.MethodGet}
	if r.IntN(3) > 0 {
		q.cost = 1
	}
	switch one.Kind {
	case inFlight:
		q.holds = 20*time.Millisecond + time.Duration(r.ExpFloat64()*float64(time.Second))
		if r.IntN(60) == 0 {
			q.holds = between(r, 10*time.Second, 70*time.Second) // its place is renewed
		}
	case tally, counted:
		q.holds = time.Duration(r.Int64N(int64(300 * time.Millisecond)))
		q.status = []int{200, 401, 401, 404}[r.IntN(4)]
	case settled, held:
		q.holds = time.Duration(r.Int64N(int64(300 * time.Millisecond)))
		if r.IntN(8) == 0 {
			q.holds = between(r, 300*time.Millisecond, 4*time.Second)
		}
		q.tokens = r.Int64N(20)
	case duplicates:
		q.method, q.path = http.MethodPost, strconv.Itoa(r.IntN(8))
	case ledger:
		if r.IntN(4) == 0 {
			q.holds = time.Duration(r.Int64N(int64(50 * time.Millisecond)))
		}
	}
	if s.holds > 0 {
		q.holds = s.holds
	}
	switch r.IntN(60) {
	case 0:
		q.panics = true
	case 1:
		q.cancel = time.Duration(r.Int64N(int64(q.holds + 20*time.Millisecond)))
	}
	return q
}

// send sends a request to an instance and records what happens.
func (w *world) send(in *instance, q *request) {
	q.instance, q.process, q.start = in.name, in.addressNow(), w.now()
	ctx := context.Background()
	if q.cancel > 0 {
		c, cancel := context.WithCancel(ctx)
		defer cancel()
		t := time.AfterFunc(q.cancel, cancel)
		defer t.Stop()
		ctx = c
	}
	r := httptest.NewRequest(q.method, "http://example.com/"+q.path, nil).WithContext(ctx)
	r.Header.Set("X-Key", q.key)
	r.Header.Set("X-Cost", strconv.FormatInt(q.cost, 10))
	w.coverage.add(deciding, 1)
	next := func(rw http.ResponseWriter, _ *http.Request) error {
		q.admitted, q.decided = true, w.now()
		w.coverage.add(deciding, -1)
		under, k := answering, w.plan.setup.sites[q.site].Kind
		if k == inFlight {
			under = holding
		}
		w.coverage.charged(q, k)
		w.coverage.add(under, 1)
		defer w.coverage.add(under, -1)
		defer w.coverage.released(q, k)
		w.oracle.admitted(in, q)
		defer w.oracle.released(q)
		if q.holds > 0 {
			time.Sleep(q.holds)
		}
		q.left = ctx.Err() != nil
		if q.panics {
			panic(http.ErrAbortHandler)
		}
		rw.Header().Set("X-Tokens", strconv.FormatInt(q.tokens, 10))
		rw.WriteHeader(q.status)
		return nil
	}
	status, header, ok := in.serve(q.site, r, next)
	if !ok {
		w.coverage.add(deciding, -1)
		return
	}
	q.end = w.now()
	if !q.admitted {
		q.decided = q.end
		w.coverage.add(deciding, -1)
	}
	q.answer, q.lost = status, in.isDead(q.process)
	if header != nil {
		q.retry, _ = strconv.ParseInt(header.Get("Retry-After"), 10, 64)
		q.limit = header.Get("RateLimit")
	}
	if !q.admitted && w.plan.setup.sites[q.site].Kind == blocking {
		w.coverage.denied(q)
	}
	w.oracle.record(q)
}

// patient asks until it is denied, waits for what Retry-After says, and asks again.
func (w *world) patient(s *step) {
	r := rand.New(rand.NewPCG(s.seed, 3)) //nolint:gosec // a simulation
	end := w.now() + s.long
	for w.now() < end {
		in := w.pick(s, r)
		q := &request{site: s.site, key: s.key, cost: 1, status: 200, method: http.MethodGet}
		w.send(in, q)
		if q.answer == http.StatusTooManyRequests && q.retry > 0 {
			time.Sleep(time.Duration(q.retry) * time.Second)
			again := &request{site: s.site, key: s.key, cost: 1, status: 200, method: http.MethodGet, after: q}
			w.send(w.pick(s, r), again)
		} else {
			time.Sleep(time.Duration(r.Int64N(int64(100 * time.Millisecond))))
		}
	}
}

// reload reloads an instance.
func (w *world) reload(instance int, what string, change func(s *setup)) {
	in := w.instances[instance]
	if !in.isUp() {
		return
	}
	in.turn <- struct{}{}
	defer func() { <-in.turn }()
	w.mu.Lock()
	s := *w.setup
	w.mu.Unlock()
	change(&s)
	w.coverage.event(what)
	w.coverage.add(reloading, 1)
	defer w.coverage.add(reloading, -1)
	if in.opensStores(&s) {
		defer w.oracle.connects(instance)()
	}
	if err := in.load(&s); err != nil {
		w.oracle.violate("a configuration loads", err.Error())
	}
}

// restart ends an instance, and starts it again.
func (w *world) restart(e *step, end func(*instance)) {
	in := w.instances[e.instance]
	if !in.isUp() {
		return
	}
	w.oracle.ends(in, e.what)
	w.coverage.event(e.what)
	w.coverage.gone(in.name)
	end(in)
	time.Sleep(e.long)
	w.event("start %s", in.name)
	w.coverage.event("start")
	in.turn <- struct{}{}
	defer func() { <-in.turn }()
	w.mu.Lock()
	s := w.setup
	w.mu.Unlock()
	connected := w.oracle.connects(e.instance)
	if err := in.start(s); err != nil {
		w.oracle.violate("an instance starts", err.Error())
	}
	w.oracle.starts(in)
	time.AfterFunc(grace, connected)
}

// resetKey resets a hot key.
func (w *world) resetKey(e *step, r *rand.Rand) {
	i, key := r.IntN(len(w.plan.setup.sites)), "k0"
	if last := len(w.plan.setup.sites) - 1; w.plan.setup.sites[last].Kind == blocking && r.IntN(2) == 0 {
		i = last
	}
	if e.key != "" {
		i, key = e.site, e.key
	}
	one := &w.plan.setup.sites[i]
	w.coverage.event("key-reset")
	done, began := w.oracle.reset(i, key), w.now()
	status, text := w.instances[e.instance].ask(http.MethodDelete, "/rate_limit/zones/"+one.Name+"/key?part="+key)
	var answer limiter.Key
	everywhere := json.Unmarshal([]byte(text), &answer) == nil && answer.Reset == "everywhere"
	done(everywhere)
	if everywhere {
		w.oracle.wasReset(i, key, began)
	}
	w.event("reset of %s %s: %d %s", one.Name, key, status, strings.TrimSpace(text))
}

// lingers is the longest that the stores of a configuration stay open after it has ended:
// requests may still have to be charged.
const lingers = 100 * time.Second

// idle sends an instance no requests for a time, as a load balancer does.
func (w *world) idle(e *step) {
	in := w.instances[e.instance]
	w.coverage.event("idle")
	in.idle.Store(true)
	time.Sleep(e.long)
	in.idle.Store(false)
}
