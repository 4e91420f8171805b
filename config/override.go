package config

import (
	"errors"
	"fmt"

	"github.com/dianalimiter/diana/internal/key"
)

// Override gives some keys other rules than their zone's.
type Override struct {
	// As many parts as the zone's key: "*" matches any part, a CIDR an
	// address, anything else itself. The most exact override wins.
	Key []string `json:"key"`

	// Count nothing for these keys. Default: false.
	Unlimited bool `json:"unlimited,omitempty"`

	// The rules for these keys. A limit of 0 blocks them.
	Rules []*Rule `json:"rules,omitempty"`
}

// CheckedOverride is an override whose every part was found right.
type CheckedOverride struct {
	*Override
	Pattern *key.Pattern // of its keys
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
