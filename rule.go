package diana

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/scripts"
)

// ruleSet is the rules of a zone or of an override, ready to be counted.
type ruleSet struct {
	names     []string // in headers: zone, zone.2 or zone.name
	labels    []string // in logs and metrics: name or number
	from      []*Rule  // what they were made of
	algs      []algorithms.Algorithm
	specs     []algorithms.Spec
	blocked   int // number of the rule with limit 0, or -1
	counter   *stores.Counter
	policy    string // RateLimit-Policy of the first rules
	lease     int64  // for how long parts of the limits may be charged in advance
	maxDelay  int64  // the longest turn that a rule gives, in microseconds
	isDelayed []bool // by rule: whether it paces

	// duplicates says that these are a zone's memory of requests, which holds
	// no places and is charged at once.
	duplicates bool
}

// delayer is an algorithm that can make a request wait for its turn.
type delayer interface {
	MaxDelay(algorithms.Spec) int64
}

// loadAlgorithm returns a rule's algorithm with its options.
func loadAlgorithm(r *Rule, zoneAlgorithm string) (algorithms.Algorithm, error) {
	raw := map[string]json.RawMessage{}
	name := zoneAlgorithm
	if name == "" {
		name = defaultAlgorithm(r.Limit)
	}
	if len(r.AlgorithmRaw) > 0 {
		if err := json.Unmarshal(r.AlgorithmRaw, &raw); err != nil {
			return nil, fmt.Errorf("algorithm: %w: want an object such as {\"name\": \"gcra\"}", err)
		}
		if n, ok := raw["name"]; ok {
			if err := json.Unmarshal(n, &name); err != nil {
				return nil, fmt.Errorf("algorithm: name: %w", err)
			}
			delete(raw, "name")
		}
	}
	info, err := caddy.GetModule(algorithms.Namespace + "." + name)
	if err != nil {
		return nil, fmt.Errorf("algorithm %q: want one of %s", name, strings.Join(algorithms.Names(), ", "))
	}
	a, ok := info.New().(algorithms.Algorithm)
	if !ok {
		return nil, fmt.Errorf("algorithm %q: the module is no rate limiting algorithm", name)
	}
	options, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(options))
	dec.DisallowUnknownFields()
	if err := dec.Decode(a); err != nil {
		return nil, fmt.Errorf("algorithm %s: %w", name, err)
	}
	return a, nil
}

// maxRules is how many rules a zone or an override has at most: all of them are
// judged with every request, in Redis while nothing else is.
const maxRules = 128

// newRuleSet loads and checks rules. In an override a limit may be 0.
func newRuleSet(z *Zone, rules []*Rule, inOverride bool) (*ruleSet, error) {
	s := &ruleSet{blocked: -1}
	seen := make(map[string]bool)
	for i, r := range rules {
		if err := s.add(z, r, i, inOverride); err != nil {
			return nil, &configError{r, err}
		}
		if seen[s.labels[i]] {
			return nil, &configError{r, fmt.Errorf("rule %q stands twice in zone %s", s.labels[i], z.Name)}
		}
		seen[s.labels[i]] = true
	}
	return s, nil
}

func (s *ruleSet) add(z *Zone, r *Rule, i int, inOverride bool) error {
	if r == nil {
		return errors.New("rule null: want an object with a limit and a window")
	}
	if i >= maxRules {
		return fmt.Errorf("more than %d rules: want at most as many", maxRules)
	}
	label, name := strconv.Itoa(i+1), z.Name
	if i > 0 {
		name += "." + label
	}
	if r.Name != "" {
		if err := checkName(r.Name); err != nil {
			return fmt.Errorf("rule %w", err)
		}
		label, name = r.Name, z.Name+"."+r.Name
	}
	s.labels, s.names = append(s.labels, label), append(s.names, name)
	window := time.Duration(r.Window)
	switch {
	case window < time.Microsecond || window%time.Microsecond != 0:
		return fmt.Errorf("window %v: want at least 1us, in whole microseconds", window)
	case window > maxWindow:
		return fmt.Errorf("window %v: want at most %v", window, maxWindow)
	}
	if r.Limit == 0 && inOverride {
		if s.blocked < 0 {
			s.blocked = i
		}
		return nil
	}
	alg, err := loadAlgorithm(r, z.Algorithm)
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
	s.from, s.algs, s.specs = append(s.from, r), append(s.algs, alg), append(s.specs, sp)
	s.isDelayed = append(s.isDelayed, delay > 0)
	s.maxDelay = max(s.maxDelay, delay)
	return nil
}

// maxWindow is a hundred years and more: beyond it instants leave what Lua
// calculates exactly.
const maxWindow = 1 << 52 * time.Microsecond

// kinds is a short fingerprint of what gives the rules' states their meaning.
// The key's parts are in it through their hash; the limits never are.
func (s *ruleSet) kinds() string {
	h := sha256.New()
	for i, a := range s.algs {
		kind := a.Kind()
		if l, ok := a.(algorithms.Leasable); ok && s.lease > 0 {
			kind, _ = l.LeasedKind()
		}
		fmt.Fprintf(h, "%s %d\n", kind, s.specs[i].Window)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:6])
}

// setLease lets parts of the limits be charged in advance, if that goes with all
// rules and with what else the zone wants.
func (s *ruleSet) setLease(z *Zone, lease int64) {
	if len(s.algs) == 0 || z.InFlight > 0 || z.Settle != "" || len(z.CountStatus) > 0 {
		return
	}
	for _, a := range s.algs {
		l, ok := a.(algorithms.Leasable)
		if ok {
			_, ok = l.LeasedKind()
		}
		if !ok {
			return
		}
	}
	s.lease = lease
	for i := range s.specs {
		s.specs[i].Lease = lease
	}
}

// compile makes the counter. maxTurn is the longest turn of any rule that is
// decided together with these.
func (s *ruleSet) compile(z *Zone, maxTurn int64, table func(rules []algorithms.Rule) *memory.Table) error {
	c := &stores.Counter{Zone: z.Name, Kinds: s.kinds(), Lease: s.lease}
	if !s.duplicates {
		c.InFlight, c.HoldCost = z.InFlight, len(z.CountStatus) > 0
		c.Last = s.maxDelay > 0
	}
	for i := range s.specs {
		s.specs[i].MaxTurn = maxTurn
		r, err := s.algs[i].Compile(s.specs[i])
		if err != nil && s.lease > 0 {
			return &configError{s.from[i], fmt.Errorf("zone %s: rule %s: %w", z.Name, s.labels[i], err)}
		} else if err != nil {
			return err
		}
		c.Rules = append(c.Rules, r)
		c.Codes = append(c.Codes, scripts.Decide().Code(s.algs[i]))
	}
	c.Split = s.split
	c.Table = table(c.Rules)
	s.counter = c
	s.policy = string(appendPolicy(nil, s.names, c.Rules, maxHeaderRules))
	return nil
}

// split compiles the rules for one of n instances, in millionths. A share that
// the algorithm will not have is enforced whole.
func (s *ruleSet) split(n int64) []algorithms.Rule {
	rules := make([]algorithms.Rule, len(s.algs))
	for i, a := range s.algs {
		sp := s.specs[i]
		sp.ShareOf = n
		r, err := a.Compile(sp)
		if err != nil {
			r = s.counter.Rules[i]
		}
		rules[i] = r
	}
	return rules
}

var errNoRules = errors.New("no rule: want at least one, such as rule 10/s, or in_flight or prevent_duplicates")
