package stores

import (
	"bytes"
	"sync"
	"time"
)

// question is what one caller wants of the script: asks with their keys. Those
// that belong together are put into one question, and all asks of a question
// into one call. Its memory is used again, but for that of one whose caller left
// before the call that carries it was over.
type question struct {
	b     []byte // what names and asks are written to
	names []argument
	asks  []argument
	zones []shape // in the answers to the asks, in their order
	rules int     // how many are judged
	tag   Key
	end   time.Time // when the caller leaves

	// The answers to its asks, or an error instead.
	text string
	now  int64 // on Redis' clock
	err  error

	state state         // kept by its lane
	ready chan struct{} // told when it is asking or answered, or has left
	batch []*question   // that it asks for, itself among them
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

var questions = sync.Pool{New: func() any {
	return &question{b: make([]byte, 0, 512), ready: make(chan struct{}, 1)}
}}

// maxQuestion bounds what is kept of the memory of a long question.
const maxQuestion = 16 << 10

func newQuestion(end time.Time, tag Key) *question {
	q, _ := questions.Get().(*question)
	q.end, q.tag = end, tag
	return q
}

func (q *question) release() {
	if cap(q.b) > maxQuestion || cap(q.args) > maxQuestion {
		return
	}
	clear(q.batch)
	clear(q.args)
	*q = question{
		b: q.b[:0], names: q.names[:0], asks: q.asks[:0], zones: q.zones[:0],
		ready: q.ready, batch: q.batch[:0], args: q.args[:0], head: argument{b: q.head.b[:0]},
	}
	questions.Put(q)
}

// name adds the names of an item's keys, and returns how many there are.
func (q *question) name(prefix string, it *Item) (keys byte) {
	from := len(q.b)
	q.b = appendName(q.b, prefix, it)
	q.names = append(q.names, argument{b: q.b[from:len(q.b):len(q.b)]})
	if place, _ := it.holds(); !place {
		return 1
	}
	from = len(q.b)
	q.b = appendPlaces(q.b, prefix, it)
	q.names = append(q.names, argument{b: q.b[from:len(q.b):len(q.b)]})
	return 2
}

// decide adds the ask to decide all items.
func (q *question) decide(prefix string, a *Ask) {
	var keys byte
	for i := range a.Items {
		keys += q.name(prefix, &a.Items[i])
	}
	op, from := byte(opDecide), len(q.b)
	if a.Look {
		op = opLook
	} else if a.Items[0].lease.want > 0 { // the only one
		op = opLease
	} else if keys == 1 && len(q.asks) == 0 { // plain asks are decided before all others, and so before debts are charged
		op = opPlain
	}
	q.b = append(q.b, op, keys, byte(len(a.Items)))
	for i := range a.Items {
		it := &a.Items[i]
		q.b = appendZone(q.b, it, it.Cost)
		q.rules += max(1, len(it.Counter.Rules))
		s := shape{seen: prepare(it.Counter).packed.view}
		if it.lease.want > 0 {
			q.b = appendNumber(q.b, it.lease.want)
			s.more = 8
		}
		if place, _ := it.holds(); place {
			s.more = 16
		}
		q.zones = append(q.zones, s)
	}
	q.asks = append(q.asks, argument{b: q.b[from:len(q.b):len(q.b)], zones: len(a.Items)})
}

// add adds an ask that is answered by one byte.
func (q *question) add(names []string, ask []byte) {
	for _, n := range names {
		q.names = append(q.names, argument{b: []byte(n)})
	}
	q.asks = append(q.asks, argument{b: ask, zones: 1})
	q.zones = append(q.zones, shape{})
	q.rules++
}

// cut takes the answer to a question from the answer to several.
func (q *question) cut(r *reply) {
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
