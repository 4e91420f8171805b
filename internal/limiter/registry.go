package limiter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// Registry holds the limiters of a configuration and applies the documents of the rule
// source to them.
type Registry struct {
	// Changed is called with the names of the zones whose rules a document replaced;
	// nil: it is not. It must be set before documents are applied.
	Changed func(zones []string)

	logger *zap.Logger

	mu       sync.Mutex
	limiters []*Limiter
	zones    map[string]defined       // by name
	enforced map[string]*atomic.Int32 // how many handlers enforce a zone, by its name
	document *config.Document         // in force; nil: none
}

// NewRegistry returns a registry with an initial document; nil: none.
func NewRegistry(logger *zap.Logger, d *config.Document) *Registry {
	return &Registry{logger: logger, document: d, zones: make(map[string]defined), enforced: make(map[string]*atomic.Int32)}
}

// Join adds a limiter and applies the document to it. A document that is invalid for the
// configuration is dropped until the source provides another. Several limiters may have
// zones of the same name if they define them alike.
func (r *Registry) Join(l *Limiter) error {
	dropped, err := r.join(l)
	if dropped != nil {
		r.logger.Error("the stored remote rules are invalid under this configuration: the configured rules are in force", loglimit.Error(dropped))
	}
	return err
}

// join is Join without the log line. dropped is why the document was dropped, nil: it was
// not.
func (r *Registry) join(l *Limiter) (dropped, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, z := range l.zones {
		def := defined{z.definition(), l.o.Place, l}
		if other, ok := r.zones[z.Name]; ok && other.definition != def.definition {
			return nil, fmt.Errorf("zone %s is defined twice, %s: want the same definition, or another name", z.Name, other.unlike(def))
		}
		if other, ok := r.zones[z.Name]; ok { // those between are marked
			l.repeat(z.Name)
			other.limiter.repeat(z.Name)
		}
		r.zones[z.Name] = def
		if z.enforced = r.enforced[z.Name]; z.enforced == nil {
			z.enforced = new(atomic.Int32)
			r.enforced[z.Name] = z.enforced
		}
	}
	if len(r.limiters) > 0 { // so are those between
		l.follows, r.limiters[0].follows = true, true
	}
	r.insert(l)
	if r.document != nil {
		dropped = l.apply(r.document)
	}
	if dropped == nil {
		for _, z := range l.zones {
			if leniency(z) == 0 {
				z.enforced.Add(1)
			}
		}
		return nil, nil
	}
	r.document = nil
	for _, other := range r.limiters {
		dropped = errors.Join(dropped, other.apply(nil))
	}
	r.countEnforced()
	return dropped, nil
}

// countEnforced counts, after rules were replaced, how many handlers enforce each zone.
func (r *Registry) countEnforced() {
	counts := make(map[string]int32)
	for _, l := range r.limiters {
		for _, z := range l.zones {
			if leniency(z) == 0 {
				counts[z.Name]++
			}
		}
	}
	for name, n := range r.enforced {
		n.Store(counts[name])
	}
}

// repeat notes that another limiter has a zone of the same name: a request that passes both is counted once.
func (l *Limiter) repeat(name string) {
	for _, z := range l.zones {
		if z.Name == name {
			z.repeated, l.repeats = true, true
		}
	}
}

// insert adds a limiter in an order that depends on the configuration alone: Caddy provisions servers
// in any order.
func (r *Registry) insert(l *Limiter) {
	text, _ := json.Marshal(l.o.Zones) // all limiters with these zones have the same error
	l.order = string(text)
	after := sort.Search(len(r.limiters), func(i int) bool { return r.limiters[i].order > l.order })
	r.limiters = slices.Insert(r.limiters, after, l)
}

// Leave removes a limiter and closes it.
func (r *Registry) Leave(l *Limiter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limiters = slices.DeleteFunc(r.limiters, func(o *Limiter) bool { return o == l })
	return l.Close()
}

