package limiter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/logs"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/rules"
)

// Registry knows the limiters of a configuration, and gives them rules from outside.
type Registry struct {
	logger *zap.Logger

	mu       sync.Mutex
	limiters []*Limiter
	zones    map[string]string // definitions by name
	document *rules.Document   // in force; nil: the zones' own rules
}

// NewRegistry returns a registry with the document that is in force from the start;
// nil: none.
func NewRegistry(logger *zap.Logger, d *rules.Document) *Registry {
	return &Registry{logger: logger, document: d, zones: make(map[string]string)}
}

// Join enters a limiter whose own rules are in force, and gives it the rules from
// outside. A document that does not fit the configuration is set aside until the
// source gives another. Limiters may name one zone several times if they define it
// alike.
func (r *Registry) Join(l *Limiter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, z := range l.zones {
		def := z.definition()
		if other, ok := r.zones[z.Name]; ok && other != def {
			return fmt.Errorf("zone %s is defined twice, as %s and as %s: want the same definition, or another name", z.Name, other, def)
		}
		r.zones[z.Name] = def
	}
	r.limiters = append(r.limiters, l)
	if r.document == nil {
		return nil
	}
	c, err := newChange(l.zones, r.document)
	if err == nil {
		err = c.commit()
	}
	if err == nil {
		return nil
	}
	r.logger.Error("the rules kept from outside do not fit this configuration: the zones' own rules hold", logs.Error(err))
	r.document = nil
	for _, other := range r.limiters {
		if c, err := newChange(other.zones, nil); err == nil {
			_ = c.commit()
		}
	}
	return nil
}

// Leave takes a limiter out and closes it.
func (r *Registry) Leave(l *Limiter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limiters = slices.DeleteFunc(r.limiters, func(o *Limiter) bool { return o == l })
	return l.Close()
}

// Apply implements rules.Target: it puts a document in force, for all zones of all
// limiters or for none.
func (r *Registry) Apply(d *rules.Document) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := make([]*change, 0, len(r.limiters))
	for _, l := range r.limiters {
		c, err := newChange(l.zones, d)
		if err != nil {
			for _, c := range changes {
				err = errors.Join(err, c.undo())
			}
			return err
		}
		changes = append(changes, c)
	}
	restarted := make(map[string]bool)
	var err error
	for _, c := range changes {
		for _, name := range c.restarted() {
			restarted[name] = true
		}
		err = errors.Join(err, c.commit())
	}
	r.document = d
	for _, name := range slices.Sorted(maps.Keys(restarted)) {
		r.logRestart(name)
	}
	return err
}

// logRestart says that a zone's counts start anew.
func (r *Registry) logRestart(zone string) {
	r.logger.Info("the zone's rules or key are of another kind than before: its counts start anew", zap.String("zone", zone))
}

// Unknown implements rules.Target.
func (r *Registry) Unknown(d *rules.Document) (names []string) {
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

// Document returns the document in force; nil: the zones' own rules are.
func (r *Registry) Document() *rules.Document {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.document
}

// Zones returns the zones of all limiters. A name stands there once for each limiter
// that has the zone.
func (r *Registry) Zones() (all []*Zone) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.limiters {
		all = append(all, l.zones...)
	}
	return all
}

// Zone returns a zone by its name; nil: there is none.
func (r *Registry) Zone(name string) *Zone {
	for _, z := range r.Zones() {
		if z.Name == name {
			return z
		}
	}
	return nil
}

// Kinds returns by zone what tells its rules apart from rules that count otherwise.
func (r *Registry) Kinds() map[string]string {
	kinds := make(map[string]string)
	for _, z := range r.Zones() {
		kinds[z.Name] = z.active.Load().kinds
	}
	return kinds
}

// LogRestarts says of the zones whose rules have other kinds than before that their
// counts start anew.
func (r *Registry) LogRestarts(before map[string]string) {
	for name, kinds := range r.Kinds() {
		if was, ok := before[name]; ok && was != kinds {
			r.logRestart(name)
		}
	}
}

// Counters returns the counters of the zones that are in the metrics.
func (r *Registry) Counters() map[string]*metrics.Counters {
	all := make(map[string]*metrics.Counters)
	for _, z := range r.Zones() {
		if c := z.metrics.Counters; c != nil {
			all[z.Name] = c
		}
	}
	return all
}

// Bounds returns how much the tables of all zones may hold, each table once.
func (r *Registry) Bounds() (all []Bound) {
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
