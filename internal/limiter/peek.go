package limiter

import (
	"context"
	"net/http"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/stores"
)

// Target is a key of a zone and a cost, for which a zone can be asked what it would
// decide.
type Target struct {
	// Key is the hash of the key.
	Key stores.Key

	// Parts are the parts of the key; nil: only its hash is known.
	Parts []string

	// Cost is what the request would cost, at least 1.
	Cost int64

	encoded key.Encoded
}

// Target returns the key that has these parts.
func (z *Zone) Target(parts []string, cost int64) (t Target, err error) {
	if t.encoded, err = z.Config.Plan.Named(parts); err != nil {
		return t, err
	}
	t.Key, t.Parts, t.Cost = z.store.Hasher.Hash(t.encoded.Bytes()), parts, cost
	return t, nil
}

// Peeked is what a zone would decide.
type Peeked struct {
	Zone     *Zone           // the zone
	Outcome  metrics.Outcome // what it would decide
	Label    string          // the first rule that denies
	Shadow   bool            // a denial would only be reported
	Override []string        // the key of the override that applies; nil: none

	Key   stores.Key // the hash of what would be counted; zero: nothing would
	Parts []string   // its parts, if they are known
	Cost  int64      // what would be charged

	Checked    bool         // the zone's store was asked; false: what follows is zero
	Mode       stores.Mode  // who decided
	Overflowed bool         // the key shares a counter with others
	Rules      []PeekedRule // one by one
	Retry      int64        // microseconds after which the zone would admit; 0: it does, or never would
}

// PeekedRule is what one rule would decide. Durations are microseconds.
type PeekedRule struct {
	Label     string // the rule's name or number
	Limit     int64  // that is enforced
	Window    int64  // of the limit
	Remaining int64  // what could still pass
	Reset     int64  // until the rule is as if unused
	Admits    bool   // whether it admits
	Retry     int64  // after how long it would; algorithms.Never: never
}

// Peek returns what the zone would decide about a key. Nothing is charged.
func (z *Zone) Peek(ctx context.Context, t Target) Peeked {
	a := z.active.Load()
	p := Peeked{Zone: z, Shadow: a.shadow, Key: t.Key, Parts: t.Parts, Cost: t.Cost}
	if a.off {
		p.Outcome = metrics.Skipped
		return p
	}
	set := a.rules
	if o, ok := a.override(&t); ok {
		p.Override = o.key
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

// override returns that of a key. A key that is only known by its hash can only have
// that of a single key.
func (a *activeRules) override(t *Target) (*override, bool) {
	if len(t.encoded.Bytes()) == 0 {
		return a.overrides.Exact(t.Key)
	}
	return a.overrides.Find(&t.encoded, t.Key)
}

func (p *Peeked) deny(label string) {
	p.Label, p.Outcome = label, metrics.Denied
	if p.Shadow {
		p.Outcome = metrics.ShadowDenied
	}
}

// peek asks the zone's store.
func (p *Peeked) peek(ctx context.Context, set *ruleSet, c *stores.ZoneCheck) {
	p.Checked, p.Mode, p.Overflowed = true, stores.Peek(ctx, p.Zone.store.of(c.Tag), c), c.Overflowed
	can := true
	for i, res := range c.Results {
		r := PeekedRule{
			Label: set.Labels[i], Limit: c.Rules[i].Limit(), Window: c.Rules[i].Window(),
			Remaining: res.Remaining, Reset: res.Reset, Admits: res.Admit,
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
	q := newRequest(l, r)
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
	return applies, others, err
}

// explain returns what a zone that applies would decide.
func (q *request) explain(ctx context.Context, z *zoneResult) Peeked {
	p := Peeked{Zone: z.zone, Shadow: z.shadow, Parts: z.zone.Config.Plan.Describe(q.r)}
	switch {
	case z.outcome == metrics.Skipped:
		p.Outcome = metrics.Skipped
	case z.label != "":
		p.deny(z.label)
	case z.rules >= 0:
		c := q.check.Zones[z.rules]
		c.Results = nil // the request's own room is not for a peek
		p.Key, p.Cost = c.Key, c.Cost
		p.peek(ctx, z.set, &c)
	}
	return p
}

// Status is what is in force for a zone.
type Status struct {
	// FromSource says that the rules are of a document from outside.
	FromSource bool

	// Enabled and Shadow are what the configuration or the document says.
	Enabled, Shadow bool

	// Rules are the zone's rules.
	Rules *config.RuleSet

	// Overrides is the number of overrides.
	Overrides int

	// MaxKeys is how many keys a set of rules keeps in this process.
	MaxKeys int64
}

// Status returns what is in force for the zone.
func (z *Zone) Status() Status {
	a := z.active.Load()
	return Status{
		FromSource: a.text != "", Enabled: !a.off, Shadow: a.shadow,
		Rules: a.from.Rules, Overrides: len(a.from.Overrides), MaxKeys: z.maxKeys,
	}
}

// Tables returns the tables of the zone's rules in force.
func (z *Zone) Tables() []Bound { return z.active.Load().tables }
