package simulation

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// request is a request and what became of it. Times are since the run began.
type request struct {
	site    int
	key     string
	cost    int64
	status  int // of its response
	method  string
	path    string
	holds   time.Duration // how long it is answered
	tokens  int64         // of settle
	panics  bool
	cancel  time.Duration // after which the client goes away; 0: it does not
	left    bool          // whether the client had gone when the handler behind returned
	after   *request      // the denial whose Retry-After it has waited for
	process string

	instance string
	start    time.Duration
	decided  time.Duration
	answered time.Duration // when the handler behind returned
	end      time.Duration
	admitted bool
	lost     bool // its instance was killed meanwhile
	answer   int
	retry    int64 // Retry-After
	limit    string
}

// counts says whether the response is one that count_status 4xx charges. Who leaves before it is
// charged, too.
func (q *request) counts() bool { return q.left || q.status/100 == 4 && !q.panics }

func (q *request) String() string {
	what := "denied"
	if q.admitted {
		what = "admitted"
	}
	text := fmt.Sprintf("%s site %d key %s cost %d: %s %d after %v", q.instance, q.site, q.key, q.cost, what, q.answer, q.decided-q.start)
	if q.retry > 0 {
		text += fmt.Sprintf(", retry %d", q.retry)
	}
	if q.lost {
		text += ", lost"
	}
	return text
}

// span is a time during which promises are weaker.
type span struct {
	what     string
	from, to time.Duration // to: without the time to recover
	instance int
	away, loses, stepped,
	deaf, ends bool
	of             string // the instance that ends
	answers, whole bool   // see faultKind
	feigns         bool   // likewise
	site           int    // whose rules changed; -1: none
	key            string
	open           bool
	done           bool // of a reset: it has succeeded
}

// recovery is the longest that an instance takes to share again after a fault: a dial that
// is not answered, a probe, the hold and the ramp.
const recovery = 5 * time.Second

// oracle knows the promises, and what the faults so far allow. It knows nothing of how the
// plugin keeps them.
type oracle struct {
	w *world

	mu         sync.Mutex
	requests   []*request
	spans      []*span
	places     map[string][]*request    // in flight, by site and key
	up         map[string]bool          // by process, store and node
	went       map[string]time.Duration // when an instance's store, or a node of it, went away
	comebacks  []comeback
	moves      []storeMove
	told       map[string]int
	checked    map[string]int
	violations []Violation
	limits     map[int][][]rule // all rules that a site has had
	lives      []live
	resets     []reset
	lack       map[int]lack // by site
	timely     []*request   // that Redis had time to decide, and nothing else happened
}

// storeMove is when a site was moved to another store.
type storeMove struct {
	site int
	at   time.Duration
}

// comeback is the time in which an instance was without a store.
type comeback struct {
	instance string
	went, at time.Duration
}

// live is the number of instances from a time on.
type live struct {
	from time.Duration
	n    int
}

func newOracle(w *world) *oracle {
	o := &oracle{
		w: w, places: make(map[string][]*request), up: make(map[string]bool), went: make(map[string]time.Duration), told: make(map[string]int),
		checked: make(map[string]int), lack: make(map[int]lack), limits: make(map[int][][]rule), lives: []live{{0, w.plan.Instances}},
	}
	for i := range w.plan.setup.sites {
		one := &w.plan.setup.sites[i]
		if o.limits[i] = [][]rule{one.Rules}; len(one.Listed) > 0 {
			o.limits[i] = append(o.limits[i], one.Listed)
		}
	}
	return o
}

// begin notes the beginning of a fault.
func (o *oracle) begin(f *step, k *faultKind) {
	s := &span{
		what: f.what, from: o.w.now(), instance: f.instance, away: k.away, loses: k.loses, stepped: k.stepped || k.moves && o.w.redis.clocksDiffer(),
		deaf: k.deaf, answers: k.answers && (!k.retried || o.w.redis.topology != clustered), whole: k.whole, feigns: k.feigns, site: -1, open: true,
	}
	if f.what == "script-flush" && !o.w.plan.setup.way.within(openTrips) {
		s.away, s.answers = true, true
	}
	o.add(s)
}

func (o *oracle) add(s *span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.to = s.from
	o.spans = append(o.spans, s)
}

// end notes the end of a fault.
func (o *oracle) end(f *step, _ *faultKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans {
		if s.open && s.what == f.what && s.instance == f.instance {
			s.open, s.to = false, o.w.now()
			if s.what == "stall" {
				o.checked["stalls"]++
			}
			return
		}
	}
}

// ends notes the end of an instance.
func (o *oracle) ends(in *instance, what string) {
	o.add(&span{what: what, from: o.w.now(), instance: -1, ends: true, of: in.name, site: -1})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lives = append(o.lives, live{o.w.now(), o.lives[len(o.lives)-1].n - 1})
	if what == "die" {
		for k, list := range o.places {
			o.places[k] = slices.DeleteFunc(list, func(q *request) bool { return q.instance == in.name })
		}
	}
}

