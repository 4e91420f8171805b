package limiter

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
)

// Narrow is the keys of overrides that are narrower than the prefix of their zone.
type Narrow struct {
	Zone    string   // name of the zone
	Keys    int      // their number
	Example []string // the first of them
}

// Warn logs that these keys match more than they say, if there are any.
func (n Narrow) Warn(warn func(msg string, fields ...zap.Field)) {
	if n.Keys > 0 {
		warn("overrides are narrower than the zone's prefix: each matches the whole network of that prefix",
			zap.String("zone", n.Zone), zap.Int("keys", n.Keys), zap.Strings("first", n.Example))
	}
}

// NarrowKeys returns the keys of overrides that are narrower than the zone's prefix.
func (z *Zone) NarrowKeys() Narrow { return z.active.Load().narrow }

// index builds the index of the overrides. text returns the text of a file. A key of the
// configuration precedes the same one in a file, and otherwise the first override wins.
func (a *activeRules) index(z *Zone, text func(file string) string) error {
	var x, exceptions key.Index[*override]
	n := Narrow{Zone: z.Name}
	add := func(o *override, p *key.Pattern) (*override, bool, error) {
		if o.checked.Exception != nil {
			return exceptions.Add(p, z.store.Hasher, o)
		}
		if p.Narrow {
			if n.Keys++; n.Keys == 1 {
				n.Example = p.Words()
			}
		}
		return x.Add(p, z.store.Hasher, o)
	}
	for _, o := range a.overrides {
		for p, err := range o.checked.Patterns() {
			if err != nil {
				return config.At(o.checked.Pointer, err)
			}
			first, twice, err := add(o, p)
			switch {
			case o.checked.Exception != nil && first != nil && first != o:
				err = fmt.Errorf("exception %q is given twice: want it once", p.Words())
			case twice && (first != o || !o.checked.Many()):
				err = fmt.Errorf("override %q is given twice: want it once", p.Words())
			}
			if err != nil {
				return config.At(o.checked.Pointer, err)
			}
		}
	}
	for _, o := range a.overrides {
		if o.checked.KeysFile == "" {
			continue
		}
		for p, err := range o.checked.PatternsOf(text(o.checked.KeysFile)) {
			if err == nil {
				_, _, err = add(o, p)
			}
			if err != nil {
				return config.At(o.checked.Pointer, fmt.Errorf("%s, %w", o.checked.KeysFile, err))
			}
		}
	}
	a.keys, a.narrow, a.exceptions = x, n, nil
	if len(a.from.Exceptions) > 0 {
		a.exceptions = &exceptions
	}
	return nil
}
