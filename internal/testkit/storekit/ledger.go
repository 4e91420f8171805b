package storekit

import (
	"context"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/records"
)

// Ledger is a store that decides by package records. Tests compare the verdicts and the states of another
// store with its own, and charge there what no request charges.
type Ledger struct {
	// Clock returns the present in microseconds.
	Clock func() int64

	records map[ledgerKey]*records.Record
}

type ledgerKey struct {
	zone string
	key  stores.Key
}

// of returns the record of a zone's key.
func (l *Ledger) of(z *stores.ZoneCheck) *records.Record {
	k := ledgerKey{z.Counter.Zone, z.Key}
	r := l.records[k]
	if r == nil {
		if l.records == nil {
			l.records = make(map[ledgerKey]*records.Record)
		}
		r = new(records.Record)
		l.records[k] = r
	}
	return r
}

// Decide implements [stores.Store].
func (l *Ledger) Decide(_ context.Context, check *stores.Check) {
	of := make([]*records.Record, len(check.Zones))
	for i := range of {
		of[i] = l.of(&check.Zones[i])
	}
	records.Decide(check, of, l.Clock(), "ledger")
}

// Finish implements [stores.Store].
func (l *Ledger) Finish(_ context.Context, z *stores.ZoneCheck, charge int64) {
	z.Permit = records.Finish(z, l.of(z), charge, l.Clock(), "ledger")
}

// Unblock ends the block of a zone's key.
func (l *Ledger) Unblock(z *stores.ZoneCheck) { l.of(z).Block = stores.Block{} }

// Forget forgets all that was counted.
func (l *Ledger) Forget() { l.records = nil }

// States returns the states of a zone's key, one for each rule; nil: it was never decided.
func (l *Ledger) States(z *stores.ZoneCheck) []algorithms.State {
	if c := l.of(z).Counts[z.Counter.Kinds]; c != nil {
		return c.States
	}
	return nil
}

// Update calls change with the state of each rule of a zone's key, which has room for cost more.
func (l *Ledger) Update(z *stores.ZoneCheck, now int64, cost func(rule int) int64, change func(rule int, s algorithms.State)) {
	if l.States(z) == nil {
		l.Decide(context.Background(), &stores.Check{Peek: true, Zones: []stores.ZoneCheck{{Counter: z.Counter, Subject: z.Subject, Cost: 1, IgnoreBlock: true}}})
	}
	states := l.States(z)
	for i, r := range z.Rules {
		if g, ok := r.(algorithms.Growing); ok {
			if n := g.Need(states[i], now, cost(i)); n > len(states[i]) {
				longer := make(algorithms.State, n)
				g.Move(longer, states[i])
				states[i] = longer
			}
		}
		change(i, states[i])
	}
}
