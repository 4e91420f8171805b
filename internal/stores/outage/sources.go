package outage

import (
	"cmp"
	"slices"
	"sync"
	"weak"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// source is keys that have something to hand over.
type source interface {
	// next appends keys to a list, up to its capacity, and returns where to continue.
	next(keys []stores.Key, from memory.Cursor) ([]stores.Key, memory.Cursor)

	// tag returns the tag of a key, by which its node is found.
	tag(k stores.Key) stores.Key

	// take takes what a key has to hand over. more says that it has more.
	take(k stores.Key) (h Handover, more bool)

	// counter returns the counter whose keys they are.
	counter() *stores.Counter

	// lost says that Redis may have lost it: if it cannot be handed over now, all is put back when
	// the node answers.
	lost() bool
}

// keys are keys of a counter's table.
type keys struct {
	of    *taker
	c     *stores.Counter
	table *memory.Snapshots
	as    func(override int64) *stores.Counter // under which what is known of a key is handed over
}

func (s keys) counter() *stores.Counter { return s.c }

func (s keys) tag(k stores.Key) stores.Key {
	tag, _ := s.table.Origin(k)
	return tag
}

// takeKey takes what a key owes, and its snapshot if that is to be told, or in any case with told.
func (s keys) takeKey(k stores.Key, told bool) (h Handover, more bool) {
	tag, override := s.table.Origin(k)
	return s.of.take(s.table, &stores.ZoneCheck{Counter: s.as(override), Subject: stores.Subject{Key: k, Tag: tag}}, s.of.redis.Now(tag), told)
}

// debtors are keys that owe.
type debtors struct{ keys }

func (s debtors) next(keys []stores.Key, from memory.Cursor) ([]stores.Key, memory.Cursor) {
	return s.table.Debtors(keys, from)
}

func (s debtors) take(k stores.Key) (Handover, bool) { return s.takeKey(k, false) }
func (debtors) lost() bool                           { return false }

// snapshots are keys with snapshots that still count.
type snapshots struct{ keys }

func (s snapshots) next(keys []stores.Key, from memory.Cursor) ([]stores.Key, memory.Cursor) {
	return s.table.Living(keys, from, s.c.Rules, s.of.o.Clock())
}

func (s snapshots) take(k stores.Key) (Handover, bool) { return s.takeKey(k, true) }
func (snapshots) lost() bool                           { return true }

// adopted are the counters of rules that are or were in force, whose keys have snapshots or blocks.
type adopted struct {
	mu    sync.Mutex
	known []weak.Pointer[stores.Counter]
}

func (a *adopted) add(c *stores.Counter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = slices.DeleteFunc(a.known, func(w weak.Pointer[stores.Counter]) bool { return w.Value() == nil })
	a.known = append(a.known, weak.Make(c))
}

// counters returns the counters by their tables: the last that
// was adopted and is in use, for a configuration that was tried may be gone.
func (a *adopted) counters() map[stores.Table]*stores.Counter {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[stores.Table]*stores.Counter)
	for _, w := range a.known {
		if c := w.Value(); c != nil {
			all[c.Table] = c
		}
	}
	return all
}

// chargedAs returns the counter under which what is known of a key is handed over: that of its
// override in force, or else before, or else c.
func (a *adopted) chargedAs(c *stores.Counter) func(override int64) *stores.Counter {
	now := a.counters()[c.Table]
	return func(override int64) *stores.Counter {
		if now != nil && now.Overrides[override] != nil {
			return now.Overrides[override]
		}
		return cmp.Or(cmp.Or(c.Base, c).Overrides[override], c)
	}
}
