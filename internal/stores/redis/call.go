package redis

import (
	"bytes"
	"sync"
	"time"

	"github.com/dianalimiter/diana/internal/stores"
)

// call is what one caller wants of the script: asks with their keys. Those
// that belong together are put into one question, and all asks of a question
// into one call. Its memory is used again, but for that of one whose caller left
// before the call that carries it was over.
type call struct {
	b     []byte // what names and asks are written to
	names []argument
	asks  []argument
	zones []shape // in the answers to the asks, in their order
	rules int     // how many are judged
	tag   stores.Key
	end   time.Time // when the caller leaves

	// The answers to its asks, or an error instead.
	text string
	now  int64 // on Redis' clock
	err  error

	state state         // kept by its lane
	ready chan struct{} // told when it is asking or answered, or has left
	batch []*call       // that it asks for, itself among them
	head  argument      // of that call: its number, and until when it is carried out
	args  []any         // of that call
}

// argument is an argument of a command that is written as it stands.
type argument struct {
	b     []byte
	zones int // of the answer, if it is an ask
}

// MarshalBinary implements encoding.BinaryMarshaler, by which go-redis takes it
// without a copy.
func (a *argument) MarshalBinary() ([]byte, error) { return a.b, nil }

// String is the name of a key, by which a Cluster's slot is found.
func (a *argument) String() string { return string(a.b) }

// appendAsk appends an ask to the arguments of a call, and returns it. One that is
// the same as the one before, as those of one zone often are, goes as an empty
// argument: Redis would have to read, keep and hash it again.
func appendAsk(args []any, before, ask *argument) ([]any, *argument) {
	if before != nil && bytes.Equal(before.b, ask.b) {
		return append(args, ""), before
	}
	return append(args, ask), ask
}

// shape says how long the answer for a zone is.
type shape struct {
	seen int // bytes if its key was seen
	more int // bytes in any case, behind the flags
}

var callPool = sync.Pool{New: func() any {
	return &call{b: make([]byte, 0, 512), ready: make(chan struct{}, 1)}
}}

// maxQuestion bounds what is kept of the memory of a long question.
const maxQuestion = 16 << 10

func newCall(end time.Time, tag stores.Key) *call {
	q, _ := callPool.Get().(*call)
	q.end, q.tag = end, tag
	return q
}

func (q *call) release() {
	if cap(q.b) > maxQuestion || cap(q.args) > maxQuestion {
		return
	}
	clear(q.batch)
	clear(q.args)
	*q = call{
		b: q.b[:0], names: q.names[:0], asks: q.asks[:0], zones: q.zones[:0],
		ready: q.ready, batch: q.batch[:0], args: q.args[:0], head: argument{b: q.head.b[:0]},
	}
	callPool.Put(q)
}

// name adds the names of an item's keys, and returns how many there are.
func (q *call) name(prefix string, z *stores.ZoneCheck) (keys byte) {
	from := len(q.b)
	q.b = appendName(q.b, prefix, z)
	q.names = append(q.names, argument{b: q.b[from:len(q.b):len(q.b)]})
	if place, _ := z.Holds(); !place {
		return 1
	}
	from = len(q.b)
	q.b = appendPlaces(q.b, prefix, z)
	q.names = append(q.names, argument{b: q.b[from:len(q.b):len(q.b)]})
	return 2
}

// decide adds the ask to decide all items.
func (q *call) decide(prefix string, check *stores.Check) {
	var keys byte
	for i := range check.Zones {
		keys += q.name(prefix, &check.Zones[i])
	}
	op, from := byte(opDecide), len(q.b)
	if check.Peek {
		op = opLook
	} else if check.Zones[0].Lease.Want > 0 { // the only one
		op = opLease
	} else if keys == 1 && len(q.asks) == 0 { // plain asks are decided before all others, and so before debts are charged
		op = opPlain
	}
	q.b = append(q.b, op, keys, byte(len(check.Zones)))
	for i := range check.Zones {
		z := &check.Zones[i]
		q.b = appendZone(q.b, z, z.Cost)
		q.rules += max(1, len(z.Counter.Rules))
		s := shape{seen: prepare(z.Counter).packed.view}
		if z.Lease.Want > 0 {
			q.b = appendNumber(q.b, z.Lease.Want)
			s.more = 8
		}
		if place, _ := z.Holds(); place {
			s.more = 16
		}
		q.zones = append(q.zones, s)
	}
	q.asks = append(q.asks, argument{b: q.b[from:len(q.b):len(q.b)], zones: len(check.Zones)})
}

// add adds an ask that is answered by one byte.
func (q *call) add(names []string, ask []byte) {
	for _, n := range names {
		q.names = append(q.names, argument{b: []byte(n)})
	}
	q.asks = append(q.asks, argument{b: ask, zones: 1})
	q.zones = append(q.zones, shape{})
	q.rules++
}

// cut takes the answer to a question from the answer to several.
func (q *call) cut(r *reply) {
	whole, zones := r.b, q.zones
	for i := range q.asks {
		for z := range q.asks[i].zones {
			flags := r.byte()
			if z == 0 && flags == flagFailed {
				r.take(int(r.uint32()))
				break
			}
			if flags&flagSeen != 0 {
				r.take(zones[z].seen)
			}
			r.take(zones[z].more)
		}
		zones = zones[q.asks[i].zones:]
	}
	q.text = whole[:len(whole)-len(r.b)]
}
