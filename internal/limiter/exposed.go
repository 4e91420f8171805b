package limiter

import "github.com/dianalimiter/diana/internal/metrics"

// Counters returns the zone's counters of decisions; nil: they are not counted.
func (z *Zone) Counters() *metrics.Counters { return z.metrics.Counters }

// Spent returns the final costs of the zone's requests by group; none: it has no group_by.
func (z *Zone) Spent() []metrics.GroupCost { return z.groups.Costs() }

// Decisions returns the numbers of the zone's decisions by outcome, of its denials by rule, and
// of denials that a zone in shadow only reported, by rule; nil: none.
func (z *Zone) Decisions() (decisions, denied, shadow map[string]uint64) {
	if z.metrics.Counters == nil {
		return nil, nil, nil
	}
	for label, r := range z.active.Load().counted {
		d, s := r.Denied()
		denied, shadow = with(denied, label, d), with(shadow, label, s)
	}
	return z.metrics.Counters.Decisions(), denied, shadow
}

// with adds a number to a map, which may be nil, unless it is 0.
func with(all map[string]uint64, name string, n uint64) map[string]uint64 {
	if n == 0 {
		return all
	}
	if all == nil {
		all = make(map[string]uint64)
	}
	all[name] = n
	return all
}

// Exposed returns what the metrics show of the zones, by name. origin returns where the rules
// of a zone come from.
func (r *Registry) Exposed(origin func(Status) string) map[string]*metrics.Exposed {
	all := make(map[string]*metrics.Exposed)
	for _, z := range r.Zones() {
		if z.metrics.Counters == nil {
			continue
		}
		a, e := z.active.Load(), all[z.Name]
		if e == nil {
			e = &metrics.Exposed{Counters: z.metrics.Counters, Groups: z.groups, Rules: a.counted, Origin: origin(z.Status())}
			all[z.Name] = e
		}
		if e.Places == nil {
			e.Places = z.PlaceState()
		}
		charge := z.Config.Charge
		e.LimitsFrom = e.LimitsFrom || len(z.Config.LimitPlaceholders()) > 0
		e.Settles = e.Settles || charge.Settle != nil
		e.Shared = e.Shared || z.Shared()
	}
	for _, b := range r.Bounds() {
		if e := all[b.Zone]; e != nil {
			e.Keys += b.Table.Keys()
		}
	}
	return all
}

// Sampled returns what the history samples of the zones in the metrics, by zone.
func (r *Registry) Sampled() map[string]metrics.Sampled {
	all := make(map[string]metrics.Sampled)
	for _, z := range r.Zones() {
		c := z.Counters()
		if c == nil {
			continue
		}
		s := metrics.Sampled{Counters: c}
		if z.places != nil {
			s.Places = z.PlaceState
		}
		all[z.Name] = s
	}
	return all
}
