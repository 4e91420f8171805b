package limiter

import (
	"fmt"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/stores"
)

// Labels of denials by something other than a rule.
const (
	labelInFlight   = "in_flight"
	labelDuplicates = config.LabelDuplicates
	labelKeyMissing = "key_missing"
	labelRepeated   = "key_repeated"
	labelStore      = "store" // unavailable, and on_failure is deny
)

// ruleSet is the compiled rules of a zone or override and their counter.
type ruleSet struct {
	*config.RuleSet
	counter *stores.Counter
	limits  *limits // for the limits of requests; nil: all limits are constant
	policy  string  // value of RateLimit-Policy; empty: it depends on the time

	compiled []algorithms.Spec // by rule
}

// newRuleSet compiles rules. in has the Lease, the MaxTurn and the Wall of their specs:
// those of the store, and of the rules that are decided together with these. The counter has no
// tables yet.
func newRuleSet(z *config.Zone, c *config.RuleSet, in algorithms.Spec) (*ruleSet, error) {
	lease := c.Lease(z, in.Lease)
	s := &ruleSet{RuleSet: c, compiled: make([]algorithms.Spec, len(c.Specs))}
	s.counter = &stores.Counter{Terms: stores.Terms{Zone: z.Name, Kinds: c.Kinds(lease), Algorithms: c.Algorithms, Blocks: c.Blocks, Grows: c.Grows}, Lease: lease, Split: s.split}
	if s.counter.OwnSlots = c.Duplicates; !c.Duplicates {
		s.counter.Notifies = c.Notifies()
		s.counter.InFlight, s.counter.HoldCost = z.InFlight, len(z.CountStatus) > 0 || z.Holds()
		s.counter.Estimated = z.Holds()
		s.counter.Last = c.MaxDelay > 0
	}
	in.Lease = lease
	for i := range c.Algorithms {
		r, sp, err := c.Compile(i, in)
		if s.compiled[i] = sp; err != nil {
			return nil, config.At(c.Pointer(i), fmt.Errorf("rule %s: %w", c.Labels[i], err))
		}
		s.counter.Rules = append(s.counter.Rules, r)
	}
	s.policy = constantPolicy(c.Names, s.counter.Rules)
	if c.LimitFrom != nil {
		s.limits, s.counter.Base = newLimits(s), s.counter
	}
	return s, nil
}

// split compiles the rules for an instance that enforces one share of n/1e6. A rule whose
// algorithm rejects the share is enforced in full.
func (s *ruleSet) split(n int64) []algorithms.Rule {
	rules := make([]algorithms.Rule, len(s.Algorithms))
	for i, a := range s.Algorithms {
		sp := s.compiled[i]
		sp.ShareOf = n
		r, err := a.Compile(sp)
		if err != nil {
			r = s.counter.Rules[i]
		}
		rules[i] = r
	}
	return rules
}
