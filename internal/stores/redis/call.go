package redis

import (
	"bytes"
	"sync"
	"time"

	"github.com/dianalimiter/diana/scripts"
	"github.com/dianalimiter/diana/stores"
)

// call is what one caller sends to the script: operations with their keys, such as a check with the handovers of its
// keys. A batcher puts many calls into one EVALSHA, and never splits a call. Calls that go through a batcher are
// pooled, except those that expired before their batch ended.
type call struct {
	b       []byte // where names and operations are written
	names   []argument
	ops     []argument
	zones   []replySize // of the operations, in their order
	reports []report    // of what requests hold, in the operations
	rules   int         // to be judged
	checks  bool        // the caller checks each operation's error, not only that of the call
	codes   string      // of the third-party algorithms of the rules
	tag     stores.Key
	end     time.Time // until when the caller waits

	// The replies to its operations, or an error.
	text string
	now  int64 // on Redis' clock
	err  error

	batching
}

// batching is the part of a call that its batcher uses.
type batching struct {
	state callState
	ready chan struct{} // receives when the state of a call that waits has changed
	batch []*call       // what it sends, itself included
	node  *server       // that decides its keys
	head  heading       // of the batch: its number, and until when it is worth running
	cmd   once          // of the batch
	fate  error         // why the script was not run for it; set by the call that sends
	args  []any         // of the batch
}

// callState is the state of a call in its batcher. A caller that waits is told of a change by the call's channel
// (ready), and then reads the state:
//
//	event                     queued           batched           sending  answered  expired
//	a place becomes free,     batched          -                 -        -         -
//	and it is not the last
//	in the queue's batch
//	a place becomes free,     sending, told    -                 -        -         -
//	and it is the last
//	it joins a batch that     batched          -                 -        -         -
//	has not left
//	it is sent beside its     -                -                 batched  -         -
//	caller
//	its batch ends            -                answered, told    -        -         abandoned
//	its deadline passes       answered with    expired, told     -        -         -
//	                          errUnsent, told
//
// A call begins as sending if few are in flight, otherwise as queued. The caller of a sending call sends the batch
// itself, and does not wait. An expired call is not used again.
type callState uint8

const (
	queued   callState = iota
	batched            // others send it
	sending            // its caller sends it, for all in its batch
	answered           // the reply or the error is there
	expired            // its caller has left before the answer
)

// replySize is the length of the reply for a zone.
type replySize struct {
	seen int // bytes if its key exists
	more int // bytes in any case, after the flags

	flags byte // of the reply
}

var callPool = sync.Pool{New: func() any {
	return &call{b: make([]byte, 0, 512), batching: batching{ready: make(chan struct{}, 1)}}
}}

// maxPooled bounds the memory of a call that is pooled.
const maxPooled = 16 << 10

func newCall(end time.Time, tag stores.Key) *call {
	q, _ := callPool.Get().(*call)
	q.end, q.tag = end, tag
	return q
}

func (q *call) release() {
	if cap(q.b) > maxPooled || cap(q.args) > maxPooled {
		return
	}
	clear(q.batch)
	clear(q.args)
	clear(q.reports)
	*q = call{
		b: q.b[:0], names: q.names[:0], ops: q.ops[:0], zones: q.zones[:0], reports: q.reports[:0],
		batching: batching{ready: q.ready, batch: q.batch[:0], args: q.args[:0], head: heading{argument: argument{b: q.head.b[:0]}}},
	}
	callPool.Put(q)
}

// name adds the names of a zone's keys, and returns their number.
func (q *call) name(prefix string, z *stores.ZoneCheck) (keys int) {
	from := len(q.b)
	q.b = appendName(q.b, prefix, z)
	q.names = append(q.names, argument{b: q.b[from:len(q.b):len(q.b)]})
	keys = 1
	if readsPermits(z) {
		from, keys = len(q.b), keys+1
		q.b = appendPermits(q.b, prefix, z)
		q.names = append(q.names, argument{b: q.b[from:len(q.b):len(q.b)]})
	}
	if z.Guarded() {
		from, keys = len(q.b), keys+1
		q.b = appendBlock(q.b, prefix, z)
		q.names = append(q.names, argument{b: q.b[from:len(q.b):len(q.b)]})
	}
	return keys
}

// decide adds the operation that decides all zones, by a node's clock.
func (q *call) decide(prefix string, check *stores.Check, at *clock) {
	keys := 0
	for i := range check.Zones {
		keys += q.name(prefix, &check.Zones[i])
	}
	op, from := byte(opDecide), len(q.b)
	if check.Peek {
		op = opPeek
	} else if check.Zones[0].Lease.Want > 0 { // the only zone
		op = opLease
	} else if len(check.Zones) == 1 && len(q.ops) == 0 { // the script runs plain operations first, and so before debts are charged
		op = plainOp(&check.Zones[0])
	}
	if op == opPlain || op == opGuard {
		q.b = append(q.b, op, byte(keys), 1)
	} else {
		q.b = appendCount(appendCount(append(q.b, op), keys), len(check.Zones))
	}
	for i := range check.Zones {
		z := &check.Zones[i]
		if permit, _ := z.Holds(); permit && !check.Peek {
			q.reportZone(z, len(q.b)-from)
		}
		of := prepare(z.Counter)
		p := &of.packed
		q.b = of.appendZone(q.b, z, marksOf(check, i), z.Cost, z.Guarded(), at)
		q.rules += max(1, len(z.Counter.Rules))
		q.needs(p)
		s := replySize{seen: p.view}
		if z.Lease.Want > 0 {
			q.b = appendNumber(q.b, z.Lease.Want)
			s.more = 8
		}
		if readsPermits(z) {
			s.more += 16
		}
		if z.Guarded() {
			s.more += blockReplySize
			q.rules += of.searches
		}
		q.zones = append(q.zones, s)
	}
	q.ops = append(q.ops, argument{b: q.b[from:len(q.b):len(q.b)], zones: len(check.Zones)})
}

