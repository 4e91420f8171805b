package diana

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/rules"
)

// terms are the rules of a zone that are in force: its own, or what a document
// from outside makes of them. They do not change; others take their place.
type terms struct {
	limits
	off       bool
	shadow    bool
	overrides overrides // the list, by key

	text     string // what the document says of the zone; empty: nothing
	from     *Zone  // what they were made of
	kinds    string
	many     int64 // overrides with rules of more than one key: see table
	maxDelay int64 // the longest turn that a rule gives, in microseconds
	lease    int64 // of the zone's store, in microseconds
	turn     int64 // the longest of all zones of the handler, for which they were compiled

	refs   references
	bounds []bound
	shown  bool // the tables are in the metrics
}

// provisionTerms puts the zones' own rules in force.
func (h *Handler) provisionTerms() error {
	c, err := h.change(nil)
	if err != nil {
		var at *rules.Error
		if errors.As(err, &at) {
			err = at.Err // the configuration is no document
		}
		return err
	}
	return c.commit()
}

// change is what a document makes of a handler's zones, compiled, but not yet
// in force. One of commit and undo must be called.
type change struct {
	h         *Handler
	old, next []*terms
}

// change prepares to put a document in force, or without one the zones' own
// rules. The app's lock is held.
func (h *Handler) change(d *rules.Document) (*change, error) {
	c := &change{h: h, old: make([]*terms, len(h.zones)), next: make([]*terms, len(h.zones))}
	var turn int64
	for i, z := range h.zones {
		c.old[i] = z.terms.Load()
		t, err := h.draft(z, d.Of(z.Name))
		if err != nil {
			return nil, inZone(z, err)
		}
		c.next[i] = t
		turn = max(turn, t.maxDelay)
	}
	if err := h.checkStores(c.next); err != nil {
		return nil, &rules.Error{Pointer: "/zones", Err: err}
	}
	for i, z := range h.zones {
		if c.next[i] == c.old[i] && turn != c.old[i].turn {
			c.next[i] = c.old[i].again()
		}
		if c.next[i] == c.old[i] {
			continue
		}
		if err := h.compile(z, c.next[i], turn); err != nil {
			return nil, errors.Join(inZone(z, c.next[i].place(err)), c.undo())
		}
	}
	return c, nil
}

func inZone(z *zone, err error) error {
	var at *rules.Error
	if !errors.As(err, &at) {
		err = &rules.Error{Err: fmt.Errorf("zone %s: %w", z.Name, err)}
	}
	return rules.At("/zones"+rules.Pointer(z.Name), err)
}

// commit puts the change in force.
func (c *change) commit() error {
	for i, z := range c.h.zones {
		if t := c.next[i]; t != c.old[i] {
			z.terms.Store(t)
		}
	}
	return c.h.release(c.old, c.next)
}

// undo gives back what the change took.
func (c *change) undo() error { return c.h.release(c.next, c.old) }

// release gives back what terms took, but for those that are kept.
func (h *Handler) release(all, kept []*terms) (err error) {
	for i, t := range all {
		if t == nil || kept != nil && t == kept[i] {
			continue
		}
		if t.shown {
			for _, b := range t.bounds {
				h.app.metrics.tables.remove(b.table)
			}
			t.shown = false
		}
		err = errors.Join(err, t.refs.release())
	}
	return err
}

// draft reads what a document says of a zone. Without a change the terms that
// are in force are returned.
func (h *Handler) draft(z *zone, d *rules.Zone) (*terms, error) {
	text := ""
	if d != nil {
		text = string(d.Text)
	}
	if now := z.terms.Load(); now != nil && now.text == text {
		return now, nil
	}
	t := &terms{limits: z.limits, shadow: z.Shadow, from: z.Zone, text: text}
	if d != nil {
		var err error
		if t.from, err = z.given(d); err != nil {
			return nil, err
		}
		b, err := newZone(t.from)
		if err != nil {
			return nil, t.place(unnamed(err))
		}
		t.shadow, t.limits = t.from.Shadow, b.limits
		t.off = d.Enabled != nil && !*d.Enabled
	} else if z.terms.Load() != nil {
		b, err := newZone(z.Zone) // compiled rules belong to the terms they are in
		if err != nil {
			return nil, err
		}
		t.limits = b.limits
	}
	if s, ok := z.store.(*redis.Store); ok {
		t.lease = s.Lease()
	}
	t.leaseAll()
	t.kinds = h.kindsOf(z, t.rules)
	for _, s := range t.sets() {
		t.maxDelay = max(t.maxDelay, s.maxDelay)
	}
	return t, nil
}

// again are the same terms, not yet compiled.
func (t *terms) again() *terms {
	b, err := newZone(t.from)
	if err != nil { // they were checked before
		return t
	}
	next := &terms{
		limits: b.limits, off: t.off, shadow: t.shadow,
		text: t.text, from: t.from, kinds: t.kinds, maxDelay: t.maxDelay, lease: t.lease,
	}
	next.leaseAll()
	return next
}

// leaseAll lets parts of all limits be charged in advance, if the store wants it.
func (t *terms) leaseAll() {
	for _, s := range t.sets() {
		s.setLease(t.from, t.lease)
	}
}

