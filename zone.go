package diana

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// zone is a Zone that is ready to decide.
type zone struct {
	*Zone
	matchers, exempt caddyhttp.MatcherSets
	key              *keyPlan
	limits
	terms     atomic.Pointer[terms] // what is in force of the above
	cost      template
	fixed     int64 // the cost, if it is a number, else 0
	settle    template
	statuses  statuses
	maxWait   time.Duration
	store     stores.Store
	hasher    hasher
	queue     waitQueue
	metrics   zoneMetrics
	log       lineLimit
	crowded   atomic.Int64 // when it last said that it is full, in nanoseconds
	responder *responder
	quiet     bool   // no headers tell of it
	tops      *tops  // nil: not counted
	twins     *twins // nil: without prevent_duplicates
	refs      references
}

const (
	defaultDuplicates = 5 * time.Second
	maxCost           = 1 << 52 // above any capacity, and exact in Lua
)

// check checks everything about a zone that can be told without the rest of
// the configuration.
func (z *Zone) check() error {
	own, err := z.own()
	if err == nil {
		_, err = newZone(own)
	}
	return err
}

// newZone checks a zone and cuts it into what requests need.
func newZone(c *Zone) (*zone, error) {
	if c == nil {
		return nil, errors.New("zone null: want an object with a name and rules")
	}
	z := &zone{Zone: c, maxWait: time.Duration(c.MaxWait)}
	if err := checkName(c.Name); err != nil {
		return nil, fmt.Errorf("zone %w", err)
	}
	err := errors.Join(z.provisionKey(), z.provisionCharges(), z.provisionAnswers())
	if err == nil {
		err = z.provisionRules()
	}
	if err != nil {
		var at *configError
		if errors.As(err, &at) {
			return nil, &configError{at.at, fmt.Errorf("zone %s: %w", c.Name, at.err)}
		}
		return nil, &configError{nil, fmt.Errorf("zone %s: %w", c.Name, err)}
	}
	return z, nil
}

func (z *zone) provisionKey() (err error) {
	z.key, err = newKeyPlan(z.Zone)
	return err
}

// fixedCost is the cost of a request if it is a number, else 1.
func (z *Zone) fixedCost() int64 {
	if n, err := strconv.ParseInt(string(z.Cost), 10, 64); err == nil {
		return n
	}
	return 1
}

func (z *zone) provisionCharges() (err error) {
	z.fixed = z.fixedCost()
	if z.cost, err = parseTemplate(string(z.Cost)); err != nil {
		return fmt.Errorf("cost: %w", err)
	}
	if text, ok := z.cost.constant(); !ok {
		z.fixed = 0
	} else if text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < 1 {
			return fmt.Errorf("cost %q: want a number of at least 1, or a placeholder", text)
		}
	}
	if z.settle, err = parseTemplate(z.Settle); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	if _, ok := z.settle.constant(); ok && z.Settle != "" {
		return fmt.Errorf("settle %q: want a placeholder, such as {http.response.header.X-Tokens}", z.Settle)
	}
	if z.statuses, err = parseStatuses(z.CountStatus); err != nil {
		return err
	}
	switch {
	case z.InFlight < 0:
		return fmt.Errorf("in_flight %d: want at least 1", z.InFlight)
	case z.maxWait < 0:
		return fmt.Errorf("max_wait %v: want a positive duration", z.maxWait)
	case z.maxWait > maxMaxWait:
		return fmt.Errorf("max_wait %v: want at most %v", z.maxWait, maxMaxWait)
	case z.MaxKeys < 0:
		return fmt.Errorf("max_keys %d: want at least 1", z.MaxKeys)
	}
	return nil
}

const maxMaxWait = time.Hour

func (z *zone) provisionAnswers() (err error) {
	z.responder, err = newResponder(z.Respond)
	return err
}

func (z *zone) provisionRules() (err error) {
	if z.rules, err = newRuleSet(z.Zone, z.Rules, false); err != nil {
		return err
	}
	if len(z.Rules) == 0 && z.InFlight == 0 && z.PreventDuplicates == nil {
		return errNoRules
	}
	for _, o := range z.Overrides {
		v, err := newOverride(o, z.key)
		if err != nil {
			return &configError{o, err}
		}
		if !v.unlimited {
			if v.set, err = newRuleSet(z.Zone, o.Rules, true); err != nil {
				return err
			}
		}
		z.list = append(z.list, v)
	}
	if d := z.PreventDuplicates; d != nil {
		window := time.Duration(d.Window)
		if window == 0 {
			window = defaultDuplicates
		}
		switch {
		case window < time.Microsecond:
			return fmt.Errorf("prevent_duplicates %v: want a positive duration", window)
		case window > maxWindow:
			return fmt.Errorf("prevent_duplicates %v: want at most %v", window, maxWindow)
		}
		z.duplicates = &ruleSet{
			duplicates: true, blocked: -1, labels: []string{ruleDuplicates}, names: []string{z.Name},
			algs:  []algorithms.Algorithm{new(algorithms.FixedWindow)},
			specs: []algorithms.Spec{{Limit: 1, Window: window.Microseconds(), Cost: 1}},
		}
	}
	if err := z.checkDelays(); err != nil {
		return err
	}
	return z.checkTurns()
}

// checkTurns compiles rules that are decided together with a queue as they will
// be: a rule that paces may be charged at the longest turn of them all.
func (z *zone) checkTurns() error {
	turn := z.maxDelay()
	if turn == 0 {
		return nil
	}
	for _, s := range z.sets() {
		for i, a := range s.algs {
			sp := s.specs[i]
			sp.MaxTurn = turn
			if _, err := a.Compile(sp); err != nil {
				return &configError{s.from[i], fmt.Errorf("beside a rule with a wait of %v: %w", time.Duration(turn)*time.Microsecond, err)}
			}
		}
	}
	return nil
}

// checkDelays refuses what cannot be kept beside a queue: a charge after the
// response would come before the turn of requests that wait.
func (z *zone) checkDelays() error {
	if z.Settle == "" && len(z.CountStatus) == 0 {
		return nil
	}
	for _, s := range z.sets() {
		if s.maxDelay > 0 {
			return errors.New("settle and count_status do not go with a leaky_bucket that delays: want nodelay, or another algorithm")
		}
	}
	return nil
}

// maxDelay is the longest turn that a rule of the zone gives, in microseconds.
func (z *zone) maxDelay() (d int64) {
	for _, s := range z.sets() {
		d = max(d, s.maxDelay)
	}
	return d
}

// statuses are the responses that are charged; empty: all.
type statuses struct {
	codes   map[int]bool
	classes [6]bool
	some    bool
}

func parseStatuses(list []Value) (s statuses, err error) {
	s.codes, s.some = make(map[int]bool), len(list) > 0
	for _, v := range list {
		text := strings.ToLower(string(v))
		if class, ok := strings.CutSuffix(text, "xx"); ok && len(class) == 1 && class[0] >= '1' && class[0] <= '5' {
			s.classes[class[0]-'0'] = true
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 100 || n > 599 {
			return s, fmt.Errorf("count_status %q: want a status such as 401, or a class such as 4xx", v)
		}
		s.codes[n] = true
	}
	return s, nil
}

func (s *statuses) counts(status int) bool {
	return s.codes[status] || status/100 < len(s.classes) && s.classes[status/100]
}
