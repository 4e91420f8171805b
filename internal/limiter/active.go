package limiter

import (
	"encoding/json"
	"fmt"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/pool"
	"github.com/dianalimiter/diana/internal/process"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// activeRules are the rules in force for a zone: its own, changed by the document of a
// rule source. They are immutable and replaced as a whole.
type activeRules struct {
	rules      *ruleSet
	keys       key.Index[*override]
	duplicates *ruleSet // nil without prevent_duplicates

	off    bool
	shadow bool

	text  string          // the zone in the document; empty: not in it
	from  *config.Checked // the zone with the document applied
	kinds string          // see Zone.kinds
	turn  int64           // the longest delay of all zones of the handler, in microseconds

	overrides []*override    // those in keys
	narrow    Narrow         // of keys
	sets      []*ruleSet     // all rule sets
	tables    []Bound        // their tables
	blocks    *memory.Blocks // nil: no rule blocks
	refs      pool.References
	counted   *metrics.Tables   // the metrics with the tables; nil: none
	denials   *metrics.Counters // the metrics with the labels; nil: none
	labels    []string          // of denials
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

	// MaxKeys is the greatest number of keys in the table.
	MaxKeys int64

	// Shared is set if the keys are counted in a shared store, and in the table only
	// while the store is unavailable.
	Shared bool

	// Blocks are the blocks of the zone's keys, with the first of its tables; nil: none.
	Blocks *memory.Blocks
}

// SetMax applies MaxKeys.
func (b *Bound) SetMax() {
	b.Table.SetMax(b.MaxKeys)
	if b.Blocks != nil {
		b.Blocks.SetMax(b.MaxKeys)
	}
}

// Memory returns the most bytes that the keys can take.
func (b *Bound) Memory() (bytes int64) {
	if bytes = b.Table.Memory(b.Shared); b.Blocks != nil {
		bytes += b.Blocks.Memory()
	}
	return bytes
}

// compile compiles the rules and takes a table for each rule set. turn is the longest
// delay of all zones of the handler. After an error, release must be called.
func (a *activeRules) compile(z *Zone, turn int64) (err error) {
	a.turn = turn
	c, t := a.from, tableTaker{zone: z, active: a}
	for _, o := range c.Overrides {
		if o.Set != nil && !single(o) {
			t.many++
		}
	}
	if a.rules, err = t.compile(c.Rules, "", false, turn); err != nil {
		return err
	}
	if err := a.compileOverrides(&t); err != nil {
		return err
	}
	if c.Duplicates != nil {
		if a.duplicates, err = t.compile(c.Duplicates, config.LabelDuplicates, false, 0); err != nil {
			return err
		}
	}
	if z.counted {
		a.counted = z.env.Metrics.Tables
		for _, b := range a.tables {
			a.counted.Add(z.Name, b.Table)
		}
		a.labels = []string{labelInFlight, labelDuplicates, labelKeyMissing, labelStore}
		if z.Config.Plan.MayRepeat() {
			a.labels = append(a.labels, labelRepeated)
		}
		var blocking []string
		for _, s := range a.sets {
			a.labels = append(a.labels, s.Labels...)
			for i, us := range s.Blocks {
				if us > 0 {
					blocking = append(blocking, s.Labels[i])
				}
			}
		}
		a.denials = z.metrics.Counters
		a.denials.Hold(a.labels, blocking)
	}
	return nil
}

// compileOverrides compiles the rules of the overrides, and indexes their keys.
func (a *activeRules) compileOverrides(t *tableTaker) (err error) {
	lists := 0
	for _, o := range a.from.Overrides {
		v := &override{checked: o}
		if o.Many() {
			lists++
		}
		if o.Set != nil {
			if v.set, err = t.compile(o.Set, tableName(o, lists), single(o), a.turn); err != nil {
				return &config.Error{At: o.Override, Err: err}
			}
		}
		a.overrides = append(a.overrides, v)
	}
	return a.index(t.zone, t.zone.env.Lists.text)
}

// single reports whether an override is for exactly one key.
func single(o *config.CheckedOverride) bool {
	for p, err := range o.Patterns() {
		return err == nil && !o.Many() && p.Single()
	}
	return false
}

// tableName returns what distinguishes the table of an override from those of the others:
// its key or, so that counts survive a change of the keys, which of the lists it is.
func tableName(o *config.CheckedOverride, list int) string {
	if o.Many() {
		return fmt.Sprintf("list %d", list)
	}
	name, _ := json.Marshal(o.Key) // never fails
	return string(name)
}

// release returns the tables to the pool.
func (a *activeRules) release() error {
	if a.counted != nil {
		for _, b := range a.tables {
			a.counted.Remove(b.Table)
		}
		a.denials.Drop(a.labels)
		a.counted, a.denials = nil, nil
	}
	return a.refs.Release()
}

// tables are the tables in use. Counts survive reloads and are shared by the handlers
// that define the same zone.
var tables = pool.New[*memory.Table]("tables") // by tableKey

// kinds are what tables in use have in common, by tableKey without an override.
var kinds = pool.New[*memory.Kind]("kinds")

// tableKey identifies a table by the format of its keys and states, and by where they are
// counted: what one Redis has told is not true of another. It does not include limits, so that
// counts survive a changed limit.
type tableKey struct {
	process                           *process.Process
	zone, key, place, override, kinds string
}

// tableTaker takes tables for the rule sets of a zone.
type tableTaker struct {
	zone   *Zone
	active *activeRules
	many   int64 // number of overrides of more than one key
}

// compile compiles a rule set with a table from the pool. The table of an override of a
// single key has room for one. The more overrides of several keys there are, the smaller
// the initial size of each table: thousands of tables of a million keys would take
// gigabytes at once.
func (t *tableTaker) compile(c *config.RuleSet, override string, single bool, turn int64) (*ruleSet, error) {
	z := t.zone
	s, err := newRuleSet(z.Zone, c, z.store.Lease, turn, func(list []algorithms.Rule) *memory.Table {
		maxKeys := z.maxKeys
		if single {
			maxKeys = 1
		}
		id := tableKey{z.env.Process, z.Name, z.Config.Plan.Identity(), z.store.Place, override, c.Kinds(c.Lease(z.Zone, z.store.Lease))}
		of := id
		of.override = ""
		kind := kinds.Take(&t.active.refs, of, func() *memory.Kind { return new(memory.Kind) })
		table := tables.Take(&t.active.refs, id, func() *memory.Table {
			table := memory.NewTable(list, max(1, maxKeys/(1+t.many)))
			table.SetMax(maxKeys)
			table.SetKind(kind)
			return table
		})
		t.active.tables = append(t.active.tables, Bound{Table: table, Zone: z.Name, MaxKeys: maxKeys, Shared: !z.store.local()})
		return table
	}, t.active.takeBlocks(z))
	if err == nil {
		t.active.sets = append(t.active.sets, s)
	}
	return s, err
}

// blocks are the blocks of the zones in use. They survive a change of rules and a reload,
// unless no rule of the zone blocks any more.
var blocks = pool.New[*memory.Blocks]("blocks") // by zoneID

// takeBlocks returns a function that returns the blocks of the zone.
func (a *activeRules) takeBlocks(z *Zone) func() *memory.Blocks {
	return func() *memory.Blocks {
		if a.blocks == nil {
			a.blocks = blocks.Take(&a.refs, z.id, func() *memory.Blocks { return memory.NewBlocks(z.maxKeys) })
			a.tables[0].Blocks = a.blocks
		}
		return a.blocks
	}
}

// copy returns the same rules, not compiled.
func (a *activeRules) copy() *activeRules {
	return &activeRules{off: a.off, shadow: a.shadow, text: a.text, from: a.from, kinds: a.kinds}
}