// given is a zone with what a document says of it.
func (z *zone) given(d *rules.Zone) (*Zone, error) {
	c := *z.Zone
	if d.Shadow != nil {
		c.Shadow = *d.Shadow
	}
	if d.HasRules {
		list, err := readRules(d.Rules)
		if err != nil {
			return nil, rules.At("/rules", err)
		}
		c.Rules = list
	}
	if d.HasOverrides {
		c.Overrides = nil
		for i, text := range d.Overrides {
			o, err := readOverride(text)
			if err != nil {
				return nil, rules.At(fmt.Sprintf("/overrides/%d", i), err)
			}
			c.Overrides = append(c.Overrides, o)
		}
	}
	return &c, nil
}

func readRules(texts []json.RawMessage) ([]*Rule, error) {
	list := make([]*Rule, len(texts))
	for i, text := range texts {
		r := new(Rule)
		err := rules.Fields(text, map[string]any{
			"name": &r.Name, "limit": &r.Limit, "window": &r.Window, "algorithm": &r.AlgorithmRaw,
		})
		if err != nil {
			return nil, rules.At(fmt.Sprintf("/%d", i), err)
		}
		list[i] = r
	}
	return list, nil
}

func readOverride(text json.RawMessage) (*Override, error) {
	o := new(Override)
	var list []json.RawMessage
	err := rules.Fields(text, map[string]any{"key": &o.Key, "unlimited": &o.Unlimited, "rules": &list})
	if err != nil {
		return nil, err
	}
	if o.Rules, err = readRules(list); err != nil {
		return nil, rules.At("/rules", err)
	}
	return o, nil
}

// unnamed is an error of [newZone] without the zone's name, which the pointer
// has.
func unnamed(err error) error {
	var at *configError
	if errors.As(err, &at) {
		if inner := errors.Unwrap(at.err); inner != nil {
			return &configError{at.at, inner}
		}
	}
	return err
}

// place says where in what the terms were made of an error lies.
func (t *terms) place(err error) error {
	var at *configError
	if !errors.As(err, &at) {
		return err
	}
	for i, r := range t.from.Rules {
		if at.at == r {
			return &rules.Error{Pointer: fmt.Sprintf("/rules/%d", i), Err: at.err}
		}
	}
	for i, o := range t.from.Overrides {
		if at.at == o {
			return &rules.Error{Pointer: fmt.Sprintf("/overrides/%d", i), Err: at.err}
		}
		for j, r := range o.Rules {
			if at.at == r {
				return &rules.Error{Pointer: fmt.Sprintf("/overrides/%d/rules/%d", i, j), Err: at.err}
			}
		}
	}
	return &rules.Error{Err: at.err}
}

// compile takes a table for each set of rules.
func (h *Handler) compile(z *zone, t *terms, turn int64) error {
	t.turn = turn
	for _, v := range t.list {
		if v.set != nil && !v.single() {
			t.many++
		}
	}
	if err := t.rules.compile(z.Zone, turn, h.table(z, t, t.rules, "", false)); err != nil {
		return err
	}
	for _, v := range t.list {
		if v.set == nil {
			continue
		}
		name, err := json.Marshal(v.config.Key)
		if err != nil {
			return err
		}
		if err := v.set.compile(z.Zone, turn, h.table(z, t, v.set, string(name), v.single())); err != nil {
			return &configError{v.config, err}
		}
	}
	if t.duplicates != nil {
		if err := t.duplicates.compile(z.Zone, 0, h.table(z, t, t.duplicates, ruleDuplicates, false)); err != nil {
			return err
		}
	}
	if err := t.overrides.index(t.list, z.hasher); err != nil {
		return err
	}
	if t.shown = !h.DisableMetrics; t.shown {
		for _, b := range t.bounds {
			h.app.metrics.tables.add(z.Name, b.table)
		}
	}
	return nil
}

// table takes the table of a set of rules from the pool, so that its counts
// survive a reload and are one for all handlers that name the zone. one says
// that a single key is counted there. Those of overrides of more keys begin the
// smaller the more they are: thousands that are ready for a million keys would
// take gigabytes before the first.
func (h *Handler) table(z *zone, t *terms, s *ruleSet, override string, one bool) func([]algorithms.Rule) *memory.Table {
	return func(list []algorithms.Rule) *memory.Table {
		holds := h.holds(z, s)
		key := tableKey{z.Name, z.key.identity(z.Zone), override, s.kinds(), holds}
		maxKeys := h.maxKeys(z)
		if one {
			maxKeys = 1
		}
		v, _, _ := tables.LoadOrNew(key, func() (caddy.Destructor, error) {
			table := memory.NewTable(list, holds, max(1, maxKeys/(1+t.many)))
			table.SetMax(maxKeys)
			return table, nil
		})
		t.refs.add(tables, key)
		table, _ := v.(*memory.Table) // nothing else is put there
		t.bounds = append(t.bounds, bound{table, z.Name, maxKeys, z.store != stores.Store(h.app.local)})
		return table
	}
}

// maxKeys is how many keys a set of the zone's rules counts at most.
func (h *Handler) maxKeys(z *zone) int64 {
	return orDefault(orDefault(z.MaxKeys, h.app.MaxKeys), defaultMaxKeys)
}

// kindsOf tells rules apart that count in different ways.
func (h *Handler) kindsOf(z *zone, s *ruleSet) string {
	kinds := s.kinds() + z.key.identity(z.Zone)
	if z.store == h.app.local && h.holds(z, s) {
		kinds += " places" // a table with room for them is another one
	}
	return kinds
}
