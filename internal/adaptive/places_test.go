package adaptive

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/stores/hash"
)

const ms, second = 1000, 1_000_000

// lab drives places in a time of its own.
type lab struct {
	t   *testing.T
	p   *Places
	o   Options
	now int64

	spare []*Ticket // to be used again
}

func newLab(t *testing.T, o Options) *lab {
	return &lab{t: t, p: New(), o: o, now: 1_700_000_000 * second}
}

func (l *lab) enter(band int, key uint64) (*Ticket, Verdict) {
	x := NewTicket()
	if n := len(l.spare); n > 0 {
		x, l.spare = l.spare[n-1], l.spare[:n-1]
	}
	x.Key, x.Band = hash.Key{Lo: key}, band
	v, told := l.p.Enter(l.now, 0, l.o, x)
	Tell(told)
	return x, v
}

// serve has a request that has a place take so long.
func (l *lab) serve(took int64, o Outcome) {
	x, v := l.enter(0, 1)
	if v != Placed {
		l.t.Fatalf("verdict %d: want a place", v)
	}
	l.now += took
	l.end(x, o)
}

func (l *lab) end(x *Ticket, o Outcome) {
	l.p.Answered(l.now, x, o)
	Tell(l.p.Release(l.now, x))
	l.spare = append(l.spare, x)
}

func (l *lab) state() State { return l.p.State(l.now, l.o) }

func TestPlacesAndQueue(t *testing.T) {
	l := newLab(t, Options{Min: 2, Max: 2, Waiting: 2})
	a, _ := l.enter(0, 1)
	l.enter(0, 2)
	c, v := l.enter(1, 3)
	d, w := l.enter(0, 4)
	if v != Waits || w != Waits {
		t.Fatalf("verdicts %d, %d: want both to wait", v, w)
	}
	if _, v := l.enter(2, 5); v != Refused {
		t.Fatalf("verdict %d: want the least of a full queue refused", v)
	}
	e, v := l.enter(0, 6)
	if v != Waits || c.Verdict() != Refused {
		t.Fatalf("verdict %d, and %d of the lower band: want it to wait in place of the other", v, c.Verdict())
	}
	<-c.Told()
	l.now += 10 * ms
	l.end(a, Good)
	<-d.Told()
	if d.Verdict() != Placed {
		t.Fatalf("verdict %d: want the first that waits to have the place", d.Verdict())
	}
	if s := l.state(); s.InFlight != 2 || s.Waiting != [Bands]int{1} {
		t.Fatalf("%d in flight, %v wait: want 2 and one of the first band", s.InFlight, s.Waiting)
	}
	if v := l.p.Leave(e); v != Waits {
		t.Fatalf("verdict %d: want that it waited", v)
	}
	if v := l.p.Leave(d); v != Placed {
		t.Fatalf("verdict %d: want that it has a place", v)
	}
	Tell(l.p.Release(l.now, d))
	if s := l.state(); s.InFlight != 1 || s.Waiting != [Bands]int{} {
		t.Fatalf("%d in flight, %v wait: want 1 and none", s.InFlight, s.Waiting)
	}
}

// TestRetryIsWhatWaitsBefore has ten requests end a second, and three wait.
func TestRetryIsWhatWaitsBefore(t *testing.T) {
	l := newLab(t, Options{Min: 1, Max: 1, Waiting: 3})
	running, _ := l.enter(0, 1)
	for range 20 {
		next, _ := l.enter(0, 1)
		l.now += 100 * ms
		l.end(running, Good)
		<-next.Told()
		running = next
	}
	for range 3 {
		l.enter(0, 1)
	}
	x, v := l.enter(1, 2)
	if v != Refused || x.Retry() < 350*ms || x.Retry() > 450*ms {
		t.Fatalf("verdict %d, to retry after %d us: want refused, and about 400 ms", v, x.Retry())
	}
	y, _ := l.enter(0, 3)
	if y.verdict == Refused && y.Retry() > 450*ms {
		t.Fatalf("to retry after %d us: want what waits before it", y.Retry())
	}
}

