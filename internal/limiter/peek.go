package limiter

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
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

// Key is the state of a key in a zone, and what the zone would decide about its next request: the
// answer of GET and DELETE /rate_limit/zones/<zone>/key. Durations are in seconds.
type Key struct {
	Zone     string    `json:"zone"`                  // name of the zone
	Key      string    `json:"key"`                   // hash, as in the names of keys in Redis
	Parts    []string  `json:"parts,omitempty"`       // parts, if known
	Name     string    `json:"name,omitempty"`        // parts as one text, if only that is known; GET /rate_limit/keys only
	Override []string  `json:"override,omitempty"`    // key of the override that applies, if any
	Except   bool      `json:"exception,omitempty"`   // whether that is an exception, as block and allow make them
	Until    time.Time `json:"until,omitzero"`        // when the exception ends; none: never
	Decision string    `json:"decision"`              // about the next request
	Why      string    `json:"why,omitempty"`         // why the request is skipped: off, exempt, unlimited or key_missing
	Rule     string    `json:"rule,omitempty"`        // first rule that denies
	Cause    string    `json:"cause,omitempty"`       // why it denies, or other_zone: the zone admits the request, and another does not; as in logs
	Mode     string    `json:"mode,omitempty"`        // local, shared, fallback, allow or deny
	Cost     int64     `json:"cost,omitempty"`        // cost of the next request
	Unit     string    `json:"unit,omitempty"`        // of the numbers of its rules: requests, tokens or units
	Shadow   bool      `json:"shadow,omitempty"`      // whether a denial is only reported
	RetryIn  *float64  `json:"retry_after,omitempty"` // time until the zone admits; absent: now or never
	Blocked  float64   `json:"blocked,omitempty"`     // time until the block of the key ends; absent: it is not blocked
	Rules    []KeyRule `json:"rules"`                 // by rule

	// Whether the denial of the next request would start a block: its retry_after is then the
	// length of the block.
	StartsBlock bool `json:"starts_block,omitempty"`

	// What in_flight adaptive would do about the request; absent: the zone has none, or the
	// request is not known. POST /rate_limit/explain only.
	Place *KeyPlace `json:"place,omitempty"`

	Reset string `json:"reset,omitempty"` // DELETE only: everywhere, in the store if other instances were not told, or in this instance
	Error string `json:"error,omitempty"` // why the key was not reset everywhere

	// Parts of the zone's key, as configured, that the request does not have. POST
	// /rate_limit/explain only, as are the two that follow.
	Missing []string `json:"missing,omitempty"`

	// What the zone does then: its key_missing. Absent: no part is missing.
	KeyMissing string `json:"key_missing,omitempty"`

	// The client's address, or its prefix, that is counted instead of parts with
	// key_missing client_ip. Absent: it is unknown.
	Address string `json:"address,omitempty"`

	// The zone is full of keys in this process, and this key shares a counter with
	// others. A shared counter is not reset: it cannot be attributed to one key.
	Overflowed bool `json:"shared_counter,omitempty"`

	zone *Zone
}

// KeyRule is the state of a key in one rule.
type KeyRule struct {
	Name      string   `json:"name"`                  // name or number
	Limit     int64    `json:"limit"`                 // limit enforced
	Window    float64  `json:"window"`                // window of the limit; of a period, the present one
	Period    string   `json:"period,omitempty"`      // of the calendar: day, week, month or year; absent: none
	Used      int64    `json:"used"`                  // cost that counts
	Held      int64    `json:"held,omitempty"`        // cost that requests under way hold; absent: none
	Remaining int64    `json:"remaining"`             // cost that would still be admitted
	Reset     float64  `json:"reset_after"`           // time until the whole limit is left again
	Admits    bool     `json:"admits"`                // whether the next request is admitted
	RetryIn   *float64 `json:"retry_after,omitempty"` // time until it is; absent: now or never
}

// newKey returns a key about which nothing is decided yet: its requests pass.
func newKey(z *Zone, shadow bool, parts []string) Key {
	return Key{zone: z, Zone: z.Name, Shadow: shadow, Parts: parts, Decision: metrics.Allowed.String(), Rules: []KeyRule{}}
}

// skip notes that a request passes uncounted, and why.
func (p *Key) skip(why string) { p.Decision, p.Why = metrics.Skipped.String(), why }

// count notes under which key a request would be counted, and its cost.
func (p *Key) count(k stores.Key, cost int64) { p.Key, p.Cost = k.String(), cost }

