package limiter

import (
	"fmt"
	"hash/fnv"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// activeRules are the rules in force for a zone: its own, changed by the document of a
// rule source. They are immutable and replaced as a whole.
type activeRules struct {
	rules      *ruleSet
	keys       key.Index[*override]
	exceptions *key.Index[*override] // precede keys until they end; nil: none
	duplicates *ruleSet              // nil without prevent_duplicates

	shadow bool

	document *config.Changes // what the document says of the zone; nil: nothing
	from     *config.Checked // the zone with the document applied
	kinds    string          // see Zone.kinds
	turn     int64           // the longest delay of all zones of the handler, in microseconds

	overrides []*override    // those in keys
	narrow    Narrow         // of keys
	sets      []*ruleSet     // all rule sets
	tables    []*Bound       // their tables
	blocks    *memory.Blocks // nil: no rule blocks
	refs      pool.References
	counted   map[string]*metrics.Rule // by label; nil: not counted
}

// off reports whether the zone is not enabled, which only a document can say.
func (a *activeRules) off() bool {
	return a.document != nil && a.document.Enabled != nil && !*a.document.Enabled
}

// override is the compiled rules for some keys.
type override struct {
	checked *config.CheckedOverride
	set     *ruleSet // nil: unlimited
}

// Bound is the capacity of a table.
type Bound struct {
	// Table counts keys in this process.
	Table *memory.Table

	// Zone is the name of the table's zone.
	Zone string

	// MaxKeys is the greatest number of keys in the table, and Reserved the greatest number of keys of
	// overrides in addition.
	MaxKeys, Reserved int64

	// Blocks are the blocks of the zone's keys, with the first of its tables; nil: none.
	Blocks *memory.Blocks

	limits, reserved []int64 // the most that a key can be charged, by rule, of the zone's and of overrides

	overrides map[int64]*stores.Counter // see Counter.Overrides
	adopts    *stores.Counter           // the counter given to Shared.Adopt; one with Blocked if there is one
}

// SetMax applies MaxKeys and Reserved.
func (b *Bound) SetMax() {
	b.Table.SetMax(b.MaxKeys, b.Reserved)
	if b.Blocks != nil {
		b.Blocks.SetMax(blocksPerKey * b.MaxKeys)
	}
}

// Memory returns the most bytes that the keys can take.
func (b *Bound) Memory() (bytes int64) {
	if bytes = b.Table.Memory(b.limits, b.reserved); b.Blocks != nil {
		bytes += b.Blocks.Memory()
	}
	return bytes
}

// raise raises the limits to the ones of rules. With debts, a key can be charged twice its limit.
func (b *Bound) raise(rules []algorithms.Rule, override, debts bool) {
	limits := &b.limits
	if override {
		limits = &b.reserved
	}
	if *limits == nil {
		*limits = make([]int64, len(rules))
	}
	for i, r := range rules {
		most := r.Limit()
		if debts {
			most *= 2
		}
		(*limits)[i] = max((*limits)[i], most)
	}
}

// counts notes that a counter counts in the table, after the counter is complete.
func (b *Bound) counts(c *stores.Counter) {
	if b.overrides == nil {
		b.overrides = make(map[int64]*stores.Counter)
	}
	c.Overrides = b.overrides
	if !c.Varies() { // a debt is charged under the greatest limit that a request had
		b.overrides[c.Override] = c
	}
	if b.adopts == nil || b.adopts.Blocked == nil {
		b.adopts = c
	}
}

// compile compiles the rules and acquires a table for each rule set. turn is the longest
// delay of all zones of the handler. After an error, release must be called.
func (a *activeRules) compile(z *Zone, turn int64) (err error) {
	a.turn = turn
	c, t := a.from, setCompiler{zone: z, active: a, bounds: make(map[tableKey]*Bound)}
	t.plan(c)
	if a.rules, err = t.compile(c.Rules, 0, turn); err != nil {
		return err
	}
	if err := a.compileOverrides(&t); err != nil {
		return err
	}
	if c.Duplicates != nil {
		if a.duplicates, err = t.compile(c.Duplicates, 0, 0); err != nil {
			return err
		}
	}
	if z.metrics.Counters != nil {
		a.count(z)
	}
	return nil
}

// adopt tells the store which tables' keys it may put back from what this process knows.
func (a *activeRules) adopt(z *Zone) {
	if z.store.fallback == nil {
		return
	}
	for _, b := range a.tables {
		z.store.fallback.Adopt(b.adopts)
	}
}

// compileOverrides compiles the rules of the overrides, and indexes their keys.
func (a *activeRules) compileOverrides(t *setCompiler) (err error) {
	lists := 0
	for _, o := range a.from.Overrides {
		v := &override{checked: o}
		if o.Many() {
			lists++
		}
		if o.Set != nil {
			if v.set, err = t.compile(o.Set, overrideID(o, lists), a.turn); err != nil {
				return err
			}
		}
		a.overrides = append(a.overrides, v)
	}
	return a.index(t.zone, func(file string) string { return t.zone.env.Lists.Text(file) })
}

// count acquires the counters of all labels that a denial can have.
func (a *activeRules) count(z *Zone) {
	a.counted = make(map[string]*metrics.Rule)
	acquire := func(label string) *metrics.Rule {
		if a.counted[label] == nil {
			a.counted[label] = ruleCounters.Acquire(&a.refs, countersID{z.env.Process, z.Name, label}, func() *metrics.Rule { return new(metrics.Rule) })
		}
		return a.counted[label]
	}
	for _, label := range []string{labelInFlight, labelDuplicates, labelKeyMissing, labelStore} {
		acquire(label)
	}
	if z.Config.Plan.MayRepeat() {
		acquire(labelRepeated)
	}
	for _, s := range a.sets {
		for i, label := range s.Labels {
			if r := acquire(label); s.Blocks != nil && s.Blocks[i] > 0 {
				r.Blocks.Store(true)
			}
		}
	}
}

// countedRule returns the counters of a rule; nil: it is not counted, or gone, and only the request
// was decided with it.
func (z *Zone) countedRule(label string) *metrics.Rule { return z.active.Load().counted[label] }

// single reports whether an override is for exactly one key.
func single(o *config.CheckedOverride) bool {
	for p, err := range o.Patterns() {
		return err == nil && !o.Many() && p.Single()
	}
	return false
}

// overrideID returns what distinguishes the counter of an override from the other overrides' counters:
// a hash of its key or, so that it survives a change of the keys, which of the lists it is.
func overrideID(o *config.CheckedOverride, list int) int64 {
	h := fnv.New64a()
	if o.Many() {
		fmt.Fprint(h, list)
	} else {
		fmt.Fprintf(h, "%t%q", o.Exception != nil, o.Key) // a key may have both
	}
	return int64(h.Sum64()>>4) | 1 // never 0
}

// release returns the tables to the pool.
func (a *activeRules) release() error { return a.refs.Release() }

// tables are the tables in use. Counts survive reloads and are shared by the handlers
// that define the same zone.
var tables pool.Pool[*memory.Table] = "tables" // by tableKey

// tableKey identifies a table by the format of its keys and states, and by where they are
// counted: what one Redis has told is not true of another. It does not include limits and
// overrides, so that counts survive a changed limit, and the move of a key onto an override.
type tableKey struct {
	process                 *process.Process
	zone, key, place, kinds string
	duplicates              bool
}

// setCompiler compiles the rule sets of a zone, with tables from the pool.
type setCompiler struct {
	zone   *Zone
	active *activeRules
	bounds map[tableKey]*Bound
	lists  int64 // number of tables with room for overrides of many keys
}

// id returns the identity of the table of a rule set.
func (t *setCompiler) id(c *config.RuleSet) tableKey {
	z := t.zone
	return tableKey{z.env.Process, z.Name, z.Config.Plan.Identity(), z.store.Place, c.Kinds(c.Lease(z.Zone, z.store.Lease)), c.Duplicates}
}

// plan plans the room in the tables: the zone's room in the tables of its own rules, and room for the
// keys of overrides, which other keys do not take. An override of a single key needs it for
// one, others as much as the zone.
func (t *setCompiler) plan(c *config.Checked) {
	t.bound(c.Rules).MaxKeys = t.zone.maxKeys
	if c.Duplicates != nil {
		t.bound(c.Duplicates).MaxKeys = t.zone.maxKeys
	}
	for _, o := range c.Overrides {
		if o.Set == nil || o.Set.Blocked >= 0 {
			continue // nothing is counted
		}
		b := t.bound(o.Set)
		if single(o) {
			b.Reserved = min(b.Reserved+1, t.zone.maxKeys)
		} else {
			b.Reserved = t.zone.maxKeys
		}
	}
	for _, b := range t.bounds {
		if b.Reserved == t.zone.maxKeys {
			t.lists++
		}
	}
}

// bound returns the bound of the table of a rule set.
func (t *setCompiler) bound(c *config.RuleSet) *Bound {
	id := t.id(c)
	b := t.bounds[id]
	if b == nil {
		b = &Bound{Zone: t.zone.Name}
		t.bounds[id] = b
	}
	return b
}

// compile compiles a rule set. override is the Override of its counter. The more lists there are, the
// smaller the initial size of each table: thousands of tables of a million keys would take gigabytes at once.
func (t *setCompiler) compile(c *config.RuleSet, override, turn int64) (*ruleSet, error) {
	z, b := t.zone, t.bound(c)
	in := algorithms.Spec{Lease: z.store.Lease, MaxTurn: turn}
	if z.store.local() {
		in.Wall = z.env.Wall
	}
	s, err := newRuleSet(z.Zone, c, in)
	if err != nil {
		return nil, err
	}
	if b.Table == nil {
		b.Table = tables.Acquire(&t.active.refs, t.id(c), func() *memory.Table {
			newTable := memory.NewTable
			if z.store.local() {
				newTable = memory.NewLocalTable
			}
			table := newTable(s.counter.Rules, max(1, (b.MaxKeys+b.Reserved)/(1+t.lists)))
			table.SetMax(b.MaxKeys, b.Reserved)
			if c.Duplicates {
				table.KeepTags()
			}
			return table
		})
		t.active.tables = append(t.active.tables, b)
	}
	b.raise(s.counter.Rules, override != 0, z.Config.Charge.AfterResponse())
	s.counter.Table, s.counter.Override = b.Table, override
	if c.Blocks != nil {
		s.counter.Blocked = t.active.acquireBlocks(z)
	}
	t.active.sets = append(t.active.sets, s)
	if !z.store.local() {
		b.counts(s.counter)
	}
	return s, nil
}

// copy returns the same rules, not compiled.
func (a *activeRules) copy() *activeRules {
	return &activeRules{shadow: a.shadow, document: a.document, from: a.from, kinds: a.kinds}
}
