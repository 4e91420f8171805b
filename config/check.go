package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/configure/placeholders"
	"github.com/dianalimiter/diana/internal/key"
)

const (
	defaultDuplicates = 5 * time.Second
	maxMaxWait        = time.Hour
	maxLinger         = time.Hour

	// MaxInFlight is the greatest in_flight: exact in JSON.
	MaxInFlight = 1_000_000_000

	// MaxMaxWaiting is the greatest max_waiting: a waiting request takes about 20 KiB.
	MaxMaxWaiting = 100_000

	// MaxMaxBody is the greatest max_body, in bytes.
	MaxMaxBody = 8 << 20

	// MaxMaxKeys is the greatest max_keys: with as many that are reserved for overrides, a table
	// has room for them.
	MaxMaxKeys = 1 << 30
)

// errNoRules is returned for a zone without any limit.
var errNoRules = errors.New("no rule: want at least one, such as rule 10/s, or in_flight or prevent_duplicates")

// Check checks everything about a zone that does not depend on the rest of the
// configuration. Its errors are of type [*Error], or several of them. of reads responses; without it,
// zones with settle or tokens are rejected.
func (z *Zone) Check(of Responses) (*Checked, error) {
	if z == nil {
		return nil, errors.New("zone null: want an object with a name and rules")
	}
	if err := CheckName(z.Name); err != nil {
		return nil, fmt.Errorf("zone %w", err)
	}
	c := &Checked{Zone: z}
	err := c.checkOptions(of)
	if err == nil && c.Plan.ReadsBody() && z.KeyMissing == "" {
		err = fmt.Errorf("key %s without key_missing: any client can leave out a field of its body: want key_missing deny, skip, client_ip or share", strings.Join(z.KeyParts(), " "))
	}
	if err = option.Join(err, c.checkRules()); err == nil {
		return c, nil
	}
	return nil, option.Each(err, func(err error) error { return InZone(z.Name, err) })
}

// CheckOptions checks the options and their combinations, except for the rules, which
// may depend on options that follow them.
func (z *Zone) CheckOptions(of Responses) error { return (&Checked{Zone: z}).checkOptions(of) }

func (c *Checked) checkOptions(of Responses) error {
	var errs [5]error
	if c.Plan, errs[0] = c.KeyPlan(); errs[0] == nil {
		errs[0] = c.checkConstants()
	}
	c.Charge, errs[1] = c.Zone.charge(of)
	if errs[1] == nil {
		errs[2] = c.checkBounds()
	}
	errs[3] = c.Respond.Check()
	c.Priority, errs[4] = c.checkAdaptive()
	return option.Join(errs[:]...)
}

// KeyPlan checks the key and returns how it is built.
func (z *Zone) KeyPlan() (*key.Plan, error) {
	return key.NewPlan(z.KeyParts(), Expand, z.KeyMissing, z.KeyRepeated, z.IPv4Prefix, z.IPv6Prefix)
}

// checkConstants rejects constants in the key that were meant to be placeholders: the requests of
// all clients would count together.
func (z *Zone) checkConstants() error {
	for _, part := range z.Key {
		if strings.Contains(part, "{") {
			continue
		}
		if meant := placeholders.OfConstant(part); meant != "" {
			return fmt.Errorf("key %s: a constant, which is the same for all clients: want %s, or for one limit for all another word, such as everyone", part, meant)
		}
	}
	return nil
}

// checkMaxWait checks the max_wait of a zone or of a rule.
func checkMaxWait(d caddy.Duration) error {
	switch wait := time.Duration(d); {
	case wait < 0:
		return fmt.Errorf("max_wait %v: want a positive duration", wait)
	case wait > 0 && wait < time.Microsecond:
		return fmt.Errorf("max_wait %v: want at least 1us%s", wait, seconds(wait))
	case wait > maxMaxWait:
		return fmt.Errorf("max_wait %v: want at most %v", wait, maxMaxWait)
	}
	return nil
}

func (z *Zone) checkBounds() error {
	if err := checkMaxWait(z.MaxWait); err != nil {
		return err
	}
	switch {
	case z.InFlight < 0 || z.InFlight > MaxInFlight:
		return fmt.Errorf("in_flight %d: want 1 to %d", z.InFlight, MaxInFlight)
	case z.Linger < 0 || time.Duration(z.Linger) > maxLinger:
		return fmt.Errorf("linger %v: want 0 to %v", time.Duration(z.Linger), maxLinger)
	case z.Linger > 0 && z.Linger < caddy.Duration(time.Microsecond):
		return fmt.Errorf("linger %v: want 0, or at least 1us%s", time.Duration(z.Linger), seconds(time.Duration(z.Linger)))
	case z.MaxWaiting < 0 || z.MaxWaiting > MaxMaxWaiting:
		return fmt.Errorf("max_waiting %d: want 1 to %d", z.MaxWaiting, MaxMaxWaiting)
	case z.MaxBody < 0 || z.MaxBody > MaxMaxBody:
		return fmt.Errorf("max_body %d: want 1 to %d (8MiB)", z.MaxBody, MaxMaxBody)
	}
	return errors.Join(CheckMaxKeys(z.MaxKeys), checkUnit(z.Unit))
}

// CheckMaxKeys checks a value of the option max_keys. 0 means the default.
func CheckMaxKeys(n int64) error {
	if n < 0 || n > MaxMaxKeys {
		return fmt.Errorf("max_keys %d: want 1 to %d", n, MaxMaxKeys)
	}
	return nil
}

