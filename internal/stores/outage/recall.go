package outage

import (
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// Look notes for a check that is about to call Redis which keys this instance knows and which have
// something to hand over. It reports whether what Redis last said may deny the check. local is the clock of
// this process.
func (f *Fallback) Look(check *stores.Check, local int64) (full bool) {
	for i := range check.Zones {
		z := &check.Zones[i]
		if z.Known, z.Due = false, false; check.Peek {
			continue
		}
		if n := memory.TableOf(z.Counter).Snapshots(); n != nil {
			var short bool
			z.Known, z.Due, short = n.Look(z, local)
			full = full || short
		}
		if z.Guarded() && !full {
			_, full = memory.BlocksOf(z.Counter).FindAt(z.Key, local)
		}
	}
	return full
}

// Recall decides a check by what Redis last said of its keys. It reports whether the check is denied, and
// Redis would answer the same: see [memory.Snapshots.Recall].
func (f *Fallback) Recall(check *stores.Check, local, since int64) bool {
	check.Now = 0
	for i := range check.Zones {
		at, exact := recall(&check.Zones[i], check.IsShadow(i), local, since)
		if !exact {
			return false
		}
		check.Now = max(check.Now, at)
	}
	check.Conclude()
	check.Mode, check.Turn = stores.ModeShared, 0
	return !check.Admitted
}

// Ask makes the next check of a zone's key ask Redis, which charged the key and reported nothing of it.
func (f *Fallback) Ask(z *stores.ZoneCheck) {
	if n := memory.TableOf(z.Counter).Snapshots(); n != nil {
		n.Ask(z.Key, f.o.Clock())
	}
}

// recall sets the results of one zone. What others hold may be given back at any moment; under a limit from
// a request what was used may drain faster by another request's; and a denial may start a block.
func recall(z *stores.ZoneCheck, inShadow bool, local, since int64) (at int64, exact bool) {
	if permit, _ := z.Holds(); permit || z.Counter.Varies() {
		return 0, false
	}
	begin(z)
	if z.Guarded() {
		if b, blocked := memory.BlocksOf(z.Counter).FindAt(z.Key, local); blocked {
			at = local + b.Offset
			z.Block = stores.Block{Until: b.Until, Span: b.Span, Rule: b.Rule, Step: b.Step}
			z.DenyBlocked(at)
			return at, b.Asked >= since
		}
		if !inShadow {
			return 0, false
		}
	}
	return said(z, local, since)
}

// Recite sets the results of one zone by what Redis last said of its key, however long ago. It returns the
// time by Redis' clock, 0 if nothing is known, with which the results are zero.
func Recite(z *stores.ZoneCheck, local int64) (at int64) {
	begin(z)
	at, _ = said(z, local, local)
	return at
}

// begin clears the results of a zone, to be decided by the counter's rules.
func begin(z *stores.ZoneCheck) {
	z.Rules = z.Counter.Rules
	z.CutCost(z.Rules)
	z.ResetResults()
	z.Held = 0
}

// said sets the results of a zone by the snapshot of its key.
func said(z *stores.ZoneCheck, local, since int64) (at int64, exact bool) {
	if n := memory.TableOf(z.Counter).Snapshots(); n != nil {
		return n.Recall(z, local, since)
	}
	return 0, false
}
