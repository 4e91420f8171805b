package limiter

import (
	"net/http"
	"slices"
	"strings"
)

// Quota is a zone of which clients may ask what is left for them.
type Quota struct {
	limiter *Limiter
	zone    *Zone
}

// Quotas returns the zones with these names, and the first name that no zone has. Without names it
// returns all whose keys are not the same for everybody. Of a zone in several handlers it is one that enforces it, if
// any does. It requires that all limiters have joined.
func (r *Registry) Quotas(names []string) (list []Quota, unknown string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[string]bool)
	for _, l := range r.limiters {
		for _, z := range l.zones {
			if known[z.Name] { // in another handler
				if i := slices.IndexFunc(list, func(u Quota) bool { return u.zone.Name == z.Name }); i >= 0 && list[i].zone.Shadow && !z.Shadow {
					list[i] = Quota{l, z}
				}
				continue
			}
			known[z.Name], known[z.WrittenName()] = true, true
			named := slices.Contains(names, z.Name) || slices.Contains(names, z.WrittenName())
			if named || len(names) == 0 && !z.Config.Plan.Constant() {
				list = append(list, Quota{l, z})
			}
		}
	}
	slices.SortFunc(list, func(a, b Quota) int { return strings.Compare(a.zone.Name, b.zone.Name) })
	for _, name := range names {
		if !known[name] {
			return nil, name
		}
	}
	return list, ""
}

// Peek returns what the zone would decide about the key of a request, whether its matchers match
// or not. Nothing is charged. limited is false if nothing limits the key: the zone is off or in
// shadow, the request is exempt or has no key, or the key is unlimited.
func (u Quota) Peek(w http.ResponseWriter, r *http.Request) (p Key, limited bool, err error) {
	if exempt, err := u.zone.exempts(r); exempt || err != nil {
		return p, false, err
	}
	a := u.zone.active.Load()
	if a.shadow {
		return p, false, nil
	}
	q := u.limiter.newRequest(w, r)
	defer q.release()
	q.asks = true
	q.add(u.zone, a)
	z := &q.zones[0]
	if z.rules == nil && (z.label == "" || z.set == nil) {
		return p, false, nil
	}
	p = z.explain(r.Context(), r)
	p.Zone = u.zone.WrittenName()
	return p, true, nil
}