// starts notes the start of an instance.
func (o *oracle) starts(*instance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lives = append(o.lives, live{o.w.now(), o.lives[len(o.lives)-1].n + 1})
}

// How the rules of a site are changed.
const (
	byReload   = "changed"
	byDocument = "document"
	byPrefix   = "prefix" // nothing changes, and what was used is forgotten
	byList     = "list"   // of a key: what was used is kept
)

// changed notes that the rules of a site begin to change, by a reload or by a document. What a
// document changes lasts to the end: instances learn of it at different times, or not at all.
func (o *oracle) changed(site int, rules []rule, by string) {
	o.add(&span{what: by, from: o.w.now(), instance: -1, site: site, open: true})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limits[site] = append(o.limits[site], rules)
}

// moved notes that a site is moved to another store.
func (o *oracle) moved(site int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moves = append(o.moves, storeMove{site, o.w.now()})
}

// uncounted says whether a site was moved to a store that an outage kept from counting the
// instances: each enforces the limits in full until it is over. o.mu is held.
func (o *oracle) uncounted(site int, away []*span) bool {
	const counting = 15 * time.Second // all instances are reloaded, one after another
	return slices.ContainsFunc(o.moves, func(m storeMove) bool {
		return m.site == site && slices.ContainsFunc(away, func(s *span) bool {
			return s.from <= m.at+counting && (s.open || s.to+recovery >= m.at)
		})
	})
}

// changedEverywhere notes that all instances have been reloaded with the rules of a site.
func (o *oracle) changedEverywhere(site int, by string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans {
		if s.site == site && s.what == by {
			s.open, s.to = false, o.w.now()
		}
	}
}

// reset notes that a key begins to be reset. The function that it returns notes the end.
func (o *oracle) reset(site int, key string) (done func(succeeded bool)) {
	s := &span{what: "reset", from: o.w.now(), instance: -1, site: site, key: key}
	o.add(s)
	return func(succeeded bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		s.to, s.done = o.w.now(), succeeded
	}
}

func (o *oracle) violate(promise, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.violateLocked(promise, what, nil)
}

func (o *oracle) violateLocked(promise, what string, about *request) {
	if len(o.violations) >= 20 {
		return
	}
	if about != nil {
		what += fmt.Sprintf(" (at %v: %s)", about.decided, about)
	}
	o.violations = append(o.violations, Violation{Promise: promise, What: what, Lines: o.lines(about)})
}

