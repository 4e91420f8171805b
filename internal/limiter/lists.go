package limiter

import (
	"fmt"
	"slices"

	"github.com/dianalimiter/diana/config"
)

// ApplyList implements lists.Target.
func (r *Registry) ApplyList(file, text string, inForce func()) (report func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	swaps := make(map[*Zone]*activeRules)
	var narrow []Narrow // keys that were not narrower than the prefix of their zone before
	for _, limiter := range r.limiters {
		for _, z := range limiter.zones {
			a := z.active.Load()
			if !a.reads(file) {
				if err := checkList(z.Config, file, text); err != nil {
					return nil, config.InZone(z.Name, err)
				}
				continue
			}
			next := *a
			err := next.index(z, func(f string) string {
				if f == file {
					return text
				}
				return z.env.Lists.Text(f)
			})
			if err != nil {
				return nil, config.InZone(z.Name, err)
			}
			if a.narrow.Keys == 0 && next.narrow.Keys > 0 {
				narrow = append(narrow, next.narrow)
			}
			swaps[z] = &next
		}
	}
	for z, next := range swaps {
		z.active.Store(next)
	}
	for _, limiter := range r.limiters {
		tellWaiting(limiter.zones)
	}
	inForce()
	report = func() {
		for _, n := range narrow {
			n.Warn(r.logger.Warn)
		}
	}
	return report, nil
}

// checkList checks a list for the overrides of a zone's configuration: while those of a
// document replace them, no index is built of it.
func checkList(c *config.Checked, file, text string) error {
	for _, o := range c.Overrides {
		if o.KeysFile != file {
			continue
		}
		for _, err := range o.PatternsOf(text) {
			if err != nil {
				return config.At(o.Pointer, fmt.Errorf("%s, %w", file, err))
			}
		}
	}
	return nil
}

// reads reports whether an override has its keys in a file.
func (a *activeRules) reads(file string) bool {
	return slices.ContainsFunc(a.overrides, func(o *override) bool { return o.checked.KeysFile == file })
}