// TestPlacesAreConserved does anything in any order: in the end nothing is in flight and nothing waits, in flight is never
// above the limit when a place is given, each that waited is told once, and no key has requests. Reloads let requests
// wait, and let none.
func TestPlacesAreConserved(t *testing.T) {
	r := seeded(t)
	l := newLab(t, Options{Min: 3, Max: 30, Waiting: 20})
	var waiting, placed []*Ticket
	settle := func() {
		waiting = slices.DeleteFunc(waiting, func(x *Ticket) bool {
			select {
			case <-x.Told():
			default:
				return false
			}
			if x.Verdict() == Placed {
				placed = append(placed, x)
			} else {
				l.spare = append(l.spare, x)
			}
			return true
		})
	}
	for range 50_000 {
		l.now += r.Int64N(5 * ms)
		if len(waiting) == 0 && r.IntN(50) == 0 {
			l.o.Waiting = 20 - l.o.Waiting
		}
		switch r.IntN(8) {
		case 0, 1, 2, 3:
			before := l.state()
			x, v := l.enter(r.IntN(Bands), r.Uint64N(10))
			switch {
			case v == Waits:
				waiting = append(waiting, x)
			case v == Refused:
				l.spare = append(l.spare, x)
			case before.InFlight >= before.Limit:
				t.Fatalf("a place with %d in flight and a limit of %d", before.InFlight, before.Limit)
			default:
				placed = append(placed, x)
			}
		case 4, 5, 6:
			if len(placed) == 0 {
				break
			}
			i := r.IntN(len(placed))
			x := placed[i]
			placed = slices.Delete(placed, i, i+1)
			if r.IntN(5) == 0 {
				Tell(l.p.Release(l.now, x))
				l.spare = append(l.spare, x)
			} else {
				l.end(x, Good+Outcome(r.IntN(3)))
			}
		case 7:
			if len(waiting) == 0 {
				break
			}
			i := r.IntN(len(waiting))
			if v := l.p.Leave(waiting[i]); v != Waits {
				t.Fatalf("verdict %d of a request that was not told: want that it waits", v)
			}
			l.spare = append(l.spare, waiting[i])
			waiting = slices.Delete(waiting, i, i+1)
		}
		Tell(l.p.Fill(l.now))
		settle()
		s := l.state()
		if n := total(s.Waiting); n != len(waiting) || n > l.o.Waiting || s.InFlight != len(placed) {
			t.Fatalf("%d wait and %d are in flight: want %d and %d", n, s.InFlight, len(waiting), len(placed))
		}
		if s.Limit < 3 || s.Limit > 30 {
			t.Fatalf("limit %d: want 3 to 30", s.Limit)
		}
	}
	for _, x := range waiting {
		l.p.Leave(x)
	}
	for _, x := range placed {
		l.end(x, Good)
	}
	for i := range l.p.queue.bands {
		for _, f := range l.p.queue.bands[i].flows {
			if f.requests != 0 {
				t.Fatalf("key %v has %d requests of none", f.key, f.requests)
			}
		}
	}
}

func total(n [Bands]int) (sum int) {
	for _, x := range n {
		sum += x
	}
	return sum
}

func TestReloadKeepsTheLimit(t *testing.T) {
	l := newLab(t, Options{Min: 1, Max: 100})
	for range 40 {
		l.serve(10*ms, Good)
	}
	if got := l.state().Limit; got != initial {
		t.Fatalf("limit %d of places that are never full: want %d", got, initial)
	}
	l.o.Max = 10
	if got := l.state().Limit; got != 10 {
		t.Fatalf("limit %d: want the greatest, 10", got)
	}
	l.o = Options{Min: 15, Max: 100}
	if got := l.state().Limit; got != 15 {
		t.Fatalf("limit %d: want the least, 15", got)
	}
}

func BenchmarkPlace(b *testing.B) {
	p, o, now := New(), Options{Min: 4, Max: 1000, Waiting: 100}, int64(1_700_000_000*second)
	x := NewTicket()
	x.Key.Lo = 1
	b.ReportAllocs()
	for b.Loop() {
		p.Enter(now, 0, o, x)
		now += 100
		p.Answered(now, x, Good)
		p.Release(now, x)
	}
}

// TestHandlersThatWaitDifferently has handlers with and without max_wait share places: the limit is not decided about before
// a pair of phases ends.
func TestHandlersThatWaitDifferently(t *testing.T) {
	l := newLab(t, Options{Min: 1, Max: 100})
	l.serve(ms, Good)
	l.p.limit.starting = false
	l.p.limit.samples = [2]phaseSamples{{n: fewest, mean: ms}, {n: fewest, mean: 10 * ms}}
	l.o.Waiting = 5
	l.serve(ms, Good)
	if s := l.state(); s.Moves != [3]uint64{} {
		t.Errorf("%+v: want no move yet", s)
	}
}

// TestPeek checks that Peek says what Enter does.
func TestPeek(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l := newLab(t, Options{Min: 2, Max: 2, Waiting: 3})
	var placed, waiting []*Ticket
	seen := map[Verdict]int{}
	for range 10_000 {
		l.now += r.Int64N(second)
		switch n := r.IntN(8); {
		case n == 0:
			l.o.Min, l.o.Max = 1+r.IntN(3), 3
		case n == 1:
			l.o.Waiting = r.IntN(4)
		case n < 5 && len(placed) > 0:
			l.end(placed[0], Good)
			placed = placed[1:]
		default:
			band, k := r.IntN(3), r.Uint64N(4)
			_, want := l.p.Peek(l.now, l.o, hash.Key{Lo: k}, band)
			x, v := l.enter(band, k)
			if v != want {
				t.Fatalf("verdict %d, after a peek that said %d", v, want)
			}
			if seen[v]++; v != Refused {
				waiting = append(waiting, x)
			}
		}
		waiting = slices.DeleteFunc(waiting, func(x *Ticket) bool {
			select {
			case <-x.Told():
			default:
			}
			if x.Verdict() == Placed {
				placed = append(placed, x)
			}
			return x.Verdict() != Waits
		})
	}
	if len(seen) != 3 {
		t.Errorf("verdicts %v: want all", seen)
	}
}
