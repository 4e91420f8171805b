package limiter

import (
	"context"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/clock"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/stores"
)

// Target is the key and the cost of a hypothetical request, for [Zone.Peek].
type Target struct {
	// Key is the hash of the key.
	Key stores.Key

	// Parts are the parts of the key; nil: only its hash is known.
	Parts []string

	// Cost is the cost of the request, at least 1.
	Cost int64

	encoded key.Encoded
}

// Target returns the target of a key with these parts.
func (z *Zone) Target(parts []string, cost int64) (t Target, err error) {
	if t.encoded, err = z.Config.Plan.Named(parts); err != nil {
		return t, err
	}
	t.Key, t.Parts, t.Cost = z.store.Hasher.Hash(t.encoded.Bytes()), parts, cost
	return t, nil
}

// Peeked is the hypothetical decision of a zone.
type Peeked struct {
	Zone     *Zone           // the zone
	Outcome  metrics.Outcome // the decision
	Label    string          // the label of the first rule that denies; empty: none
	Shadow   bool            // whether the zone is in shadow
	Override []string        // the key of the override that applies; nil: none

	Key   stores.Key // the hash of the key; zero: nothing would be counted
	Parts []string   // the parts of the key; nil: unknown
	Cost  int64      // the cost that would be charged

	Empty   []string // the parts of the key, as configured, that a described request does not have
	Address string   // what counts instead with key_missing client_ip; empty: the address is unknown

	Checked    bool         // whether the store was asked; if not, what follows is zero
	Mode       stores.Mode  // how the store decided
	Overflowed bool         // whether the key shares a counter with others
	Blocked    int64        // microseconds until the block of the key ends; 0: none
	Rules      []PeekedRule // by rule
	Retry      int64        // microseconds until the zone would admit; 0: now or never
}

// PeekedRule is the hypothetical decision of one rule. Durations are in microseconds.
type PeekedRule struct {
	Label     string            // the rule's name or number
	Limit     int64             // the limit enforced
	Window    int64             // the window of the limit; of a Period, the present one
	Period    algorithms.Period // of the calendar; 0: none
	Remaining int64             // the cost that the rule would still admit
	Used      int64             // the cost that it would admit if it were unused, without Remaining and Held
	Held      int64             // the cost that requests under way hold
	Reset     int64             // the time until the whole limit is left again
	Admits    bool              // whether the rule admits
	Retry     int64             // the time until it admits; algorithms.Never: never
}

// Peek returns what the zone would decide about a request. Nothing is charged.
func (z *Zone) Peek(ctx context.Context, t Target) Peeked {
	a := z.active.Load()
	p := Peeked{Zone: z, Shadow: a.shadow, Key: t.Key, Parts: t.Parts, Cost: t.Cost}
	if a.off {
		p.Outcome = metrics.Skipped
		return p
	}
	set := a.rules
	if o, ok := a.override(&t); ok {
		p.Override = a.describe(&t, o)
		if set = o.set; set == nil { // unlimited
			p.Outcome = metrics.Skipped
			return p
		}
		if set.Blocked >= 0 {
			p.deny(set.Labels[set.Blocked])
			return p
		}
	}
	if len(set.counter.Rules) == 0 && set.counter.InFlight == 0 {
		return p
	}
	group := z.store.Hasher.Group(&t.encoded, t.Key)
	p.peek(ctx, set, &stores.ZoneCheck{Counter: set.counter, Key: t.Key, Tag: t.Key, Group: group, Cost: t.Cost})
	return p
}

// override returns the override of a key. If only the hash of the key is known, overrides
// of several keys cannot be matched.
func (a *activeRules) override(t *Target) (*override, bool) {
	if len(t.encoded.Bytes()) == 0 {
		if a.exceptions != nil {
			if o, ok := a.exceptions.find((*key.Index[*override]).Exact, t.Key); ok {
				return o, true
			}
		}
		return a.keys.Exact(t.Key)
	}
	return a.find(&t.encoded, t.Key)
}

// describe returns the key of the override that applies to a target.
func (a *activeRules) describe(t *Target, o *override) []string {
	if t.Parts == nil || o.checked.Exception != nil {
		return o.checked.Key
	}
	return a.keys.Describe(&t.encoded, t.Key, t.Parts)
}

// overrideOf returns the key of the override that applies to a key with these parts; nil: none.
func (z *Zone) overrideOf(parts []string) []string {
	a := z.active.Load()
	if t, err := z.Target(parts, 1); err == nil {
		if o, ok := a.override(&t); ok {
			return a.describe(&t, o)
		}
	}
	return nil
}

