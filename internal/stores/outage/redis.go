package outage

import (
	"context"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// Redis is what the fallback needs of the Redis store: one server, or the masters of a Cluster.
type Redis interface {
	// Usable says whether the node that decides the keys of a tag is called.
	Usable(tag stores.Key) bool

	// AnyUsable says whether any node is called.
	AnyUsable() bool

	// Pausing says whether a node that is back decides no keys yet.
	Pausing() bool

	// Owed returns what is to be called when nothing is owed any more to the nodes that are back
	// now.
	Owed() (paid func())

	// Now returns the time on the clocks of this process and of a tag's node.
	Now(tag stores.Key) memory.Instant

	// HandOver makes handovers of keys of one node in one call. The error is that of the call, or
	// says that the reply cannot be read behind its Keys.
	HandOver(ctx context.Context, some []Handover) (Reply, error)

	// MayHaveRun says whether a call that failed may have been executed, or may still be.
	MayHaveRun(err error) bool

	// Await calls then with what has become of a call that failed, once that is known: its reply may
	// still come.
	Await(err error, then func(Fate))

	// Unswept notes that a tag's node is away while what this process knows is put back: when it
	// answers, [Handovers.LostMemory] is called.
	Unswept(tag stores.Key)

	// ResetAgain puts the latest resets of keys in force again, which a Redis that has lost its memory may have lost.
	ResetAgain(ctx context.Context)

	// Note has Redis told of permits and cost that a zone's request has taken or, if they are
	// negative, released without it.
	Note(z *stores.ZoneCheck, permits, cost int64)

	// Uncharged reports cost that Redis may not have charged and that is not sent again.
	Uncharged(zone string, why stores.Uncharged, cost int64)
}

// Handover is a snapshot, a debt or a block of a key on its way to Redis.
type Handover struct {
	// Handover is the snapshot and the debts, if there is no Block.
	memory.Handover

	// Block is to be put back; nil: this is none.
	Block *memory.KnownBlock

	// BlockTime is what time it should be in Redis by the clock that the block is on.
	BlockTime int64

	// Zone has the counter, key and tag.
	Zone stores.ZoneCheck

	// At is the index of the zone in the check.
	At int

	// Tolerance is by how many microseconds an estimate of Redis' clock may be wrong.
	Tolerance int64

	snapshots *memory.Snapshots // nil with a Block
}

// empty says whether there is nothing to hand over.
func (h *Handover) empty() bool { return h.Told == nil && h.Debts == nil && h.Block == nil }

// Replaces says whether a handover of which Redis refused a part, or which failed, has put back the
// snapshot.
func (h *Handover) Replaces(refused Part, err error) bool {
	return err == nil && h.Told != nil && refused&PartTold == 0
}

// Reply is the reply to handovers.
type Reply struct {
	// Time is when it arrived.
	Time memory.Instant

	// Keys are the outcomes of the handovers, as far as the reply could be read.
	Keys []Outcome
}

// Fate says whether Redis has executed a call that failed.
type Fate struct {
	Known bool // whether that is known
	Ran   bool // whether Redis has executed the call, and replied late

	// Charged says, for each entry of the reply, whether it was charged. The zones of a check are the last entries.
	Charged []bool

	// Handed are the outcomes of the handovers with which the call began.
	Handed []Outcome
}

// charged says whether Redis has charged the i-th of the last n replies.
func (f Fate) charged(i, n int) bool { return len(f.Charged) >= n && f.Charged[len(f.Charged)-n+i] }

// Part is a part of a handover, or several.
type Part byte

// The parts of a handover. A block is what was told.
const (
	PartTold Part = 1 << iota
	PartDebts
)

// Outcome is what became of a handover.
type Outcome struct {
	// Refused is what Redis did not take, because the key was reset since this process was told it,
	// or began to owe it.
	Refused Part

	// Err is why it failed, alone.
	Err error

	// Has is the zone with what Redis has of the key after it; nil: that is not known, or it was a
	// block.
	Has *stores.ZoneCheck
}

// Options configure a [Fallback].
type Options struct {
	// Local says that this process decides without Redis. Otherwise it counts only what is
	// charged after the response, by the whole limits.
	Local bool

	// ShareOf returns among how many instances the limits are divided, in millionths.
	ShareOf func() int64

	// Clock returns the time of this process in microseconds.
	Clock func() int64

	// Clustered says that each key may lie on another node than the one before.
	Clustered bool
}
