// Package adaptive finds how many requests an upstream of unknown capacity does best with, and orders those that
// wait: the important first, and of equally important ones those whose clients have used least. It knows no HTTP,
// reads no clock and starts nothing.
//
// # The limit
//
// By Little's law, the requests in flight are throughput times latency. As long as the upstream has room, more in
// flight is more throughput at the same latency; once it is full, it is the same throughput at a longer latency.
// The best limit lies between (L. Kleinrock, "Power and deterministic rules of thumb", 1979). Others look
// for it with a baseline of the latency without load, which drifts while an overload lasts, or must be
// probed for, which harms. [Limit] has none. Two limits alternate, one a little above the estimate and one a
// little below. If latency differs by less than three quarters of what the limits do (in ln), the
// estimate goes up, else down. The phases follow the system's clock in the order of Thue and Morse, so
// that all instances before an upstream vary together, without a word between them, and measure the whole.
//
// # The queue
//
// Eight bands are served in order, and each 16th request that leaves is the longest waiting of the other
// bands, so that none starves. In a band, start-time fair queueing (P. Goyal, H. Vin, H. Cheng, 1996)
// orders by what each key has used, which is measured by the time that its requests hold places.
//
// Times are in microseconds since 1970.
package adaptive

import (
	"sync"

	"github.com/dianalimiter/diana/stores/hash"
)

// Options bound places.
type Options struct {
	Min, Max int // of the limit: the least is at least 1
	Waiting  int // how many requests wait at most; 0: none
}

// Places are the places of the requests in flight to an upstream, and the requests that wait for one. Its methods
// may be called concurrently. Those that return tickets have given a place to them, or refused them
// one, while they waited: the caller is to [Tell] them.
type Places struct {
	mu       sync.Mutex
	options  Options
	limit    Limit
	queue    queue
	inFlight int
	lastEnd  int64   // of a request
	interval average // between ends of requests while all places are taken
}

// New returns places without requests.
func New() *Places {
	return &Places{limit: newLimit()}
}

// Enter asks for a place: the request gets one, waits, or is refused. ahead is by how much the system's clock is
// ahead of now.
func (p *Places) Enter(now, ahead int64, o Options, t *Ticket) (v Verdict, told *Ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.use(o)
	p.limit.ahead = ahead
	t.next = nil
	told = p.fill(now)
	switch {
	case p.queue.waiting == 0 && p.inFlight < p.limit.at(now):
		if t.flow = nil; o.Waiting > 0 { // else no order is needed, and no key remembered
			p.queue.direct(t)
		}
		p.place(now, t)
	case o.Waiting == 0:
		p.refuse(t)
	default:
		t.verdict = Waits
		if shed := p.queue.push(t, o.Waiting); shed != nil {
			p.refuse(shed)
			if shed != t {
				shed.next, told = told, shed
			}
		}
	}
	return t.verdict, told
}

// use puts options in force: a reload may change them. Handlers of one zone may differ in Waiting, which is no matter of
// the limit.
func (p *Places) use(o Options) {
	if p.options.Min != o.Min || p.options.Max != o.Max {
		p.limit.bound(o.Min, o.Max)
	}
	p.options = o
}

func (p *Places) place(now int64, t *Ticket) {
	p.inFlight++
	t.verdict = Placed
	p.limit.start(now, p.inFlight, &t.sample)
}

// fill gives free places to requests that wait.
func (p *Places) fill(now int64) (told *Ticket) {
	last := &told
	for p.queue.waiting > 0 && p.inFlight < p.limit.at(now) {
		t := p.queue.pop()
		p.place(now, t)
		t.next = nil
		*last, last = t, &t.next
	}
	return told
}

// refuse refuses a request that is not in the queue.
func (p *Places) refuse(t *Ticket) {
	before := 1
	for b := range t.Band + 1 {
		before += len(p.queue.bands[b].heaps[firstOut])
	}
	t.verdict, t.retry = Refused, int64(float64(before)*p.interval.value)
}

// Begin notes that a request with a place begins only now, because something else has delayed it.
func (p *Places) Begin(now int64, t *Ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.sample.start, t.sample.full = now, false
}

// Answered tells of the first byte of the answer to a request that has a place, or of its failure. It returns the brake
// if that was a reason for one. What follows the first call changes nothing.
func (p *Places) Answered(now int64, t *Ticket, o Outcome) *Change {
	if t.sample.outcome != Unanswered {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.limit.moves[Brake]
	if p.limit.answered(now, &t.sample, o); p.limit.moves[Brake] == n {
		return nil
	}
	c := p.limit.move
	return &c
}

// Release gives back the place of a request. Nothing is learnt from one that was not Answered, and its key is charged
// nothing: the upstream was not asked.
func (p *Places) Release(now int64, t *Ticket) (told *Ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.sample.outcome == Unanswered {
		p.queue.forgive(t)
	} else {
		p.learn(now, t)
	}
	p.inFlight--
	return p.fill(now)
}

// learn takes how long an answered request held its place.
func (p *Places) learn(now int64, t *Ticket) {
	held := max(0, now-t.sample.start)
	p.limit.ended(held)
	p.queue.done(t, held)
	if p.queue.waiting > 0 || p.inFlight >= p.limit.at(now) {
		p.interval.add(float64(max(0, min(now-p.lastEnd, held)))) // no longer than it held its place: before, others may not have been there
	}
	p.lastEnd = now
}

// Leave ends the wait of a request. If it returns another verdict than Waits, the request got that before and is told.
func (p *Places) Leave(t *Ticket) Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := t.verdict
	if was == Waits {
		p.queue.remove(t)
		p.refuse(t)
	}
	return was
}

// Fill gives free places to requests that wait: a phase with a higher limit may have begun since a request came or
// went.
func (p *Places) Fill(now int64) (told *Ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fill(now)
}

// State is what places are at a time.
type State struct {
	Limit    int        // in force
	InFlight int        // requests that hold a place
	Waiting  [Bands]int // by band
	Moves    [3]uint64  // of the limit, by Move
	Last     Change     // of the moves
}

// State returns the state of the places.
func (p *Places) State(now int64, o Options) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state(now, o)
}

// Peek returns the state of the places, and what Enter would say to a request of a key.
func (p *Places) Peek(now int64, o Options, k hash.Key, band int) (s State, v Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s = p.state(now, o)
	switch free, waiting := max(0, s.Limit-p.inFlight), p.queue.waiting; {
	case waiting < free:
		v = Placed
	case waiting-free < o.Waiting, o.Waiting > 0 && !p.queue.sheds(k, band):
		v = Waits
	}
	return s, v
}

func (p *Places) state(now int64, o Options) State {
	p.use(o)
	s := State{Limit: p.limit.at(now), InFlight: p.inFlight, Moves: p.limit.moves, Last: p.limit.move}
	for b := range s.Waiting {
		s.Waiting[b] = len(p.queue.bands[b].heaps[firstOut])
	}
	return s
}
