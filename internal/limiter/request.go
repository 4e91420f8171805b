package limiter

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/body"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// request is a request and its decision. Requests are pooled: nothing that outlives the
// handler may refer to one.
type request struct {
	check    stores.Check
	zones    []zoneResult // in order of evaluation: those that enforce, then those in shadow
	enforced int          // how many enforce
	shadows  []shadow     // those to add

	decision

	l *Limiter
	r *http.Request
	w http.ResponseWriter // nil: the request is only described

	asks bool // it only asks: a quota query, or a request of a log; bad costs and limits are not counted (countBad)

	charging openCharge

	stores  []stores.Store  // by zone check; empty if all zones are counted in this process
	key     key.Encoded     // buffer of keys
	results []stores.Result // buffer of the results of zone checks
	text    []byte          // buffer of header values, one at a time

	// The pool keeps requests per processor, so these differ by processor too.
	shard     uint32 // of the counters
	decisions uint32 // of which some are timed
	dice      dice
}

// decision is what is decided about a request beside its zones.
type decision struct {
	verdict verdict
	refuses *zoneResult // the first zone that refuses the request; nil: none does
	mayWait bool        // whether a zone may have it wait: behind older requests, or in a leaky_bucket

	since     time.Duration // when it began to wait, for a rule or a place: max_wait is for both together; 0: it did not
	placeWait time.Duration // how long it waited for places
	overload  int64         // if it is denied for want of a place: us to retry after
}

// room is how many zone checks, and results of them, a new request has room for.
const room = 16

// makeRequest returns a request for the limiter's pool. Each limiter has a pool, because requests
// in it still refer to what belongs to their limiter.
func makeRequest(l *Limiter) *request {
	q := &request{l: l, shard: shards.Add(1), dice: dice(rand.Uint64())} //nolint:gosec // it only samples
	q.zones = make([]zoneResult, 0, min(len(l.zones), room))
	q.check.Zones = make([]stores.ZoneCheck, 0, min(2*len(l.zones), room))
	q.results = make([]stores.Result, 0, room)
	return q
}

var shards atomic.Uint32

// newRequest returns a request, for which the shared stores stay open until its release.
func (l *Limiter) newRequest(w http.ResponseWriter, r *http.Request) *request {
	q, _ := l.requests.Get().(*request)
	if q == nil {
		q = makeRequest(l)
	}
	q.w, q.r = w, r
	q.reset()
	for _, s := range l.kept {
		s.Hold()
	}
	return q
}

// release returns the request to the pool.
func (q *request) release() {
	for _, s := range q.l.kept {
		s.Release()
	}
	q.w, q.r, q.asks = nil, nil, false
	q.l.requests.Put(q)
}

// reset forgets the decision. Zones and their checks are overwritten when they are added.
func (q *request) reset() {
	q.decision = decision{}
	q.check = stores.Check{Zones: q.check.Zones[:0]}
	q.zones, q.shadows, q.stores, q.results = q.zones[:0], q.shadows[:0], q.stores[:0], q.results[:0]
}

// collect adds the zones that apply, with their keys and zone checks: those in shadow last. After an error it has
// added those before.
func (q *request) collect() (err error) {
	for _, z := range q.l.zones {
		if z.repeated && q.hasPassed(z) {
			continue
		}
		if len(z.matchers) > 0 {
			var match bool
			if match, err = z.matchers.AnyMatchWithError(q.r); err != nil {
				break
			}
			if !match {
				continue
			}
		}
		if len(z.exempt) > 0 {
			var match bool
			if match, err = z.exempts(q.r); err != nil {
				break
			}
			if match {
				q.skip(z, nil, skipExempt)
				continue
			}
		}
		if a := z.active.Load(); a.shadow {
			q.shadows = append(q.shadows, shadow{z, a})
		} else {
			q.add(z, a)
		}
	}
	if q.enforced = len(q.zones); len(q.shadows) > 0 {
		q.addShadows()
	}
	return err
}

