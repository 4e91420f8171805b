package config

import (
	"errors"
	"fmt"

	"github.com/dianalimiter/diana/internal/key"
)

// Override replaces the zone's rules for some keys.
type Override struct {
	// A pattern for each part of the zone's key: "*" matches any value, a CIDR the
	// addresses in it, and any other text the equal value. The most specific
	// override wins.
	Key []string `json:"key"`

	// Let requests with these keys pass uncounted. Default: false.
	Unlimited bool `json:"unlimited,omitempty"`

	// The rules for these keys. A limit of 0 denies every request.
	Rules []*Rule `json:"rules,omitempty"`
}

// CheckedOverride is a valid override, parsed for deciding.
type CheckedOverride struct {
	*Override
	Pattern *key.Pattern // matches the keys
	Set     *RuleSet     // nil: unlimited
}

// check checks an override against its zone's key.
func (o *Override) check(z *Zone, p *key.Plan) (*CheckedOverride, error) {
	if o == nil {
		return nil, &Error{o, errors.New("override null: want an object with a key")}
	}
	pattern, err := p.Pattern(o.Key)
	if err != nil {
		return nil, &Error{o, fmt.Errorf("override %q: %w", o.Key, err)}
	}
	c := &CheckedOverride{Override: o, Pattern: pattern}
	if o.Unlimited == (len(o.Rules) > 0) {
		return nil, &Error{o, fmt.Errorf("override %q: want either unlimited or rules", o.Key)}
	}
	if !o.Unlimited {
		if c.Set, err = newRuleSet(z, o.Rules, true); err != nil {
			return nil, err
		}
	}
	return c, nil
}