// lines returns the part of the timeline that concerns a request. o.mu is held.
func (o *oracle) lines(about *request) (list []string) {
	o.w.mu.Lock()
	all := slices.Clone(o.w.timeline)
	o.w.mu.Unlock()
	from, to := time.Duration(0), o.w.now()
	if about != nil {
		from = about.start - 45*time.Second
		for _, q := range o.requests {
			if q.site == about.site && q.key == about.key {
				all = append(all, line{q.decided, q.String()})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return int(a.at - b.at) })
	for _, l := range all {
		if l.at >= from && l.at <= to {
			list = append(list, fmt.Sprintf("%12.6f %s", l.at.Seconds(), l.text))
		}
	}
	return list
}

// touches returns the spans that overlap a time, with the time to recover. o.mu is held.
func (o *oracle) touches(from, to time.Duration, which func(s *span) bool) (list []*span) {
	for _, s := range o.spans {
		if which(s) && s.from <= to && o.until(s) >= from {
			list = append(list, s)
		}
	}
	return list
}

// until returns until when a span has an effect. Of a clock that was set in an outage instances
// hear when that is over. o.mu is held.
func (o *oracle) until(s *span) time.Duration {
	switch {
	case s.open:
		return o.w.now()
	case s.away:
		return s.to + recovery
	case !s.stepped:
		return s.to
	}
	end := s.to
	for _, a := range o.spans { // in the order in which they began
		if a.away && a.from <= end {
			end = max(end, o.until(a))
		}
	}
	return end
}

// lapse is the least time after which Redis forgets the permits of an instance that it does
// not hear of: renewals are 10 s apart, and permits lapse 30 s after the last.
const lapse = 19 * time.Second

// lasts returns how long a span has lasted.
func (o *oracle) lasts(s *span) time.Duration {
	if s.open {
		return o.w.now() - s.from
	}
	return s.to - s.from
}

func isAway(s *span) bool     { return s.away }
func isAnything(s *span) bool { return s.what != farAcross }
func isLoss(s *span) bool     { return s.loses }
func isEnd(s *span) bool      { return s.ends }
func isStep(s *span) bool     { return s.stepped }

// calm says that nothing has happened that weakens a promise. o.mu is held.
func (o *oracle) calm(from, to time.Duration) bool { return len(o.touches(from, to, isAnything)) == 0 }

// shares is the number of instances among which the limits were divided at least.
func (o *oracle) shares(from, to time.Duration) int {
	least, before := 1000, 0
	for _, l := range o.lives {
		if l.from < from-20*time.Second {
			before = l.n
			continue
		}
		if l.from <= to {
			least = min(least, l.n)
		}
	}
	if before > 0 {
		least = min(least, before)
	}
	cut := make(map[int]bool)
	for _, s := range o.touches(from-15*time.Second, to, isAway) {
		if s.instance >= 0 {
			cut[s.instance] = true
		}
	}
	return max(1, least-len(cut))
}

// admitted is called when the handler behind begins.
func (o *oracle) admitted(_ *instance, q *request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := &o.w.plan.setup.sites[q.site]
	if one.Places == 0 || q.process != "" && o.gone(q) {
		return
	}
	id := fmt.Sprint(q.site, q.key)
	o.places[id] = append(o.places[id], q)
	o.checked["places"]++
	n, first := int64(len(o.places[id])), o.places[id][0].start
	forgotten := func(s *span) bool { return s.what == byPrefix && s.site == q.site }
	if n > one.Places && o.placesKnown(q.start, o.w.now()) && len(o.touches(first-recovery, o.w.now(), forgotten)) == 0 {
		o.violateLocked("places", fmt.Sprintf("%d requests of site %d key %s are in flight, %d may be, and Redis knows of all: %s", n, q.site, q.key, one.Places, holders(o.places[id])), q)
	}
	limit := one.Places
	if away := o.touches(first-recovery, o.w.now(), isAway); len(away) > 0 {
		if o.uncounted(q.site, away) {
			return
		}
		limit += max(one.Places, int64(len(o.w.instances)))
	}
	// Redis has forgotten what was held: a loss, or an outage in which permits lapse.
	forgets := o.touches(first-recovery, o.w.now(), func(s *span) bool {
		return s.loses || s.stepped || s.away && o.lasts(s) > lapse || forgotten(s)
	})
	limit += int64(len(forgets)) * one.Places
	if n > limit {
		o.violateLocked("places", fmt.Sprintf("%d requests of site %d key %s are in flight, %d may be: %s", n, q.site, q.key, limit, holders(o.places[id])), q)
	}
}

// holders says which processes hold places, and since when.
func holders(list []*request) string {
	var text []string
	for _, q := range list {
		text = append(text, fmt.Sprintf("%s since %v", q.process, q.decided))
	}
	return strings.Join(text, ", ")
}

// gone says whether the process of a request was killed.
func (o *oracle) gone(q *request) bool {
	for _, in := range o.w.instances {
		if in.name == q.instance {
			return in.isDead(q.process)
		}
	}
	return false
}

// released is called when the handler behind returns.
func (o *oracle) released(q *request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q.answered = o.w.now()
	id := fmt.Sprint(q.site, q.key)
	o.places[id] = slices.DeleteFunc(o.places[id], func(p *request) bool { return p == q })
}

// record takes a request that has ended.
func (o *oracle) record(q *request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests = append(o.requests, q)
	if q.lost {
		return
	}
	one := &o.w.plan.setup.sites[q.site]
	o.checked["wait"]++
	timeout := o.w.plan.setup.way.timeout
	longest := timeout + one.MaxWait
	if one.Rules[0].Algorithm == "leaky_bucket" && !one.Rules[0].NoDelay {
		longest += time.Duration(one.Rules[0].burst()) * one.Rules[0].Window / time.Duration(one.Rules[0].Limit)
	}
	if one.MaxWait > 0 {
		longest += timeout
	}
	if wait := q.decided - q.start; wait > longest {
		o.violateLocked("no answer later than timeout", fmt.Sprintf("%v, want at most %v", wait, longest), q)
	}
	o.inTime(q, longest)
	o.checked["5xx"]++
	if q.answer >= 500 && !q.panics && (one.Store != "denying" || q.answer != http.StatusServiceUnavailable) {
		o.violateLocked("5xx only by on_failure deny", fmt.Sprint(q.answer), q)
	}
	if !q.admitted && q.cancel == 0 && q.answer != http.StatusServiceUnavailable && one.Kind.summed() {
		o.violateLocked("a request within its limit is admitted", fmt.Sprint(q.answer), q)
	}
	if p := q.after; p != nil && !q.lost {
		back := 2*one.Rules[0].Window + one.Rules[0].Block
		if o.calm(p.start-back-recovery, q.end) {
			o.checked["Retry-After"]++
			if !q.admitted {
				o.violateLocked("Retry-After is true", fmt.Sprintf("denied after waiting for %d s", p.retry), q)
			}
		}
	}
}
