package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// changeLimits changes the limit of a bounded rule on all instances.
func (w *world) changeLimits(r *rand.Rand) {
	w.changeBounded("reload-limit", func(one *site, _ *setup) {
		one.Rules = slices.Clone(one.Rules)
		for k := range one.Rules {
			rule := &one.Rules[k]
			rule.Limit = max(3, rule.Limit*(50+r.Int64N(100))/100)
			if rule.Burst > 0 {
				rule.Burst = max(3, rule.Burst)
			}
		}
	})
}

// changeStore moves a bounded zone to another store, or back, on all instances.
func (w *world) changeStore() {
	w.changeBounded("reload-store", func(one *site, s *setup) {
		const other = "other"
		if !slices.Contains(s.stores, other) {
			s.stores = append(slices.Clone(s.stores), other)
		}
		if one.Store == "" {
			one.Store = other
		} else {
			one.Store = ""
		}
	})
}

// changeKinds gives a bounded zone rules of another kind on all instances.
func (w *world) changeKinds(r *rand.Rand) {
	w.changeBounded("reload-kind", func(one *site, _ *setup) {
		one.Rules = slices.Clone(one.Rules)
		for k := range one.Rules {
			one.Rules[k] = otherKind(&one.Rules[k], r)
		}
	})
}

// changePrefix has all instances count in keys with another prefix in their first store, which
// forgets what was used.
func (w *world) changePrefix() {
	w.mu.Lock()
	s := *w.setup
	s.prefix += "-"
	w.setup = &s
	w.mu.Unlock()
	var moved []int
	for i := range s.sites {
		if s.sites[i].Store == "" {
			w.oracle.changed(i, s.sites[i].Rules, byPrefix)
			w.oracle.moved(i)
			moved = append(moved, i)
		}
	}
	w.reloadAll("reload-prefix")
	for _, i := range moved {
		w.oracle.changedEverywhere(i, byPrefix)
	}
}

// changeBounded changes the first bounded site on all instances, one after another.
func (w *world) changeBounded(what string, change func(one *site, s *setup)) {
	w.mu.Lock()
	s := *w.setup
	s.sites = slices.Clone(s.sites)
	i := slices.IndexFunc(s.sites, func(one site) bool { return one.Kind == bounded })
	change(&s.sites[i], &s)
	w.setup = &s
	w.mu.Unlock()
	w.oracle.changed(i, s.sites[i].Rules, byReload)
	if what == "reload-store" {
		w.oracle.moved(i)
	}
	w.reloadAll(what)
	w.oracle.changedEverywhere(i, byReload)
}

// reloadAll reloads all instances, one after another.
func (w *world) reloadAll(what string) {
	for n := range w.instances {
		w.reload(n, what, func(*setup) {})
		time.Sleep(50 * time.Millisecond)
	}
}