func (p *Peeked) deny(label string) {
	p.Label, p.Outcome = label, metrics.Denied
	if p.Shadow {
		p.Outcome = metrics.ShadowDenied
	}
}

// peek adds the decision of the zone's store.
func (p *Peeked) peek(ctx context.Context, set *ruleSet, c *stores.ZoneCheck) {
	p.Checked, p.Mode, p.Overflowed = true, stores.Peek(ctx, p.Zone.store.of(c.Tag), c), c.Overflowed
	if c.Block.Until != 0 {
		p.Blocked = c.Results[c.Block.Rule].Retry
	}
	can := true
	for i, res := range c.Results {
		taken := c.Rules[i].Capacity() - res.Remaining
		held := min(c.Held, taken)
		r := PeekedRule{
			Label: set.Labels[i], Limit: c.Rules[i].Limit(), Window: windowAt(c.Rules[i], clock.Now()), Period: set.Specs[i].Period,
			Remaining: res.Remaining, Used: taken - held, Held: held, Reset: res.Reset, Admits: res.Admit,
		}
		if !res.Admit {
			r.Retry = res.Retry
			switch {
			case res.Retry == algorithms.Never:
				can = false
			case res.Held:
				r.Retry = heldRetry.Microseconds()
				fallthrough
			default:
				p.Retry = max(p.Retry, r.Retry)
			}
			if p.Label == "" {
				p.deny(r.Label)
			}
		}
		p.Rules = append(p.Rules, r)
	}
	switch {
	case c.Full && p.Label == "":
		p.deny(labelInFlight)
		p.Retry = max(p.Retry, heldRetry.Microseconds())
	case p.Mode == stores.ModeDeny:
		p.deny(labelStore)
	}
	if p.Label == "" || !can {
		p.Retry = 0
	}
}

// Explain returns what the zones that apply to a request would decide, and the names
// of those that do not apply. Nothing is charged. After an error the zones before it
// are returned.
func (l *Limiter) Explain(ctx context.Context, r *http.Request) (applies []Peeked, others []string, err error) {
	q := l.newRequest(nil, r)
	defer q.release()
	err = q.collect()
	applied := make(map[*Zone]bool)
	for i := range q.zones {
		z := &q.zones[i]
		applied[z.zone] = true
		applies = append(applies, q.explain(ctx, z))
	}
	for _, z := range l.zones {
		if !applied[z] {
			others = append(others, z.Name)
		}
	}
	if l.repeats && !slices.ContainsFunc(applies, Peeked.denies) {
		q.pass()
	}
	return applies, others, err
}

func (p Peeked) denies() bool { return p.Outcome == metrics.Denied }

// Denial returns the error of a request that a zone denies; nil: the handler responds itself.
func (l *Limiter) Denial(r *http.Request, z *Zone) error {
	if z.Respond != nil || isGRPC(r) || inErrorRoute(r) {
		return nil
	}
	return caddyhttp.Error(l.status, l.denial)
}

// explain returns what a zone that applies would decide.
func (q *request) explain(ctx context.Context, z *zoneResult) Peeked {
	plan := z.zone.Config.Plan
	p := Peeked{Zone: z.zone, Shadow: z.shadow, Parts: plan.Describe(q.r)}
	if q.keyed(z) {
		if p.Empty = plan.Empty(p.Parts); p.Empty != nil {
			p.Address = plan.Address(q.r)
		} else {
			p.Override = z.zone.overrideOf(p.Parts)
		}
	}
	switch {
	case z.outcome == metrics.Skipped:
		p.Outcome = metrics.Skipped
	case z.label != "":
		p.deny(z.label)
	case z.rules != nil:
		c := *z.rules
		c.Results = nil // the buffers of the request are not for peeks
		p.Key, p.Cost = c.Key, c.Cost
		p.peek(ctx, z.set, &c)
	}
	return p
}

// keyed reports whether the key of the request matters in a zone that applies: not if the
// zone is off or the request is exempt.
func (q *request) keyed(z *zoneResult) bool {
	if z.outcome != metrics.Skipped {
		return true
	}
	if z.zone.active.Load().off {
		return false
	}
	if len(z.zone.exempt) == 0 {
		return true
	}
	exempt, err := z.zone.exempt.AnyMatchWithError(q.r)
	return err == nil && !exempt
}
