package simulation

import (
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/logging" // the encoder of log lines
)

// What may be under way when a fault begins or ends.
const (
	deciding  = "deciding"
	answering = "answering"
	holding   = "holding a place"
	reloading = "reloading"
	alone     = "alone"
	owing     = "owing"
	leasing   = "leasing"
	faulty    = "another fault"
)

// underWay are all of them.
var underWay = []string{deciding, answering, holding, reloading, alone, owing, leasing, faulty}

// states are the states that runs have to reach sometimes.
var states = []string{
	"a debt is unpaid when Redis returns", "a lease ends during a reload", "a place is held when Redis restarts", "a place is held over a reload",
	"Redis forgets while an instance is alone", "the clock is set while an instance is alone", "an instance dies while it owes",
	"an instance starts while another is alone", "a key is reset while an instance is alone", "three faults at a time",
	"a document changes while an instance is alone", "a reload while an instance is alone", "a request waits for a place when Redis stops",
	"a place is renewed after a failover", "a slot moves while a debt is owed", "a key is blocked when Redis forgets",
	"rules of another kind while an instance is alone", "another prefix while an instance is alone", "a list changes while an instance is alone",
}

// coverage counts what was under way when something happened.
type coverage struct {
	mu        sync.Mutex
	now       map[string]int // what is under way
	debts     map[string]int // requests that an instance has decided alone since it went alone
	down      map[string]bool
	leased    time.Time // when the last lease was used
	failovers []time.Time
	blocked   time.Time // until when a key is blocked
	pairs     map[string]int
	sometimes map[string]int
	faults    map[string]int
	events    int
}

func newCoverage() *coverage {
	return &coverage{
		now: make(map[string]int), debts: make(map[string]int), down: make(map[string]bool),
		pairs: make(map[string]int), sometimes: make(map[string]int), faults: make(map[string]int),
	}
}

// add adds to what is under way.
func (c *coverage) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[what] += n
}

// charged notes a request that was admitted.
func (c *coverage) charged(q *request, k kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k == leased {
		c.leased = time.Now()
	}
	if q.decided == q.start && c.down[q.instance] && k != leased {
		if c.debts[q.instance]++; c.debts[q.instance] == 1 {
			c.now[owing]++
		}
	}
}

// failedOver notes that a replica has taken the place of its master.
func (c *coverage) failedOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failovers = append(c.failovers, time.Now())
}

// renewal is the longest that it takes until a place is renewed.
const renewal = 11 * time.Second

// released notes that the answer to a request ends.
func (c *coverage) released(q *request, k kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.failovers {
		held := time.Since(at)
		c.someLocked("a place is renewed after a failover", k == inFlight && held > renewal && q.holds > held)
	}
}

// denied notes that a key is blocked.
func (c *coverage) denied(q *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked = time.Now().Add(time.Duration(q.retry-1) * time.Second)
}

// mode notes that an instance is alone, or no longer.
func (c *coverage) mode(instance string, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if up {
		c.someLocked("a debt is unpaid when Redis returns", c.debts[instance] > 0)
	}
	if c.down[instance] == up {
		c.down[instance] = !up
		if c.now[alone]++; up {
			c.now[alone] -= 2
		}
	}
	if up && c.debts[instance] > 0 {
		c.now[owing]--
		delete(c.debts, instance)
	}
}

// gone forgets an instance.
func (c *coverage) gone(instance string) {
	c.mu.Lock()
	owes := c.debts[instance] > 0
	c.someLocked("an instance dies while it owes", owes)
	c.mu.Unlock()
	c.mode(instance, true)
}

func (c *coverage) someLocked(state string, reached bool) {
	if reached {
		c.sometimes[state]++
	}
}

// happens counts something with all that is under way.
func (c *coverage) happens(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[leasing] = 0
	if time.Since(c.leased) < 200*time.Millisecond {
		c.now[leasing] = 1
	}
	for _, other := range underWay {
		if c.now[other] > 0 {
			c.pairs[what+" | "+other]++
		}
	}
	is := func(state string, when ...string) {
		c.someLocked(state, c.now[alone] > 0 && slices.Contains(when, what))
	}
	is("Redis forgets while an instance is alone", "flush", "evict", "kill-empty")
	c.someLocked("a slot moves while a debt is owed", c.now[owing] > 0 && what == "move")
	forgets := faultKinds[what] != nil && faultKinds[what].loses
	c.someLocked("a key is blocked when Redis forgets", forgets && time.Now().Before(c.blocked))
	is("the clock is set while an instance is alone", "clock-forward", "clock-back")
	is("a key is reset while an instance is alone", "key-reset")
	is("an instance starts while another is alone", "start")
	is("a document changes while an instance is alone", "document")
	is("a reload while an instance is alone", "reload", "reload-pool", "reload-limit", "reload-store", "reload-kind", "reload-prefix")
	is("rules of another kind while an instance is alone", "reload-kind")
	is("another prefix while an instance is alone", "reload-prefix")
	is("a list changes while an instance is alone", "list")
	c.someLocked("a place is held when Redis restarts", c.now[holding] > 0 && (what == "kill ends" || what == "kill-empty ends"))
	c.someLocked("a place is held over a reload", c.now[holding] > 0 && strings.HasPrefix(what, "reload"))
	c.someLocked("a lease ends during a reload", c.now[leasing] > 0 && strings.HasPrefix(what, "reload"))
	c.someLocked("three faults at a time", c.now[faulty] > 1 && faultKinds[what] != nil)
	c.someLocked("a request waits for a place when Redis stops", c.now[deciding] > 0 && c.now[holding] > 0 && (what == "kill" || what == "pause"))
}

// fault counts a fault.
func (c *coverage) fault(what string) {
	c.happens(what)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[what]++
}

// event counts another event.
func (c *coverage) event(what string) {
	c.happens(what)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
}

// result returns the outcome of a run.
func (w *world) result() *Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &Result{
		Plan: *w.plan, Simulated: w.now(), Requests: len(w.oracle.requests), Faults: w.coverage.faults, Checked: w.oracle.checked,
		Pairs: w.coverage.pairs, Sometimes: w.coverage.sometimes, Violations: w.oracle.violations, Instances: w.plan.Instances, Events: w.coverage.events,
	}
}

// logWriter takes the log lines of all instances into the timeline.
type logWriter struct{}

// logs is the world that takes them.
var logs syncWorld

type syncWorld struct {
	mu sync.Mutex
	w  *world
}

func (s *syncWorld) Store(w *world) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w = w
}

func (logWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.simulation", New: func() caddy.Module { return new(logWriter) }}
}

func (logWriter) String() string    { return "simulation" }
func (logWriter) WriterKey() string { return "simulation" }

// OpenWriter implements caddy.WriterOpener.
func (logWriter) OpenWriter() (io.WriteCloser, error) { return logWriter{}, nil }

// Write implements io.Writer.
func (logWriter) Write(b []byte) (int, error) {
	logs.mu.Lock()
	w := logs.w
	logs.mu.Unlock()
	if w != nil {
		w.event("log %s", b)
	}
	return len(b), nil
}

func (logWriter) Close() error { return nil }
