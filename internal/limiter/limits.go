package limiter

import (
	"hash/maphash"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// limits are a rule set, whose limits come from requests, compiled for the limits that
// requests bring. Clients may choose these, so that a fixed number is kept: a new one
// replaces any of its group of slots.
type limits struct {
	base  *ruleSet // with the limits of requests that bring none
	seed  maphash.Seed
	slots [limitGroups][limitsPerGroup]atomic.Pointer[limited]
	next  atomic.Uint32
}

const (
	limitGroups    = 64
	limitsPerGroup = 4
)

// limited is a rule set for some limits.
type limited struct {
	limits []int64 // by rule, as requests bring them; as configured for other rules
	set    *ruleSet
}

// refused reports whether a limit is impossible: the configuration's is in force.
func (v *limited) refused() bool {
	return !slices.EqualFunc(v.limits, v.set.compiled, func(limit int64, s algorithms.Spec) bool { return s.Limit == limit })
}

func newLimits(base *ruleSet) *limits { return &limits{base: base, seed: maphash.MakeSeed()} }

// of returns the rules for a request. bad reports whether a limit is missing or refused, and
// blocked is the index of the first rule whose limit is 0, or -1.
func (l *limits) of(r *http.Request) (set *ruleSet, bad bool, blocked int) {
	var room [8]int64
	list, same := room[:0], true
	for i, from := range l.base.LimitFrom {
		limit := l.base.Specs[i].Limit
		if from != nil {
			if n, ok := from.Limit(r); !ok {
				bad = true
			} else if n == 0 {
				return l.base, bad, i
			} else if n != limit {
				limit, same = n, false
			}
		}
		list = append(list, limit)
	}
	if same {
		return l.base, bad, -1
	}
	v := l.find(list)
	return v.set, bad || v.refused(), -1
}

// find returns the rule set for some limits. It is compiled if it is not kept.
func (l *limits) find(list []int64) *limited {
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, n := range list {
		maphash.WriteComparable(&h, n)
	}
	group := &l.slots[h.Sum64()%limitGroups]
	for i := range group {
		if v := group[i].Load(); v != nil && slices.Equal(v.limits, list) {
			return v
		}
	}
	v := l.compile(list)
	group[l.next.Add(1)%limitsPerGroup].Store(v)
	return v
}

// compile compiles the rules for some limits. They count in the same table as the base, and
// under the same names in Redis.
func (l *limits) compile(list []int64) *limited {
	v := &limited{limits: slices.Clone(list)}
	base := l.base.counter
	s := &ruleSet{RuleSet: l.base.RuleSet, compiled: slices.Clone(l.base.compiled)}
	rules := slices.Clone(base.Rules)
	for i, limit := range list {
		s.compiled[i].Limit = limit
		rule, err := l.base.Algorithms[i].Compile(s.compiled[i])
		if err != nil || rule.Words() != rules[i].Words() || grows(rule) {
			s.compiled[i].Limit = l.base.compiled[i].Limit
			continue
		}
		rules[i] = rule
	}
	s.counter = &stores.Counter{Terms: base.Terms, Rules: rules, Split: s.split, Base: base}
	s.policy = constantPolicy(s.Names, rules)
	v.set = s
	return v
}

func grows(r algorithms.Rule) bool {
	_, ok := r.(algorithms.Growing)
	return ok
}
