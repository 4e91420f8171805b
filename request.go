package diana

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/topk"
)

// request is one request on its way through the zones of one handler.
type request struct {
	h   *Handler
	r   *http.Request
	ask stores.Check

	uses     []use          // the zones that apply, in order
	stores   []stores.Store // the store of each item of the ask
	outright *use           // the first zone that denies whatever is counted
	denial   *denial        // nil: it passes
	told     *headers       // of a denial; nil: none
	key      built
	waited   bool
	gone     bool // the client went away meanwhile

	results []stores.Result // room for the items' results
	text    []byte          // room for what headers say

	lane    uint32 // of the tallies: the pool keeps requests by processor
	decided uint32 // decisions so far, to time some of them
	dice    topk.Dice
}

// use is one zone's part in a request.
type use struct {
	z       *zone
	shadow  bool // as it was in force when the request came
	key     stores.Key
	set     *ruleSet // the rules that apply: the zone's or an override's
	item    int      // of the rules in the ask; -1: none
	twin    int      // of the memory of duplicates in the ask; -1: none
	label   string   // of the rule that denies outright
	outcome outcome
}

// outcome is what a zone decided.
type outcome uint8

const (
	allowed outcome = iota
	denied
	delayed
	skipped
	shadowDenied
	refusedElsewhere
	numOutcomes
)

// String is the outcome as it stands in metrics and placeholders.
func (o outcome) String() string {
	return [...]string{"allowed", "denied", "delayed", "skipped", "shadow_denied", "refused_elsewhere"}[o]
}

// Names of what denies beside the rules.
const (
	ruleInFlight   = "in_flight"
	ruleDuplicates = "prevent_duplicates"
	ruleKeyMissing = "key_missing"
	ruleStore      = "store" // it is away, and on_failure is deny
)

var requests = sync.Pool{New: func() any {
	return &request{results: make([]stores.Result, 0, 16), key: built{b: make([]byte, 0, 256)}, lane: lanes.Add(1), dice: topk.Dice(rand.Uint64())} //nolint:gosec // it only samples
}}

var lanes atomic.Uint32

func newRequest(h *Handler, r *http.Request) *request {
	q, _ := requests.Get().(*request)
	q.h, q.r = h, r
	q.ask.Brief = h.headers == headersOff && h.unread
	return q
}

// maxKept bounds what a pooled request keeps of a long key.
const maxKept = 4096

// release gives the request back. Nothing that outlives the handler refers to it.
func (q *request) release() {
	q.uses, q.ask.Zones, q.stores = empty(q.uses), empty(q.ask.Zones), empty(q.stores)
	q.results = q.results[:0]
	q.ask = stores.Check{Zones: q.ask.Zones}
	if cap(q.key.b) > maxKept {
		q.key.b = make([]byte, 0, 256)
	}
	q.h, q.r, q.outright, q.denial, q.told, q.waited, q.gone = nil, nil, nil, nil, nil, false, false
	requests.Put(q)
}

// empty forgets what is in a list. One element after the other: for the few that
// there are, clear would take longer to find out whether the garbage collector
// has to hear of it.
func empty[T any](list []T) []T {
	for i := range list {
		e := &list[i]
		*e = *new(T)
	}
	return list[:0]
}

// another appends a zero element to a list of which nothing was left behind its end
// but zeros.
func another[T any](list []T) ([]T, *T) {
	n := len(list)
	if n < cap(list) {
		list = list[:n+1]
	} else {
		list = append(list, *new(T))
	}
	return list, &list[n]
}

// collect finds the zones that apply and what they count by.
func (q *request) collect() error {
	for _, z := range q.h.zones {
		if len(z.matchers) > 0 {
			match, err := z.matchers.AnyMatchWithError(q.r)
			if err != nil {
				return err
			}
			if !match {
				continue
			}
		}
		if len(z.exempt) > 0 {
			match, err := z.exempt.AnyMatchWithError(q.r)
			if err != nil {
				return err
			}
			if match {
				q.skip(z)
				continue
			}
		}
		q.add(z)
	}
	return nil
}

func (q *request) skip(z *zone) {
	q.uses = append(q.uses, use{z: z, item: -1, twin: -1, outcome: skipped})
}

// add enters a zone into the ask.
func (q *request) add(z *zone) {
	t := z.terms.Load()
	if t.off {
		q.skip(z)
		return
	}
	q.key.b, q.key.group = q.key.b[:0], netip.Addr{}
	switch z.key.build(&q.key, q.r) {
	case keySkip:
		q.skip(z)
		return
	case keyDenied:
		q.deny(z, t, ruleKeyMissing)
		return
	}
	key := z.hasher.key(q.key.b)
	set := t.rules
	if v := t.overrides.find(&q.key, key, len(z.key.parts)); v != nil {
		if v.unlimited {
			q.skip(z)
			return
		}
		if set = v.set; set.blocked >= 0 {
			q.deny(z, t, set.labels[set.blocked])
			q.uses[len(q.uses)-1].key = key
			return
		}
	}
	var u *use
	q.uses, u = another(q.uses)
	u.z, u.shadow, u.key, u.set, u.item, u.twin = z, t.shadow, key, set, -1, -1
	group := z.hasher.groupOf(&q.key, key)
	if len(set.counter.Rules) > 0 || set.counter.InFlight > 0 {
		u.item = q.count(u, set.counter, key, key, group, z.costOf(q.r))
	}
	if t.duplicates != nil {
		if twin, ok := z.duplicateKey(q, key); ok {
			u.twin = q.count(u, t.duplicates.counter, twin, key, group, 1)
		}
	}
}

// deny denies a request whatever is counted.
func (q *request) deny(z *zone, t *terms, label string) {
	q.uses = append(q.uses, use{z: z, shadow: t.shadow, item: -1, twin: -1, label: label, outcome: denied})
	if t.shadow {
		q.uses[len(q.uses)-1].outcome = shadowDenied
	}
}

// count enters an item into the ask and returns its number.
func (q *request) count(u *use, c *stores.Counter, key, tag stores.Key, group uint32, cost int64) int {
	var it *stores.ZoneCheck
	q.ask.Zones, it = another(q.ask.Zones)
	it.Counter, it.Key, it.Tag, it.Group, it.Cost, it.Shadow = c, key, tag, group, cost, u.shadow
	if n, m := len(q.results), len(c.Rules); n+m <= cap(q.results) {
		it.Results = q.results[n : n : n+m]
		q.results = q.results[:n+m]
	}
	store := u.z.store
	if u.z.clustered() {
		store = u.z.store.(*redis.Store).At(tag) //nolint:forcetypeassert // clustered looked
	}
	q.stores = append(q.stores, store)
	return len(q.ask.Zones) - 1
}

// costOf is what a request takes from the zone's rules. What is no number of at
// least 1 counts as 1.
func (z *zone) costOf(r *http.Request) int64 {
	if z.fixed > 0 {
		return z.fixed
	}
	n, ok := amount(z.cost, r)
	if !ok || n < 1 {
		z.metrics.countBadCost()
		return 1
	}
	return n
}

// amount reads a number from a template.
func amount(t template, r *http.Request) (int64, bool) {
	var text string
	if t.single() {
		text = t.value(r)
	} else {
		text = string(t.append(nil, r))
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil // n is the nearest number there is
	}
	return min(n, maxCost), err == nil
}