// Peek returns what the zone would decide about a request. Nothing is charged.
func (z *Zone) Peek(ctx context.Context, t Target) Key {
	a := z.active.Load()
	p := newKey(z, a.shadow, t.Parts)
	p.count(t.Key, t.Cost)
	if a.off() {
		p.skip(skipOff)
		return p
	}
	set := a.rules
	if o, ok := a.find(z, &t.encoded, t.Key); ok {
		p.overridden(a, &t, o)
		if set = o.set; set == nil { // unlimited
			p.skip(skipUnlimited)
			return p
		}
		if set.Blocked >= 0 {
			p.denyAlways(z, set, set.Labels[set.Blocked])
			return p
		}
	}
	if len(set.counter.Rules) == 0 && set.counter.InFlight == 0 {
		return p
	}
	group := z.store.Hasher.Group(&t.encoded, t.Key)
	p.peek(ctx, z, set, &stores.ZoneCheck{Counter: set.counter, Subject: stores.Subject{Key: t.Key, Tag: t.Key, Group: group}, Cost: t.Cost, Holding: stores.Holding{SeesHeld: z.common.holds.Load()}})
	return p
}

// overridden notes the override that applies to a target.
func (p *Key) overridden(a *activeRules, t *Target, o *override) {
	x := o.checked.Exception
	if p.Override = o.checked.Key; x != nil {
		p.Except, p.Until = true, x.Until
	} else if t.Parts != nil {
		p.Override = a.keys.Describe(&t.encoded, t.Key, t.Parts)
	}
}

// overrideOf notes the override that applies to a key with the parts of p, if any.
func (z *Zone) overrideOf(p *Key) {
	a := z.active.Load()
	if t, err := z.Target(p.Parts, 1); err == nil {
		if o, ok := a.find(z, &t.encoded, t.Key); ok {
			p.overridden(a, &t, o)
		}
	}
}

func (p *Key) deny(label string, why metrics.Cause) {
	p.Rule, p.Cause, p.Decision = label, why.String(), metrics.Denied.String()
	if p.Shadow {
		p.Decision = metrics.ShadowDenied.String()
	}
}

// denyWithoutStore notes that the store is unavailable, and on_failure is deny.
func (p *Key) denyWithoutStore() {
	p.deny(labelStore, metrics.CauseStore)
	p.RetryIn = new(InSeconds(second))
}

// denyAlways adds a rule whose limit is 0, for this key or this request.
func (p *Key) denyAlways(z *Zone, set *ruleSet, label string) {
	rule := set.Zero
	if rule == nil {
		rule = set.From[slices.Index(set.Labels, label)]
	}
	p.deny(label, metrics.CauseRule)
	p.Unit = z.Unit()
	p.Rules = append(p.Rules, KeyRule{Name: label, Window: rule.Window.Duration.Seconds(), Period: rule.Window.Period.String()})
}

// peek adds the decision of the zone's store.
func (p *Key) peek(ctx context.Context, z *Zone, set *ruleSet, c *stores.ZoneCheck) {
	mode, now := stores.Peek(ctx, z.store.of(c.Tag), c)
	p.Mode, p.Unit, p.Overflowed = mode.String(), z.Unit(), c.Overflowed
	switch {
	case len(c.Results) == 0: // nobody decided
	case c.Block.Until != 0:
		p.Blocked = InSeconds(c.Results[c.Block.Rule].Retry)
	case mode != stores.ModeFallback && !c.Overflowed: // which start no block
		if b, starts := c.StartedBlock(0); starts {
			p.StartsBlock, c.Results[b.Rule].Retry = true, b.Span
		}
	}
	of := c // whose numbers are what is used
	if c.Blocked() {
		states := &stores.ZoneCheck{Counter: c.Counter, Subject: c.Subject, Cost: c.Cost, Holding: stores.Holding{SeesHeld: c.SeesHeld}, IgnoreBlock: true}
		if stores.Peek(ctx, z.store.of(c.Tag), states); len(states.Results) == len(c.Results) { // fewer: the store went away meanwhile
			of = states
		}
	}
	for i, res := range c.Results {
		taken := of.Rules[i].Capacity() - of.Results[i].Remaining
		held := min(of.Held, taken)
		r := KeyRule{
			Name: set.Labels[i], Limit: c.Rules[i].Limit(), Window: InSeconds(windowAt(c.Rules[i], now)), Period: set.Specs[i].Period.String(),
			Remaining: res.Remaining, Used: taken - held, Held: held, Reset: InSeconds(res.Reset), Admits: res.Admit,
		}
		if !res.Admit {
			if res.Held && res.Retry != algorithms.Never {
				res.Retry = heldRetry.Microseconds()
			}
			if res.Retry != algorithms.Never {
				r.RetryIn = new(InSeconds(res.Retry))
			}
			if p.Rule == "" {
				p.deny(r.Name, causeOf(c, i))
			}
		}
		p.Rules = append(p.Rules, r)
	}
	switch {
	case c.Full && p.Rule == "":
		p.deny(labelInFlight, causeFull(c))
	case mode == stores.ModeDeny:
		p.denyWithoutStore()
	}
	if retry := retryOf(waitOf(c)); p.Rule != "" && retry > 0 {
		p.RetryIn = new(InSeconds(retry))
	}
}