// result adds the result of a zone.
func (q *request) result(z *Zone, a *activeRules) *zoneResult {
	n := len(q.zones)
	if n == cap(q.zones) {
		q.zones = slices.Grow(q.zones, 1)
	}
	q.zones = q.zones[:n+1]
	res := &q.zones[n]
	spare := res.spare
	*res = zoneResult{} // in place: a literal would be copied
	res.zone, res.active, res.spare = z, a, spare
	return res
}

// Why a request passes a zone uncounted.
const (
	skipExempt    = "exempt"
	skipOff       = "off"
	skipUnlimited = "unlimited"
	skipNoKey     = "no key" // key_missing skip
)

// skip adds a zone in which the request passes uncounted, and why.
func (q *request) skip(z *Zone, a *activeRules, why string) {
	res := q.result(z, a)
	res.outcome, res.skipped = metrics.Skipped, why
}

// deny adds a zone that denies the request regardless of its counts, and why.
func (q *request) deny(z *Zone, a *activeRules, k stores.Key, label string, why metrics.Cause) {
	res := q.result(z, a)
	res.key, res.label, res.cause, res.outcome = k, label, why, metrics.Denied
	q.verdict = refused
}

// denyAlways is like deny for a rule whose limit is 0.
func (q *request) denyAlways(z *Zone, a *activeRules, k stores.Key, set *ruleSet, rule int) {
	q.deny(z, a, k, set.Labels[rule], metrics.CauseRule)
	q.zones[len(q.zones)-1].set = set
}

// add adds a zone that applies.
func (q *request) add(z *Zone, a *activeRules) {
	if a.off() {
		q.skip(z, a, skipOff)
		return
	}
	if z.readsBody {
		body.ReadFields(q.w, q.r, q.l.maxBody, z.Config.Charge.Counts() && config.Unsafe(q.r.Method))
		if z.Config.Charge.Mapped && q.r.Body != nil {
			z.provideFields(q.r, q.l.o.Logger)
		}
	}
	q.key.Reset()
	state, more := z.Config.Plan.Encode(&q.key, q.r)
	if more && state != key.Repeated && !a.shadow {
		z.Config.Plan.KeepFirst(q.r)
	}
	switch state {
	case key.Skipped:
		q.skip(z, a, skipNoKey)
		return
	case key.Rejected:
		q.deny(z, a, stores.Key{}, labelKeyMissing, metrics.CauseMissing)
		return
	case key.Repeated:
		q.deny(z, a, stores.Key{}, labelRepeated, metrics.CauseRepeated)
		return
	}
	k := z.store.Hasher.Hash(q.key.Bytes())
	set := a.rules
	if len(a.overrides) > 0 || set.limits != nil {
		var ok bool
		if set, ok = q.pick(z, a, k); !ok {
			return
		}
	}
	cost, over := z.Config.Charge.Fixed, -1
	if cost <= 0 || set.counter.Estimated { // it depends on the request
		cost, over = q.cost(z, set)
	}
	if over >= 0 && !q.asks {
		q.deny(z, a, k, set.Labels[over], metrics.CauseTooLarge)
		return
	}
	res := q.result(z, a)
	res.apart, res.key, res.set = z.countsApart(a), k, set
	group := z.store.Hasher.Group(&q.key, k)
	q.mayWait = q.mayWait || set.MaxDelay > 0 || set.MaxWait > 0
	if len(set.counter.Rules) > 0 || set.counter.InFlight > 0 {
		res.rules = q.count(res, set.counter, k, group, cost)
	}
	if a.duplicates != nil {
		q.addFingerprint(res, a.duplicates, group)
	}
}

// cost returns what a request costs before its response. over is the index of the first rule whose capacity is below
// what the request, or the configuration, asks to hold, so that it would never admit it; below 0: there is none.
func (q *request) cost(z *Zone, set *ruleSet) (cost int64, over int) {
	c := set.counter
	if over = -1; len(c.Rules) == 0 && c.InFlight == 0 {
		return 1, over
	}
	hold, ok := z.Config.Charge.Cost(q.r)
	if !ok {
		q.countBad(z, metrics.BadCost)
	}
	if !c.Estimated || len(c.Rules) == 0 {
		return hold.Cost, over
	}
	least := c.Rules[0].Capacity()
	for i, r := range c.Rules {
		if least = min(least, r.Capacity()); over < 0 && hold.Asked > r.Capacity() {
			over = i
		}
	}
	return min(hold.Cost+min(hold.Spare, least/10), config.MaxCost), over
}

