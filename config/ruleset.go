package config

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dianalimiter/diana/algorithms"
)

// RuleSet is the rules of a zone or of an override, checked, with their
// algorithms. It does not change.
type RuleSet struct {
	Names  []string // in headers: zone, zone.2 or zone.name
	Labels []string // in logs and metrics: name or number
	From   []*Rule  // the rules without those whose limit is 0

	Algorithms []algorithms.Algorithm // one for each of From
	Specs      []algorithms.Spec      // their parameters

	Blocked  int    // the number of the rule with limit 0, or -1
	MaxDelay int64  // the longest delay of a leaky_bucket, in microseconds
	Delays   []bool // by rule: whether it is a leaky_bucket that delays

	// Duplicates says that these are a zone's memory of requests, which has no
	// permits and is charged at once.
	Duplicates bool
}

// MaxRules is how many rules a zone or an override has at most: all of them are
// judged with every request, in Redis while nothing else is.
const MaxRules = 128

// newRuleSet loads and checks rules. In an override a limit may be 0.
func newRuleSet(z *Zone, rules []*Rule, inOverride bool) (*RuleSet, error) {
	s := &RuleSet{Blocked: -1}
	seen := make(map[string]bool)
	for i, r := range rules {
		if err := s.add(z, r, i, inOverride); err != nil {
			return nil, &Error{r, err}
		}
		if seen[s.Labels[i]] {
			return nil, &Error{r, fmt.Errorf("rule %q stands twice in zone %s", s.Labels[i], z.Name)}
		}
		seen[s.Labels[i]] = true
	}
	return s, nil
}

func (s *RuleSet) add(z *Zone, r *Rule, i int, inOverride bool) error {
	if r == nil {
		return errors.New("rule null: want an object with a limit and a window")
	}
	if i >= MaxRules {
		return fmt.Errorf("more than %d rules: want at most as many", MaxRules)
	}
	label, name := strconv.Itoa(i+1), z.Name
	if i > 0 {
		name += "." + label
	}
	if r.Name != "" {
		if err := CheckName(r.Name); err != nil {
			return fmt.Errorf("rule %w", err)
		}
		label, name = r.Name, z.Name+"."+r.Name
	}
	s.Labels, s.Names = append(s.Labels, label), append(s.Names, name)
	window := time.Duration(r.Window)
	switch {
	case window < time.Microsecond || window%time.Microsecond != 0:
		return fmt.Errorf("window %v: want at least 1us, in whole microseconds", window)
	case window > MaxWindow:
		return fmt.Errorf("window %v: want at most %v", window, MaxWindow)
	}
	if r.Limit == 0 && inOverride {
		if s.Blocked < 0 {
			s.Blocked = i
		}
		return nil
	}
	alg, err := LoadAlgorithm(r, z.Algorithm)
	if err != nil {
		return err
	}
	sp := algorithms.Spec{
		Limit: r.Limit, Window: window.Microseconds(), Cost: z.fixedCost(),
		MaxWait: time.Duration(z.MaxWait).Microseconds(),
		Debt:    z.Settle != "" || len(z.CountStatus) > 0,
	}
	if _, err := alg.Compile(sp); err != nil {
		return err
	}
	var delay int64
	if d, ok := alg.(delayer); ok {
		delay = d.MaxDelay(sp)
	}
	s.From, s.Algorithms, s.Specs = append(s.From, r), append(s.Algorithms, alg), append(s.Specs, sp)
	s.Delays = append(s.Delays, delay > 0)
	s.MaxDelay = max(s.MaxDelay, delay)
	return nil
}

// duplicateRules is the rule set of prevent_duplicates: one request a window.
func duplicateRules(zone string, window time.Duration) *RuleSet {
	return &RuleSet{
		Duplicates: true, Blocked: -1, Labels: []string{LabelDuplicates}, Names: []string{zone},
		Algorithms: []algorithms.Algorithm{new(algorithms.FixedWindow)},
		Specs:      []algorithms.Spec{{Limit: 1, Window: window.Microseconds(), Cost: 1}},
	}
}

// Lease returns for how long parts of the limits of a zone's rules may be charged in
// advance, in microseconds, if the store leases for d: 0 unless that goes with all
// rules and with what else the zone has.
func (s *RuleSet) Lease(z *Zone, d int64) int64 {
	if len(s.Algorithms) == 0 || z.InFlight > 0 || z.Settle != "" || len(z.CountStatus) > 0 {
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

// Kinds is a short fingerprint of what gives the rules' states their meaning, which
// is part of the names of keys in Redis. The key's parts are in these names through
// their hash; the limits never are.
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
