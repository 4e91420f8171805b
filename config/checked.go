package config

import (
	"fmt"
	"iter"
	"strings"

	"github.com/dianalimiter/diana/internal/configure/placeholders"
	"github.com/dianalimiter/diana/internal/key"
)

// Checked is a valid zone, parsed for deciding. It is immutable.
type Checked struct {
	*Zone
	Plan   *key.Plan // how the key is built
	Charge Charge    // what a request is charged

	Priority *Priority // of requests that wait; nil without in_flight_adaptive

	Rules      *RuleSet           // the zone's own rules
	Overrides  []*CheckedOverride // in the order of the configuration, then the exceptions
	Duplicates *RuleSet           // nil without prevent_duplicates
}

// Sets returns the rule sets of the zone and of its overrides.
func (c *Checked) Sets() []*RuleSet {
	sets := []*RuleSet{c.Rules}
	for _, o := range c.Overrides {
		if o.Set != nil {
			sets = append(sets, o.Set)
		}
	}
	return sets
}

// LimitPlaceholders returns the names of the placeholders of the limits of the zone's rules
// and of its overrides'.
func (c *Checked) LimitPlaceholders() (names []string) {
	for _, s := range c.Sets() {
		for _, from := range s.LimitFrom {
			if from != nil {
				names = append(names, from.template.Placeholders()...)
			}
		}
	}
	return names
}

// MaxDelay returns the longest delay of the zone's rules, in microseconds.
func (c *Checked) MaxDelay() (d int64) {
	for _, s := range c.Sets() {
		d = max(d, s.MaxDelay)
	}
	return d
}

// CheckedOverride is a valid override, parsed for deciding.
type CheckedOverride struct {
	*Override
	Set       *RuleSet   // nil: unlimited
	Exception *Exception // nil: it is none
	Pointer   string     // JSON pointer to it in the zone

	plan *key.Plan
}

// Patterns returns the patterns of the override's keys, except those of its file. They are
// parsed anew each time: there may be many.
func (c *CheckedOverride) Patterns() iter.Seq2[*key.Pattern, error] {
	return func(yield func(*key.Pattern, error) bool) {
		if !c.Many() {
			yield(c.pattern(c.Key))
			return
		}
		for _, parts := range c.Keys {
			if !yield(c.pattern(parts)) {
				return
			}
		}
	}
}

// pattern parses a key, and adds it to an error.
func (c *CheckedOverride) pattern(parts []string) (*key.Pattern, error) {
	p, err := c.parse(parts)
	if err != nil {
		return nil, fmt.Errorf("override %q: %w", parts, err)
	}
	return p, nil
}

// parse parses a key. It rejects parts that were meant to be placeholders, which are values here.
func (c *CheckedOverride) parse(parts []string) (*key.Pattern, error) {
	p, err := c.plan.Pattern(parts)
	if err != nil {
		return nil, err
	}
	all := c.plan.Parts()
	for i, part := range parts {
		of := all[i]
		meant := placeholders.InValue(part, strings.Contains(of, "{http.request.host"))
		if strings.EqualFold(of, "{http.request.header."+part+"}") {
			meant = of
		}
		if meant != "" {
			return nil, fmt.Errorf("%q stands for the value of %s only in the zone's key: want a value, such as of %s, or * for any", part, meant, of)
		}
	}
	return p, nil
}

// PatternsOf returns the patterns of the text of the override's file.
func (c *CheckedOverride) PatternsOf(text string) iter.Seq2[*key.Pattern, error] {
	return func(yield func(*key.Pattern, error) bool) {
		for n, line := range listLines(text) {
			p, err := c.parse([]string{line})
			if err != nil {
				err = fmt.Errorf("line %d: %w", n, err)
			}
			if !yield(p, err) {
				return
			}
		}
	}
}
