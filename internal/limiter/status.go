package limiter

import (
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/stores"
)

// Status is the status of a zone with its active rules.
type Status struct {
	// FromSource is set if a document of the rule source changes the zone.
	FromSource bool

	// Enabled and Shadow are set by the configuration or the document.
	Enabled, Shadow bool

	// Rules are the zone's rules.
	Rules *config.RuleSet

	// Overrides is the number of overrides.
	Overrides int

	// Exceptions are the document's, including the ones that have ended.
	Exceptions []*config.Exception

	// MaxKeys is the greatest number of keys kept in this process, without those reserved
	// for overrides.
	MaxKeys int64

	// Alone is what this instance enforces of the limits of Rules while the zone's store is
	// unavailable; nil: the zone's counts are not shared, or nothing is enforced then.
	Alone []int64

	// AloneInFlight is likewise the part of in_flight.
	AloneInFlight int64
}

// Status returns the status of the zone.
func (z *Zone) Status() Status {
	a := z.active.Load()
	s := Status{
		FromSource: a.document != nil, Enabled: !a.off(), Shadow: a.shadow,
		Rules: a.from.Rules, Overrides: len(a.from.Overrides) - len(a.from.Exceptions), Exceptions: a.from.Exceptions, MaxKeys: z.maxKeys,
	}
	if z.store.fallback != nil {
		alone := z.store.fallback.Share(a.rules.counter)
		s.AloneInFlight = alone.InFlight
		for _, r := range alone.Rules {
			s.Alone = append(s.Alone, r.Limit())
		}
	}
	return s
}

// BlockedFor returns for how many microseconds a key is still blocked, as far as this
// instance knows. 0: it is not.
func (z *Zone) BlockedFor(k stores.Key, now int64) int64 {
	if b := z.active.Load().blocks; b != nil {
		if x, ok := b.FindAt(k, now); ok {
			return x.Until - x.Offset - now
		}
	}
	return 0
}

// Blocked returns how many keys are blocked, as far as this instance knows.
func (z *Zone) Blocked(now int64) int64 {
	if b := z.active.Load().blocks; b != nil {
		return b.Count(now)
	}
	return 0
}

// Tables returns the tables of the zone's active rules.
func (z *Zone) Tables() []*Bound { return z.active.Load().tables }

// InShadow reports whether the zone only reports denials, by its rules in force.
func (z *Zone) InShadow() bool { return z.active.Load().shadow }
