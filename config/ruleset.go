package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/configure/option"
)

// RuleSet is the valid rules of a zone or override with their algorithms. It is
// immutable.
type RuleSet struct {
	Names  []string // in headers: zone, zone.2 or zone.name
	Labels []string // in logs and metrics: name or number
	From   []*Rule  // the rules, or none if one of them has limit 0

	Algorithms []algorithms.Algorithm // by rule of From
	Specs      []algorithms.Spec      // by rule of From
	compiled   []algorithms.Rule      // by rule of From

	// LimitFrom is where the limits come from, by rule of From; nil for a rule whose
	// limit is constant. It is nil, or ends with the last that is not.
	LimitFrom []*LimitFrom

	Blocked  int    // the index of the first rule with limit 0, or -1
	Zero     *Rule  // that rule; nil: none
	MaxDelay int64  // the longest delay of a leaky_bucket, in microseconds
	MaxWait  int64  // the longest that a request may wait for a rule, or a permit, in microseconds
	Delays   []bool // by rule of From: whether it is a leaky_bucket that delays

	// Blocks are, by rule of From, for how many microseconds a denial blocks the key; 0:
	// it does not. nil: no rule blocks.
	Blocks []int64

	// Grows are, by rule of From, for how many microseconds the blocks last that follow the first
	// one of a key. nil: no block grows.
	Grows [][]int64

	// Duplicates is set for the rule set of prevent_duplicates, which holds no
	// permits and is not charged after the response.
	Duplicates bool

	override string // JSON pointer to the override in the zone; empty: the rules are the zone's
}

// Pointer returns the JSON pointer to rule i in the zone.
func (s *RuleSet) Pointer(i int) string { return fmt.Sprintf("%s/rules/%d", s.override, i) }

// MaxRules is the greatest number of rules of a zone or override. All of them are
// decided for every request, and Redis serves nothing else meanwhile.
const MaxRules = 128

// newRuleSet loads and checks rules of a zone, or of an override, which has a JSON pointer. In an
// override, a limit may be 0.
func newRuleSet(z *Zone, rules []*Rule, override string) (*RuleSet, error) {
	s := &RuleSet{Blocked: -1, override: override, MaxWait: time.Duration(z.MaxWait).Microseconds()}
	var all []error
	seen := make(map[string]bool)
	for i, r := range rules[:min(len(rules), MaxRules+1)] {
		label, err := s.add(z, r, i)
		if err == nil && seen[label] {
			err = fmt.Errorf("rule %q is given twice: want another name", label)
		}
		if err != nil {
			all = append(all, At(s.Pointer(i), err))
		}
		seen[label] = true
	}
	if err := option.Join(all...); err != nil {
		return nil, err
	}
	if s.Blocked >= 0 { // it denies everything, and nothing asks the other rules
		s.From, s.Algorithms, s.Specs, s.compiled, s.LimitFrom, s.Delays, s.Blocks, s.Grows, s.MaxDelay = nil, nil, nil, nil, nil, nil, nil, nil, 0
	}
	if !slices.ContainsFunc(s.Blocks, func(d int64) bool { return d > 0 }) {
		s.Blocks = nil
	}
	if !slices.ContainsFunc(s.Grows, func(next []int64) bool { return next != nil }) {
		s.Grows = nil
	}
	return s, nil
}

// add adds rule i, and returns its label.
func (s *RuleSet) add(z *Zone, r *Rule, i int) (label string, err error) {
	label, name := strconv.Itoa(i+1), z.Name
	if r == nil {
		return label, errors.New("rule null: want an object with a limit and a window")
	}
	if i >= MaxRules {
		return label, fmt.Errorf("rule %d: want at most %d rules", i+1, MaxRules)
	}
	if i > 0 {
		name += "." + label
	}
	if r.Name != "" {
		if err := CheckName(r.Name); err != nil {
			return label, fmt.Errorf("rule %w", err)
		}
		label, name = r.Name, z.Name+"."+r.Name
	}
	s.Labels, s.Names = append(s.Labels, label), append(s.Names, name)
	return label, s.addChecked(z, r)
}