// Apply implements follow.Target. It applies a document to all limiters or, if it is
// invalid for one, to none.
func (r *Registry) Apply(d *config.Document) (report func(), err error) {
	changed, restarted, err := r.apply(d)
	for _, b := range r.Bounds() {
		b.SetMax() // overrides have room of their own
	}
	report = func() {
		for _, name := range restarted {
			r.LogRestart(name)
		}
		if r.Changed != nil && len(changed) > 0 {
			r.Changed(changed)
		}
	}
	return report, err
}

// apply is Apply without the report. changed are the zones whose rules were replaced,
// restarted those whose counts were reset.
func (r *Registry) apply(d *config.Document) (changed, restarted []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := make([]*change, 0, len(r.limiters))
	for _, l := range r.limiters {
		c, err := newChange(l.zones, d)
		if err != nil {
			for _, c := range changes {
				err = errors.Join(err, c.undo())
			}
			return nil, nil, err
		}
		changes = append(changes, c)
	}
	for _, c := range changes {
		for i, z := range c.zones {
			if c.next[i].document != c.old[i].document {
				changed = append(changed, z.Name)
			}
			if c.next[i].kinds != c.old[i].kinds {
				restarted = append(restarted, z.Name)
			}
		}
		err = errors.Join(err, c.commit())
	}
	r.document = d
	r.countEnforced()
	return distinct(changed), distinct(restarted), err
}

// distinct returns the names in order, each once.
func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// Check returns the error with which Apply would reject a document. It changes nothing.
func (r *Registry) Check(d *config.Document) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.limiters {
		c, rejected := newChange(l.zones, d)
		if rejected != nil {
			return errors.Join(rejected, err)
		}
		err = errors.Join(err, c.undo())
	}
	return err
}

// LogRestart logs that a zone's counts were reset.
func (r *Registry) LogRestart(zone string) {
	r.logger.Info("the kind of the zone's rules or key has changed: its counts are reset", zap.String("zone", zone))
}

// Unknown implements follow.Target.
func (r *Registry) Unknown(d *config.Document) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d == nil {
		return nil
	}
	for name := range d.Zones {
		if _, ok := r.zones[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Document returns the document in force; nil: none.
func (r *Registry) Document() *config.Document {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.document
}

// Zones returns the zones of all limiters. Several may have the same name, of which those that
// enforce their rules come first, and of these those with metrics: the first is shown.
func (r *Registry) Zones() (all []*Zone) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.limiters {
		all = append(all, l.zones...)
	}
	slices.SortStableFunc(all, func(a, b *Zone) int { return cmp.Or(leniency(a)-leniency(b), a.withoutMetrics()-b.withoutMetrics()) })
	return all
}

// withoutMetrics is 1 if the zone's handler has disable_metrics.
func (z *Zone) withoutMetrics() int {
	if z.metrics.Counters == nil {
		return 1
	}
	return 0
}

// leniency is 0 if the zone enforces its rules, more if it only reports, and most if it is off.
func leniency(z *Zone) int {
	switch a := z.active.Load(); {
	case a.off():
		return 2
	case a.shadow:
		return 1
	}
	return 0
}

// Names returns the names of the zones.
func (r *Registry) Names() []string { return slices.Collect(maps.Keys(r.Kinds())) }

// Zone returns the first zone of a name; nil: no such zone.
func (r *Registry) Zone(name string) *Zone {
	for _, z := range r.Zones() {
		if z.Name == name {
			return z
		}
	}
	return nil
}

// Kinds returns, by zone, a fingerprint of how its rules count: if it changes, the
// zone's counts are reset.
func (r *Registry) Kinds() map[string]string {
	kinds := make(map[string]string)
	for _, z := range r.Zones() {
		kinds[z.Name] = z.active.Load().kinds
	}
	return kinds
}

// Bounds returns the capacities of the tables of all zones, each table once.
func (r *Registry) Bounds() (all []*Bound) {
	seen := make(map[*memory.Table]bool)
	for _, z := range r.Zones() {
		for _, b := range z.active.Load().tables {
			if !seen[b.Table] {
				seen[b.Table] = true
				all = append(all, b)
			}
		}
	}
	return all
}