// plainOp returns the operation that decides one zone.
func plainOp(z *stores.ZoneCheck) byte {
	if readsPermits(z) {
		return opDecide
	} else if z.Guarded() {
		return opGuard
	}
	return opPlain
}

// needs adds the third-party algorithms of a counter to the call.
func (q *call) needs(p *packed) {
	if p.codes != q.codes {
		q.codes = scripts.Decide().ThirdParty([]byte(q.codes + p.codes))
	}
}

// add adds an operation whose reply is one byte.
func (q *call) add(names []string, op []byte) {
	for _, n := range names {
		q.names = append(q.names, argument{b: []byte(n)})
	}
	q.ops = append(q.ops, argument{b: op, zones: 1})
	q.zones = append(q.zones, replySize{})
	q.rules++
}

// batchArgs sets the arguments of the EVALSHA that sends some calls of a batch.
func (q *call) batchArgs(sha any, some []*call) {
	q.args = append(q.args[:0], "evalsha", sha, nil)
	keys := 0
	for _, o := range some {
		for i := range o.names {
			q.args = append(q.args, &o.names[i])
		}
		keys += len(o.names)
	}
	q.args[2] = keys
	q.args = append(q.args, &q.head)
	var before *argument
	for _, o := range some {
		for i := range o.ops {
			q.args, before = appendOp(q.args, before, &o.ops[i])
		}
	}
}

// appendOp appends an operation to the arguments of a call, and returns the last operation that was sent in full
// (before). An operation that equals before, as operations of one zone often do, is sent as an empty argument; if it
// differs only in whether the key is known, as one byte. Redis has less to read, store and hash.
func appendOp(args []any, before, op *argument) ([]any, *argument) {
	switch {
	case before == nil:
	case bytes.Equal(before.b, op.b):
		return append(args, ""), before
	case op.b[0] == opPlain && equalButKnown(before.b, op.b):
		if op.b[plainMarks]&markKnown != 0 {
			return append(args, "+"), before
		}
		return append(args, "-"), before
	}
	return append(args, op), op
}

// plainMarks is where the marks of the zone are in an operation of one zone.
const plainMarks = 4

func equalButKnown(a, b []byte) bool {
	return len(a) == len(b) && bytes.Equal(a[:plainMarks], b[:plainMarks]) && a[plainMarks]^b[plainMarks] == markKnown &&
		bytes.Equal(a[plainMarks+1:], b[plainMarks+1:])
}

// cut cuts the replies of a call off the reply of a batch.
func (q *call) cut(r *reply) {
	whole, zones := r.b, q.zones
	for i := range q.ops {
		for z := range q.ops[i].zones {
			flags := r.byte()
			zones[z].flags = flags
			if z == 0 && flags == flagFailed {
				r.next(int(r.uint32()))
				break
			}
			if flags&flagSeen != 0 {
				r.next(zones[z].seen)
			}
			r.next(zones[z].more)
		}
		zones = zones[q.ops[i].zones:]
	}
	q.text = whole[:len(whole)-len(r.b)]
}

// reportZone notes that the operation of a check, which is added next, also reports what a zone holds. at is the
// offset of the zone in the operation.
func (q *call) reportZone(z *stores.ZoneCheck, at int) {
	q.reports = append(q.reports, report{
		counter: z.Counter, key: z.Key, tag: z.Tag, op: len(q.ops), at: at + reportAt,
		permit: &z.Permit, cost: z.HeldCost(), reply: len(q.zones),
	})
}

// claim gives a check the permits that it was granted.
func (q *call) claim() {
	for i := range q.reports {
		if r := &q.reports[i]; r.granted {
			*r.permit = stores.Permit{Taken: true, Mode: stores.ModeShared}
		}
	}
}

// reportOf adds the operation that reports a record.
func (q *call) reportOf(rec *record, at *clock) {
	q.reports = append(q.reports, report{
		counter: rec.zone.Counter, key: rec.zone.Key, tag: rec.zone.Tag, op: len(q.ops), at: 2 + reportAt, reply: len(q.zones),
	})
	of := prepare(rec.zone.Counter)
	q.add([]string{rec.value, rec.permits}, of.appendZone([]byte{opReport, 2}, &rec.zone, 0, 0, false, at))
	q.needs(&of.packed)
}