// checkRules checks the rules and overrides, and what depends on them.
func (c *Checked) checkRules() (err error) {
	if c.Rules, err = newRuleSet(c.Zone, c.Zone.Rules, ""); err == nil && len(c.Zone.Rules) == 0 && !c.Places() && c.PreventDuplicates == nil {
		err = errNoRules
	}
	if c.Plan != nil {
		err = option.Join(err, c.checkOverrides())
	}
	err = option.Join(err, c.checkDuplicates())
	if c.Linger > 0 && !c.Places() {
		err = option.Join(err, fmt.Errorf("linger %v: requests hold no place: want in_flight", time.Duration(c.Linger)))
	}
	if c.Hold && !c.Settles() {
		err = option.Join(err, At("/hold", errors.New("hold: want settle, which says what is charged in the end")))
	}
	if len(c.Zone.GroupBy) > 0 && !c.Settles() {
		err = option.Join(err, At("/group_by", errors.New("group_by: no response tells a cost: want tokens, or settle")))
	}
	if err != nil {
		return err
	}
	return option.Join(c.checkDelays(), c.checkWaiting(), c.checkTurns(), c.checkReserve())
}

// checkReserve rejects a reserve that a rule never admits.
func (c *Checked) checkReserve() error {
	n := c.Charge.reserved()
	if n == 0 {
		return nil
	}
	for _, s := range c.Sets() {
		for i, r := range s.compiled {
			if i < len(s.LimitFrom) && s.LimitFrom[i] != nil {
				continue // requests bring limits
			}
			if r.Capacity() < n {
				return At(s.Pointer(i), fmt.Errorf("tokens: reserve %d: want at most %d, which the rule admits at once", n, r.Capacity()))
			}
		}
	}
	return nil
}

// checkOverrides checks the overrides and exceptions.
func (c *Checked) checkOverrides() error {
	var all []error
	add := func(o *Override, x *Exception, pointer string) {
		checked, err := o.check(c.Zone, c.Plan, pointer)
		if err != nil {
			all = append(all, err)
			return
		}
		checked.Exception = x
		c.Overrides = append(c.Overrides, checked)
	}
	for i, o := range c.Zone.Overrides {
		add(o, nil, fmt.Sprintf("/overrides/%d", i))
	}
	for i, x := range c.Zone.Exceptions {
		pointer := fmt.Sprintf("/exceptions/%d", i)
		if x == nil {
			all = append(all, At(pointer, errors.New("exception null: want an object with a key")))
			continue
		}
		add(&x.Override, x, pointer)
	}
	return option.Join(all...)
}

// check checks an override against its zone's key.
func (o *Override) check(z *Zone, p *key.Plan, pointer string) (*CheckedOverride, error) {
	if o == nil {
		return nil, At(pointer, errors.New("override null: want an object with a key"))
	}
	c := &CheckedOverride{Override: o, Pointer: pointer, plan: p}
	for _, err := range c.Patterns() {
		if err != nil {
			return nil, At(pointer, err)
		}
	}
	switch {
	case o.Many() && len(o.Key) > 0:
		return nil, At(pointer, fmt.Errorf("override %q: want either a key, or a list of keys", o.Key))
	case o.KeysFile != "" && len(z.KeyParts()) != 1:
		return nil, At(pointer, fmt.Errorf("override: a file of keys for a key of %d parts: want keys, or a key of one part", len(z.KeyParts())))
	case o.Unlimited == (len(o.Rules) > 0):
		return nil, At(pointer, fmt.Errorf("override %s: want either unlimited or rules", o.name()))
	case o.Unlimited:
		return c, nil
	}
	var err error
	c.Set, err = newRuleSet(z, o.Rules, pointer)
	return c, err
}

func (c *Checked) checkDuplicates() error {
	if c.PreventDuplicates == nil {
		return nil
	}
	window := time.Duration(c.PreventDuplicates.Window)
	if window == 0 {
		window = defaultDuplicates
	}
	switch {
	case window < 0:
		return fmt.Errorf("prevent_duplicates %v: want a positive duration", window)
	case window < time.Microsecond:
		return fmt.Errorf("prevent_duplicates %v: want at least 1us%s", window, seconds(window))
	case window > MaxWindow:
		return fmt.Errorf("prevent_duplicates %v: want at most %v", window, MaxWindow)
	}
	c.Duplicates = duplicateRules(c.Name, window)
	return nil
}

// checkDelays rejects charges after the response in a zone with a queue: they would
// precede the charges of requests that are still queued.
func (c *Checked) checkDelays() error {
	if c.Charge.AfterResponse() && c.MaxDelay() > 0 {
		return errors.New("settle and count_status do not go with a leaky_bucket that delays: want nodelay, or another algorithm")
	}
	return nil
}

// checkWaiting rejects max_waiting in a zone in which no request waits.
func (c *Checked) checkWaiting() error {
	waits := func(s *RuleSet) bool { return s.MaxWait > 0 }
	if c.MaxWaiting > 0 && c.MaxWait == 0 && c.MaxDelay() == 0 && !slices.ContainsFunc(c.Sets(), waits) {
		return fmt.Errorf("max_waiting %d: no request waits: want max_wait, or a leaky_bucket that delays", c.MaxWaiting)
	}
	return nil
}

// checkTurns compiles the rules that are decided together with a queue with the
// longest delay of all rules, because each may be charged that far in the future.
func (c *Checked) checkTurns() error {
	turn := c.MaxDelay()
	if turn == 0 {
		return nil
	}
	for _, s := range c.Sets() {
		for i := range s.Algorithms {
			r, sp, err := s.Compile(i, algorithms.Spec{MaxTurn: turn})
			if err != nil {
				return At(s.Pointer(i), fmt.Errorf("with another rule that delays for up to %v: %w", time.Duration(turn)*time.Microsecond, err))
			}
			s.compiled[i], s.Specs[i] = r, sp
		}
	}
	return nil
}
