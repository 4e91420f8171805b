package adaptive

import "github.com/dianalimiter/diana/stores/hash"

const (
	// Bands is the number of priorities, of which 0 is served first.
	Bands = 8

	credit  = 16   // requests that a key which used nothing for a while may be ahead of the others
	others  = 16   // each so many-th request that leaves is of another band than the first
	maxIdle = 4096 // keys without requests from which on a new key takes the place of the oldest of them
)

// queue orders the requests that wait for a place: by band and, in a band, by start tags of fair queueing. The
// tag of a request is how long its key has held places by then, of the virtual time of its band, which is
// the greatest tag that has left. Times are in microseconds.
type queue struct {
	waiting int
	turn    uint64
	order   uint64 // of the last request: of equal tags, the first come is served first
	bands   [Bands]band
	held    average // how long a request holds a place: of keys that are new

	idle   flow // ring of the keys without requests, the longest so first
	idling int
}

type band struct {
	virtual int64
	heaps   [kinds]heap // of the waiting requests: the first of firstOut is served next, of lastOut shed next
	flows   map[hash.Key]*flow
}

// flow is a key in a band.
type flow struct {
	key        hash.Key
	band       *band
	end        int64 // tag at which its next request starts, at least
	mean       int64 // how long its requests hold a place
	requests   int   // that wait and are in flight
	prev, next *flow // while it is idle
}

// flowOf returns the flow of a ticket, which has one request more.
func (q *queue) flowOf(t *Ticket) *flow {
	b := &q.bands[t.Band]
	f := b.flows[t.Key]
	switch {
	case f == nil:
		if b.flows == nil {
			b.flows = map[hash.Key]*flow{}
		}
		f = q.newFlow()
		*f = flow{key: t.Key, band: b, mean: int64(q.held.value)}
		b.flows[t.Key] = f
	case f.requests == 0:
		q.busy(f)
	}
	f.requests++
	return f
}

// newFlow returns room for a key: that of the key which has been without requests for longest, if there are enough of them.
func (q *queue) newFlow() *flow {
	if q.idling < maxIdle {
		return new(flow)
	}
	f := q.idle.next
	q.busy(f)
	delete(f.band.flows, f.key)
	return f
}

// tag gives a request its tag, and charges its key what its requests hold on average.
func (q *queue) tag(t *Ticket) {
	f := q.flowOf(t)
	q.order++
	t.flow, t.order, t.cost = f, q.order, f.mean
	t.tag = f.start()
	f.end = t.tag + f.mean
}

// start returns the tag of the next request of the key.
func (f *flow) start() int64 { return max(f.band.virtual-credit*f.mean, f.end) }

// sheds reports whether a request of a key that joined the full queue would be the last in order.
func (q *queue) sheds(k hash.Key, band int) bool {
	b, last := &q.bands[band], q.last()
	f := b.flows[k]
	if f == nil {
		f = &flow{band: b, mean: int64(q.held.value)}
	}
	return band > last.Band || band == last.Band && f.start() >= last.tag
}

// direct counts a request that does not wait.
func (q *queue) direct(t *Ticket) {
	q.tag(t)
	b := t.flow.band
	b.virtual = max(b.virtual, t.tag)
}

// push adds a request. If more than most would wait, the last in order goes: the request itself or another, which
// is returned.
func (q *queue) push(t *Ticket, most int) (shed *Ticket) {
	q.tag(t)
	b := &q.bands[t.Band]
	for i := range b.heaps {
		b.heaps[i].push(t, i)
	}
	if q.waiting++; q.waiting <= most {
		return nil
	}
	shed = q.last()
	q.remove(shed)
	return shed
}

// last returns the last in order. At least one must wait.
func (q *queue) last() *Ticket {
	for i := Bands - 1; ; i-- {
		if h := q.bands[i].heaps[lastOut]; len(h) > 0 {
			return h[0]
		}
	}
}

// remove removes a request that gives up waiting.
func (q *queue) remove(t *Ticket) {
	q.take(t)
	q.forgive(t)
}

// forgive takes back what a request was charged that held nothing.
func (q *queue) forgive(t *Ticket) {
	if t.flow == nil {
		return
	}
	t.flow.end -= t.cost
	q.leave(t.flow)
}

// take takes a request out.
func (q *queue) take(t *Ticket) {
	q.waiting--
	b := t.flow.band
	for i := range b.heaps {
		b.heaps[i].remove(t, i)
	}
}

// pop takes out the request that is next: the first in order, or each 16th time the longest waiting of those of
// the other bands. At least one must wait.
func (q *queue) pop() *Ticket {
	q.turn++
	var first, other *Ticket
	for i := range q.bands {
		h := &q.bands[i].heaps
		switch {
		case len(h[oldest]) == 0:
		case first == nil:
			first = h[firstOut][0]
		case other == nil || precedes(h[oldest][0], other, oldest):
			other = h[oldest][0]
		}
	}
	t := first
	if other != nil && q.turn%others == 0 {
		t = other
	}
	q.take(t)
	b := t.flow.band
	b.virtual = max(b.virtual, t.tag)
	return t
}

// done replaces what a request was charged by what it held. The upstream may go on with one whose client has left: it
// is charged as much as requests hold on average, at least.
func (q *queue) done(t *Ticket, held int64) {
	if t.sample.outcome == Left {
		held = max(held, int64(q.held.value))
	} else {
		q.held.add(float64(held))
	}
	f := t.flow
	if f == nil {
		return
	}
	f.end += held - t.cost
	f.mean += (held - f.mean) / 8
	q.leave(f)
}

// leave ends a request of a key.
func (q *queue) leave(f *flow) {
	if f.requests--; f.requests > 0 {
		return
	}
	if q.idle.next == nil {
		q.idle.prev, q.idle.next = &q.idle, &q.idle
	}
	f.prev, f.next = q.idle.prev, &q.idle
	f.prev.next, f.next.prev = f, f
	q.idling++
}

// busy takes a key out of those without requests.
func (q *queue) busy(f *flow) {
	f.prev.next, f.next.prev = f.next, f.prev
	f.prev, f.next = nil, nil
	q.idling--
}