// countBad counts a bad cost, limit or priority of a request that a client makes, but not of one that only asks. A
// request that has waited was counted before.
func (q *request) countBad(z *Zone, what metrics.Outcome) {
	if q.w != nil && !q.asks && q.since == 0 {
		z.metrics.Count(what, q.shard)
	}
}

// pick returns the rules for a key: an override's, with the limits that the request brings.
// It returns false if no rules decide: the key is unlimited, or its limit is 0.
func (q *request) pick(z *Zone, a *activeRules, k stores.Key) (set *ruleSet, ok bool) {
	set = a.rules
	if o, found := a.find(z, &q.key, k); found {
		if set = o.set; set == nil {
			q.skip(z, a, skipUnlimited)
			return nil, false
		}
		if set.Blocked >= 0 {
			q.denyAlways(z, a, k, set, set.Blocked)
			return nil, false
		}
	}
	if set.limits == nil {
		return set, true
	}
	set, bad, blocked := set.limits.of(q.r)
	if bad {
		q.countBad(z, metrics.BadLimit)
	}
	if blocked >= 0 {
		q.denyAlways(z, a, k, set, blocked)
		return nil, false
	}
	return set, true
}

// provideFields provides the fields of a body as placeholders: for map, which may have a price for
// each model. If the body was not read, map has its default, of which one line a minute tells.
func (z *Zone) provideFields(r *http.Request, logger *zap.Logger) {
	b, lacks := body.Of(r), body.Lacks(r)
	key.Replacer(r).Map(func(name string) (any, bool) {
		field, ok := strings.CutPrefix(name, key.BodyPrefix)
		if !ok || body.CheckName(field) != nil {
			return "", ok
		}
		if lacks != "" && z.common.unreadLog.Next(clock.Now()) {
			logger.Warn("a cost may be wrong: it depends on a field of a body that was not read", zap.String("zone", z.WrittenName()),
				zap.String("field", field), zap.String("reason", lacks), zap.String("advice", "raise max_body, or let the default of map be the highest price"))
		}
		return b.Field(field), true
	})
}

// count adds a zone check of a key, which is the zone's or a fingerprint, and returns it.
func (q *request) count(z *zoneResult, c *stores.Counter, k stores.Key, group uint32, cost int64) *stores.ZoneCheck {
	tag := z.key
	if z.apart {
		k, tag = apartKey(k), apartKey(tag)
	}
	n := len(q.check.Zones)
	if n == cap(q.check.Zones) {
		q.grow()
	}
	q.check.Zones = q.check.Zones[:n+1]
	check := &q.check.Zones[n]
	*check = stores.ZoneCheck{}
	check.Counter, check.Key, check.Tag, check.Group = c, k, tag, group
	check.Cost, check.WantsMore, check.SeesHeld = cost, q.l.headers.draft, z.zone.common.holds.Load()
	if c.Estimated {
		check.CutCost(c.Rules)
	}
	if n, m := len(q.results), len(c.Rules); n+m <= cap(q.results) {
		check.Results = q.results[n : n : n+m]
		q.results = q.results[:n+m]
	}
	if q.l.counted != inProcess {
		q.stores = append(q.stores, z.zone.store.of(tag))
	}
	return check
}

// grow makes room for another zone check. The existing ones move.
func (q *request) grow() {
	q.check.Zones = slices.Grow(q.check.Zones, 1)
	n := 0
	for i := range q.zones {
		for _, check := range [...]**stores.ZoneCheck{&q.zones[i].rules, &q.zones[i].duplicate} {
			if *check != nil {
				*check = &q.check.Zones[n]
				n++
			}
		}
	}
}

// now returns the current time in microseconds: the time of the decision if it was made
// in this process.
func (q *request) now() int64 {
	if q.verdict != refused && q.check.Mode == stores.ModeLocal && q.l.counted != inStores && q.check.Now != 0 {
		return q.check.Now
	}
	return clock.Now()
}