// InSeconds returns microseconds in seconds.
func InSeconds(us int64) float64 { return float64(us) / 1e6 }

// Explain returns what the zones that apply to a request would decide, and the names of those that do not apply.
// If one denies it, denies is the one of them that a denial names, and err is the error that the handler returns; nil: it
// responds itself. Nothing is charged. After another error the zones before it are returned.
func (l *Limiter) Explain(ctx context.Context, r *http.Request) (applies []Key, others []string, denies *Key, err error) {
	q := l.newRequest(nil, r)
	defer q.release()
	err = q.collect()
	applied := make(map[*Zone]*zoneResult)
	for i := range q.zones {
		applied[q.zones[i].zone] = &q.zones[i]
	}
	var regardless *zoneResult // of its counts, it denies: the others are not asked
	if q.verdict == refused {
		regardless = q.firstDenial()
	}
	var full *Key // the first zone that has no place
	applies = make([]Key, 0, len(l.zones))
	for _, z := range l.zones {
		res := applied[z]
		if res == nil {
			others = append(others, z.Name)
			continue
		}
		applies = append(applies, res.explain(ctx, r))
		k := &applies[len(applies)-1]
		place, lacks := res.placeOf(q)
		if k.Place = place; lacks && full == nil {
			full = k
		}
		if denies == nil && k.Decision == metrics.Denied.String() && (regardless == nil || res == regardless) {
			denies = k
		}
	}
	v, away := denied, slices.IndexFunc(applies, func(k Key) bool { return k.Rule == labelStore && !k.Shadow })
	switch {
	case away >= 0 && regardless == nil:
		denies, v = &applies[away], unavailable
	case denies == nil && full != nil: // rules deny first
		full.deny(labelInFlight, metrics.CauseOverload)
		full.RetryIn, denies, v = new(heldRetry.Seconds()), full, overloaded
	}
	for i := range applies {
		if denies != nil && applies[i].Decision == metrics.Allowed.String() {
			applies[i].Cause = metrics.CauseOtherZone.String()
		}
	}
	if l.repeats && denies == nil {
		q.notePassed()
	}
	if err != nil || denies == nil {
		return applies, others, nil, err
	}
	return applies, others, denies, l.denialOf(r, denies.zone, v)
}

// explain returns what a zone that applies would decide.
func (z *zoneResult) explain(ctx context.Context, r *http.Request) Key {
	plan := z.zone.Config.Plan
	p := newKey(z.zone, z.active != nil && z.active.shadow, plan.Describe(r))
	if z.skipped != skipOff && z.skipped != skipExempt { // the key matters
		if p.Missing = plan.Empty(p.Parts); p.Missing != nil {
			p.KeyMissing, p.Address = plan.Missing, plan.Address(r)
		} else {
			z.zone.overrideOf(&p)
		}
	}
	switch {
	case z.outcome == metrics.Skipped:
		if p.skip(z.skipped); z.skipped == skipNoKey {
			p.Why = "key_missing"
		}
	case z.label != "" && z.set != nil:
		p.denyAlways(z.zone, z.set, z.label)
	case z.label != "":
		p.deny(z.label, z.cause)
	case z.rules != nil:
		c := *z.rules
		c.Results = nil // the buffers of the request are not for peeks
		p.count(z.key, c.Cost)
		p.peek(ctx, z.zone, z.set, &c)
	}
	if z.duplicate != nil {
		p.peekDuplicate(ctx, z)
	}
	return p
}
