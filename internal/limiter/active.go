package limiter

import (
	"encoding/json"
	"fmt"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/pool"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// activeRules are the rules of a zone that are in force: its own, or what a document
// from outside makes of them. They do not change; others take their place.
type activeRules struct {
	rules      *ruleSet
	overrides  key.Index[*override]
	duplicates *ruleSet // nil: without prevent_duplicates

	off    bool
	shadow bool

	text  string          // what the document says of the zone; empty: nothing
	from  *config.Checked // what they were made of
	kinds string          // tells rules apart that count in different ways
	turn  int64           // the longest turn of all zones of the handler, for which they were compiled

	sets    []*ruleSet // all of them, each with a table
	tables  []Bound
	refs    pool.References
	counted *metrics.Tables // that show the tables; nil: they are not shown
}

// override is other rules for some keys.
type override struct {
	key []string // as it is configured
	set *ruleSet // nil: unlimited
}

// Bound is how much a table may hold.
type Bound struct {
	// Table counts keys in this process.
	Table *memory.Table

	// Zone is the name of the table's zone.
	Zone string

	// MaxKeys is how many keys the table may hold.
	MaxKeys int64

	// Shared says that the keys are counted in a shared store, and here only while
	// it is away.
	Shared bool
}

// compile compiles the rules and takes a table for each set of them. turn is the
// longest turn of all zones of the handler. On an error release must be called.
func (a *activeRules) compile(z *Zone, turn int64) (err error) {
	a.turn = turn
	c, t := a.from, tableTaker{zone: z, active: a}
	for _, o := range c.Overrides {
		if o.Set != nil && !o.Pattern.Single() {
			t.many++
		}
	}
	if a.rules, err = t.ruleSet(c.Rules, "", false); err != nil {
		return err
	}
	for _, o := range c.Overrides {
		v := &override{key: o.Key}
		if o.Set != nil {
			name, err := json.Marshal(o.Key)
			if err != nil {
				return err
			}
			if v.set, err = t.ruleSet(o.Set, string(name), o.Pattern.Single()); err != nil {
				return &config.Error{At: o.Override, Err: err}
			}
		}
		if !a.overrides.Add(o.Pattern, z.store.Hasher, v) {
			return &config.Error{At: o.Override, Err: fmt.Errorf("override %q stands twice", o.Key)}
		}
	}
	if c.Duplicates != nil {
		if a.duplicates, err = t.duplicates(c.Duplicates); err != nil {
			return err
		}
	}
	if z.counted {
		a.counted = z.env.Metrics.Tables
		for _, b := range a.tables {
			a.counted.Add(z.Name, b.Table)
		}
	}
	return nil
}

// release gives back the tables.
func (a *activeRules) release() error {
	if a.counted != nil {
		for _, b := range a.tables {
			a.counted.Remove(b.Table)
		}
		a.counted = nil
	}
	return a.refs.Release()
}

// tables are those of all configurations that run, so that counts survive a reload
// and are one for all handlers that name a zone.
var tables = pool.New[*memory.Table]("tables") // by tableKey

// tableKey tells tables apart: by everything that gives their keys and states a
// meaning, and nothing else, so that a changed limit finds its counts again.
type tableKey struct {
	zone, key, override, kinds string
	permits                    bool
}

// tableTaker takes tables for the rule sets of a zone.
type tableTaker struct {
	zone   *Zone
	active *activeRules
	many   int64 // overrides of more than one key
}

func (t *tableTaker) ruleSet(c *config.RuleSet, override string, single bool) (*ruleSet, error) {
	return t.compile(c, override, single, t.active.turn)
}

func (t *tableTaker) duplicates(c *config.RuleSet) (*ruleSet, error) {
	return t.compile(c, config.LabelDuplicates, false, 0)
}

// compile compiles a set of rules with a table from the pool. A single key needs
// room for one. The tables of overrides of more keys start the smaller the more they
// are: thousands that are ready for a million keys would take gigabytes at once.
func (t *tableTaker) compile(c *config.RuleSet, override string, single bool, turn int64) (*ruleSet, error) {
	z := t.zone
	s, err := newRuleSet(z.Zone, c, z.store.Lease, turn, func(list []algorithms.Rule) *memory.Table {
		maxKeys := z.maxKeys
		if single {
			maxKeys = 1
		}
		permits := z.permits(c)
		id := tableKey{z.Name, z.Config.Plan.Identity(), override, c.Kinds(c.Lease(z.Zone, z.store.Lease)), permits}
		table := tables.Take(&t.active.refs, id, func() *memory.Table {
			table := memory.NewTable(list, permits, max(1, maxKeys/(1+t.many)))
			table.SetMax(maxKeys)
			return table
		})
		t.active.tables = append(t.active.tables, Bound{table, z.Name, maxKeys, !z.store.local()})
		return table
	})
	if err == nil {
		t.active.sets = append(t.active.sets, s)
	}
	return s, err
}

// copy returns the same rules, yet to be compiled.
func (a *activeRules) copy() *activeRules {
	return &activeRules{off: a.off, shadow: a.shadow, text: a.text, from: a.from, kinds: a.kinds}
}
