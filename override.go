package diana

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/dianalimiter/diana/internal/stores"
)

// limits are what a zone limits by.
type limits struct {
	rules      *ruleSet
	list       []*override
	duplicates *ruleSet // nil: it does not prevent them
}

// sets are the rules and those of the overrides.
func (l *limits) sets() []*ruleSet {
	sets := []*ruleSet{l.rules}
	for _, v := range l.list {
		if v.set != nil {
			sets = append(sets, v.set)
		}
	}
	return sets
}

// override is other rules for some keys.
type override struct {
	config    *Override
	unlimited bool
	set       *ruleSet    // nil if unlimited
	parts     []partMatch // for those that are no single key
	weight    int         // the more exact, the greater
}

// single says that the override is of one key.
func (v *override) single() bool { return v.weight == exactWeight*len(v.parts) }

// partMatch matches one part of a key.
type partMatch struct {
	any    bool
	prefix netip.Prefix // valid: an address in it
	exact  []byte       // otherwise the part as it is encoded
}

// overrides finds the most exact override of a key.
type overrides struct {
	exact    map[stores.Key]*override
	patterns []*override // the most exact first
}

// newOverride checks the key of an override against its zone's.
func newOverride(o *Override, p *keyPlan) (*override, error) {
	if o == nil {
		return nil, errors.New("override null: want an object with a key")
	}
	if len(o.Key) != len(p.parts) {
		return nil, fmt.Errorf("override %q: %d parts: want %d, as the zone's key has", o.Key, len(o.Key), len(p.parts))
	}
	if o.Unlimited == (len(o.Rules) > 0) {
		return nil, fmt.Errorf("override %q: want either unlimited or rules", o.Key)
	}
	v := &override{config: o, unlimited: o.Unlimited}
	for i, s := range o.Key {
		m, weight, err := newOverride1(s, p, p.parts[i])
		if err != nil {
			return nil, fmt.Errorf("override %q: %w", o.Key, err)
		}
		v.parts = append(v.parts, m)
		v.weight += weight
	}
	return v, nil
}

const exactWeight = 1 << 16 // above the prefixes of all other parts

func newOverride1(s string, p *keyPlan, part template) (partMatch, int, error) {
	if s == "*" {
		return partMatch{any: true}, 0, nil
	}
	if s == "" {
		return partMatch{}, 0, errors.New("an empty part: want a value, a CIDR or *")
	}
	if prefix, err := netip.ParsePrefix(s); err == nil && part.single() {
		if prefix.Addr().Is4In6() {
			return partMatch{}, 0, fmt.Errorf("%s: want the IPv4 form of the network", s)
		}
		bits := min(prefix.Bits(), p.v6)
		if prefix.Addr().Is4() {
			bits = min(prefix.Bits(), p.v4)
		}
		weight := 1 + bits
		if prefix.Addr().Is4() {
			weight += 96
		}
		return partMatch{prefix: netip.PrefixFrom(prefix.Addr(), bits).Masked()}, weight, nil
	}
	if part.single() {
		var group netip.Addr
		return partMatch{exact: p.appendValue(nil, s, &group)}, exactWeight, nil
	}
	return partMatch{exact: appendMixed(nil, s)}, exactWeight, nil
}

// index makes the overrides of a zone ready to be looked up.
func (o *overrides) index(list []*override, h hasher) error {
	o.exact = make(map[stores.Key]*override)
	for _, v := range list {
		if !v.single() {
			o.patterns = append(o.patterns, v)
			continue
		}
		b := []byte{keyOfParts}
		for _, p := range v.parts {
			b = append(b, p.exact...)
		}
		k := h.key(b)
		if o.exact[k] != nil {
			return &configError{v.config, fmt.Errorf("override %q stands twice", v.config.Key)}
		}
		o.exact[k] = v
	}
	slices.SortStableFunc(o.patterns, func(a, b *override) int { return b.weight - a.weight })
	return nil
}

// find returns the most exact override of a key, or nil.
func (o *overrides) find(k *built, key stores.Key, parts int) *override {
	if len(o.exact) > 0 {
		if v := o.exact[key]; v != nil {
			return v
		}
	}
	if len(o.patterns) == 0 || k.b[0] != keyOfParts {
		return nil
	}
	for _, v := range o.patterns {
		if v.matches(k, parts) {
			return v
		}
	}
	return nil
}

func (v *override) matches(k *built, parts int) bool {
	from := 1
	for i := range parts {
		if !v.parts[i].matches(k.b[from:k.ends[i]]) {
			return false
		}
		from = k.ends[i]
	}
	return true
}

func (m *partMatch) matches(part []byte) bool {
	switch {
	case m.any:
		return true
	case m.prefix.IsValid():
		addr, ok := netip.AddrFromSlice(part[1:])
		return ok && part[0] != tagText && part[0] != tagMixed && m.prefix.Contains(addr)
	}
	return string(part) == string(m.exact)
}
