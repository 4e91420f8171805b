package simulation

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// noticed is the longest that instances take to see that a file has changed, which they look at
// four times a second.
const noticed = time.Second

// drawList adds a site that has other limits for the keys in a file, to every other plan.
func (s *setup) drawList(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	one := drawRule(r)
	other := one
	other.Limit = max(3, one.Limit*[]int64{50, 80, 150, 300}[r.IntN(4)]/100)
	s.add(site{Kind: bounded, Rules: []rule{one}, Listed: []rule{other}})
}

// changeList adds a hot key to the list of keys, or removes it.
func (w *world) changeList(r *rand.Rand) {
	i := slices.IndexFunc(w.plan.setup.sites, func(one site) bool { return len(one.Listed) > 0 })
	if i < 0 {
		return
	}
	key := []string{"k0", "k1"}[r.IntN(2)]
	w.coverage.event("list")
	changed := w.oracle.listed(i, key)
	w.mu.Lock()
	if n := slices.Index(w.listed, key); n < 0 {
		w.listed = append(w.listed, key)
	} else {
		w.listed = slices.Delete(w.listed, n, n+1)
	}
	w.mu.Unlock()
	w.writeList()
	time.Sleep(noticed)
	changed()
}

// writeList writes the file with the list of keys.
func (w *world) writeList() {
	w.mu.Lock()
	text := strings.Join(w.listed, "\n") + "\n"
	w.mu.Unlock()
	if err := replaceFile(w.plan.setup.list, []byte(text)); err != nil {
		w.t.Error(err)
	}
	w.event("the list has %q", text)
}

// listed notes that a key begins to move onto the list of a site, or off it: both its limits may
// be in force until the function that it returns is called. What was used is kept.
func (o *oracle) listed(site int, key string) (everywhere func()) {
	s := &span{what: byList, from: o.w.now(), instance: -1, site: site, key: key, open: true}
	o.add(s)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		s.open, s.to = false, o.w.now()
	}
}