// addChecked checks a rule, and adds it to those of From unless it denies everything.
func (s *RuleSet) addChecked(z *Zone, r *Rule) error {
	if err := r.Window.check(); err != nil {
		return err
	}
	maxWait := cmp.Or(r.MaxWait, z.MaxWait)
	if err := checkMaxWait(r.MaxWait); err != nil {
		return err
	}
	if err := r.checkBlock(maxWait); err != nil {
		return err
	}
	alg, err := LoadAlgorithm(r, z.Algorithm)
	if err != nil {
		return err
	}
	if r.Limit == 0 && s.override != "" && r.LimitFrom == "" {
		if s.Blocked < 0 {
			s.Blocked, s.Zero = len(s.Labels)-1, r
		}
		return nil
	}
	from, err := parseLimitFrom(r)
	if err != nil {
		return err
	}
	sp := algorithms.Spec{
		Limit: r.Limit, Window: r.Window.microseconds(), Period: r.Window.Period, Cost: z.fixedCost(),
		MaxWait: time.Duration(maxWait).Microseconds(), MaxWaiting: z.MaxWaiting,
		Overdraws: z.Settles() || len(z.CountStatus) > 0,
	}
	compiled, err := alg.Compile(sp)
	if err != nil {
		return err
	}
	if _, dated := compiled.(algorithms.Dated); !dated && sp.Period != 0 {
		other := map[algorithms.Period]string{algorithms.Day: "1d", algorithms.Week: "1w"}[sp.Period]
		if other != "" {
			return fmt.Errorf("window %v with %s: want a duration, as in %d/%s, or the algorithm calendar, as in %d/%v calendar", sp.Period, nameOf(alg), r.Limit, other, r.Limit, sp.Period)
		}
		return fmt.Errorf("window %v with %s: want the algorithm calendar, as in %d/%v calendar", sp.Period, nameOf(alg), r.Limit, sp.Period)
	}
	if err := r.checkNotify(compiled, nameOf(alg)); err != nil {
		return err
	}
	if from != nil {
		if err := checkVaries(alg, compiled, sp); err != nil {
			return err
		}
		s.addLimitFrom(from)
	}
	var delay int64
	if d, ok := alg.(delayer); ok {
		delay = d.MaxDelay(sp)
	}
	s.From, s.Algorithms, s.Specs, s.compiled = append(s.From, r), append(s.Algorithms, alg), append(s.Specs, sp), append(s.compiled, compiled)
	first, next := r.Block.times()
	s.Delays, s.Blocks, s.Grows = append(s.Delays, delay > 0), append(s.Blocks, first), append(s.Grows, next)
	s.MaxDelay, s.MaxWait = max(s.MaxDelay, delay), max(s.MaxWait, sp.MaxWait)
	return nil
}

// checkNotify checks the percentages of a rule that was compiled.
func (r *Rule) checkNotify(compiled algorithms.Rule, algorithm string) error {
	for i, p := range r.Notify {
		if p < 1 || p > 100 {
			return fmt.Errorf("notify %d: want a percentage from 1 to 100", p)
		}
		if slices.Contains(r.Notify[:i], p) {
			return fmt.Errorf("notify %d is given twice: want it once", p)
		}
	}
	if _, refills := compiled.(algorithms.Refilling); refills && r.Notify != nil {
		return fmt.Errorf("notify with %s, which refills all the time: want calendar, fixed_window, sliding_window or sliding_log", algorithm)
	}
	return nil
}

// addLimitFrom adds the limit_from of the next rule.
func (s *RuleSet) addLimitFrom(from *LimitFrom) {
	for len(s.LimitFrom) < len(s.From) {
		s.LimitFrom = append(s.LimitFrom, nil)
	}
	s.LimitFrom = append(s.LimitFrom, from)
}

// LabelDuplicates is the label of prevent_duplicates among a zone's rules.
const LabelDuplicates = "prevent_duplicates"

// duplicateRules returns the rule set of prevent_duplicates: one request per window.
func duplicateRules(zone string, window time.Duration) *RuleSet {
	return &RuleSet{
		Duplicates: true, Blocked: -1, Labels: []string{LabelDuplicates}, Names: []string{zone},
		Algorithms: []algorithms.Algorithm{new(algorithms.FixedWindow)},
		Specs:      []algorithms.Spec{{Limit: 1, Window: window.Microseconds(), Cost: 1}},
	}
}

// Compile returns rule i compiled for a store: with the Lease, the MaxTurn and the Wall of in. It
// returns the rule as it was checked if it is the same with them.
func (s *RuleSet) Compile(i int, in algorithms.Spec) (algorithms.Rule, algorithms.Spec, error) {
	checked := s.Specs[i]
	sp := checked
	sp.Lease, sp.MaxTurn, sp.Wall = in.Lease, in.MaxTurn, in.Wall
	if i < len(s.compiled) && sp.Lease == checked.Lease && sp.MaxTurn == checked.MaxTurn {
		if _, dated := s.compiled[i].(algorithms.Dated); !dated || sp.Wall == nil { // others have no use for Wall
			return s.compiled[i], sp, nil
		}
	}
	r, err := s.Algorithms[i].Compile(sp)
	return r, sp, err
}

// Lease returns the duration of leases for a zone with these rules in a store that
// leases for d, in microseconds: d if all algorithms and options of the zone support
// leases, otherwise 0.
func (s *RuleSet) Lease(z *Zone, d int64) int64 {
	if s.Duplicates || s.Blocks != nil || s.LimitFrom != nil || s.Notifies() || len(s.Algorithms) == 0 || z.InFlight > 0 || z.Settles() || len(z.CountStatus) > 0 {
		return 0
	}
	for _, a := range s.Algorithms {
		l, ok := a.(algorithms.Leasable)
		if ok {
			_, ok = l.LeasedKind()
		}
		if !ok {
			return 0
		}
	}
	return d
}

// Notifies reports whether a rule has notify.
func (s *RuleSet) Notifies() bool {
	return slices.ContainsFunc(s.From, func(r *Rule) bool { return r.Notify != nil })
}

// Kinds returns a short fingerprint of the format of the rules' states: algorithms and
// windows, but not limits. It is part of the names of keys in Redis, so that states of
// another format are never read.
func (s *RuleSet) Kinds(lease int64) string {
	h := sha256.New()
	for i, a := range s.Algorithms {
		kind := a.Kind()
		if l, ok := a.(algorithms.Leasable); ok && lease > 0 {
			kind, _ = l.LeasedKind()
		}
		fmt.Fprintf(h, "%s %d\n", kind, s.Specs[i].Window)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:6])
}
