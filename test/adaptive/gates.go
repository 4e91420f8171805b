package main

import (
	"math/rand"

	"github.com/dianalimiter/diana/internal/adaptive"
	"github.com/dianalimiter/diana/stores/hash"
)

// gate is what lets requests pass to the upstream. It calls sim.send for those that pass and sim.deny for those
// that do not, and sets the state of those that wait.
type gate interface {
	enter(r *req)
	leave(r *req) // one that waits, whose client leaves or whose max_wait is over
	answered(r *req, ok, left bool)
	release(r *req, ok, left bool)
	limit() int
}

// product is Diana's gate: internal/adaptive as it is.
type product struct {
	s       *sim
	places  *adaptive.Places
	options adaptive.Options
	began   int64 // us since 1970
	ahead   int64 // of this instance's clock
	seats   map[*adaptive.Ticket]*req
}

// least and most are the bounds of all limits.
const least, most = 4, 1000

func newProduct(i int, s *sim) gate {
	p := &product{s: s, places: adaptive.New(), options: adaptive.Options{Min: least, Max: most, Waiting: s.sc.waiting}, seats: map[*adaptive.Ticket]*req{}}
	if s.sc.maxWait == 0 {
		p.options.Waiting = 0
	}
	p.began = 1_700_000_000_000_000 + s.began // the phases' place in it is another with each seed
	if s.sc.skew > 0 {
		p.ahead = int64(s.sc.skew * (2*rand.New(rand.NewSource(int64(i))).Float64() - 1) * 1e6) //nolint:gosec // a simulation
	}
	return p
}

func (p *product) now() int64 { return p.began + int64(p.s.now*1e6) }

func (p *product) enter(r *req) {
	t := adaptive.NewTicket()
	t.Key, t.Band = hash.Key{Hi: 1, Lo: uint64(r.key)}, r.src.band
	r.seat = t
	v, told := p.places.Enter(p.now(), p.ahead, p.options, t)
	switch v {
	case adaptive.Placed:
		p.s.send(r)
	case adaptive.Waits:
		r.state = stQueued
		p.seats[t] = r
	default:
		p.s.deny(r)
	}
	p.tell(told)
}

func (p *product) tell(told *adaptive.Ticket) {
	for t := told; t != nil; {
		next := t.Next()
		r := p.seats[t]
		delete(p.seats, t)
		if t.Verdict() == adaptive.Placed {
			p.s.send(r)
		} else {
			p.s.deny(r)
		}
		t = next
	}
}

func (p *product) leave(r *req) {
	t := r.seat.(*adaptive.Ticket)
	p.places.Leave(t)
	delete(p.seats, t)
}

func (p *product) answered(r *req, ok, left bool) {
	o := adaptive.Good
	switch {
	case left:
		o = adaptive.Left
	case !ok:
		o = adaptive.Failed
	}
	p.places.Answered(p.now(), r.seat.(*adaptive.Ticket), o)
}

func (p *product) release(r *req, _, _ bool) {
	t := r.seat.(*adaptive.Ticket)
	told := p.places.Release(p.now(), t)
	p.tell(told)
}

func (p *product) limit() int { return p.places.State(p.now(), p.options).Limit }

// other is the gate of another limit and queue.
type other struct {
	s        *sim
	l        limit
	q        queue
	inFlight int
}

// permit is what an other limit knows of a request.
type permit struct {
	start    float64
	inFlight int
}

// limit is one of the known limits.
type limit interface {
	Limit(now float64) int
	Start()
	End(now float64, p permit, ok, left bool)
}

func (g *other) enter(r *req) {
	if g.q.len() == 0 && g.inFlight < g.l.Limit(g.s.now) {
		g.q.direct(g.s.now, r)
		g.place(r)
		return
	}
	if g.s.sc.maxWait == 0 || !g.q.push(g.s.now, r) {
		g.s.deny(r)
		return
	}
	r.state = stQueued
	g.fill()
}

func (g *other) place(r *req) {
	g.inFlight++
	r.seat = permit{g.s.now, g.inFlight}
	g.l.Start()
	g.s.send(r)
}

func (g *other) fill() {
	for g.q.len() > 0 && g.inFlight < g.l.Limit(g.s.now) {
		if r := g.q.pop(g.s.now); r != nil {
			g.place(r)
		}
	}
}

func (g *other) leave(r *req)            { g.q.remove(r) }
func (*other) answered(*req, bool, bool) {}
func (g *other) limit() int              { return g.l.Limit(g.s.now) }
func (g *other) release(r *req, ok, left bool) {
	g.inFlight--
	g.l.End(g.s.now, r.seat.(permit), ok, left)
	g.fill()
}
