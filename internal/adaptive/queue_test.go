package adaptive

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/dianalimiter/diana/stores/hash"
)

// naive is the queue as its definition says it: a list that is searched.
type naive struct {
	waiting []*naiveTicket
	virtual [Bands]int64
	flows   map[naiveKey]*naiveFlow
	held    average
	turn    int
	order   int
}

type naiveKey struct{ band, key int }

type naiveFlow struct{ end, mean int64 }

type naiveTicket struct {
	key             naiveKey
	tag, cost, came int64
	order           int
	real            *Ticket
}

func (n *naive) tag(t *naiveTicket) {
	f := n.flows[t.key]
	if f == nil {
		f = &naiveFlow{mean: int64(n.held.value)}
		n.flows[t.key] = f
	}
	n.order++
	t.order, t.cost = n.order, f.mean
	t.tag = max(f.end, n.virtual[t.key.band]-16*f.mean)
	f.end = t.tag + t.cost
}

// inOrder reports whether a is served before b.
func inOrder(a, b *naiveTicket) int {
	switch {
	case a.key.band != b.key.band:
		return a.key.band - b.key.band
	case a.tag != b.tag && a.tag < b.tag:
		return -1
	case a.tag != b.tag:
		return 1
	}
	return a.order - b.order
}

func (n *naive) push(t *naiveTicket, most int) (shed *naiveTicket) {
	n.tag(t)
	n.waiting = append(n.waiting, t)
	if len(n.waiting) <= most {
		return nil
	}
	shed = slices.MaxFunc(n.waiting, inOrder)
	n.remove(shed)
	return shed
}

func (n *naive) remove(t *naiveTicket) {
	n.take(t)
	n.flows[t.key].end -= t.cost
}

func (n *naive) take(t *naiveTicket) {
	n.waiting = slices.DeleteFunc(n.waiting, func(x *naiveTicket) bool { return x == t })
}

func (n *naive) pop() *naiveTicket {
	n.turn++
	t := slices.MinFunc(n.waiting, inOrder)
	if n.turn%16 == 0 {
		var longest *naiveTicket
		for _, x := range n.waiting {
			if x.key.band != t.key.band && (longest == nil || x.came < longest.came) {
				longest = x
			}
		}
		if longest != nil {
			t = longest
		}
	}
	n.take(t)
	n.virtual[t.key.band] = max(n.virtual[t.key.band], t.tag)
	return t
}

func (n *naive) done(t *naiveTicket, held int64, left bool) {
	if left {
		held = max(held, int64(n.held.value))
	} else {
		n.held.add(float64(held))
	}
	f := n.flows[t.key]
	f.end += held - t.cost
	f.mean += (held - f.mean) / 8
}

// checkQueue runs a trace of operations, of which each byte says one, against the naive queue.
func checkQueue(t *testing.T, trace []byte) {
	t.Helper()
	var q queue
	n := &naive{flows: map[naiveKey]*naiveFlow{}}
	var running []*naiveTicket
	most := 12
	for at, op := range trace {
		now := int64(at)
		fail := func(what string, got, want any) {
			t.Fatalf("operation %d of %v: %s %v: want %v", at, trace[:at+1], what, got, want)
		}
		x := &naiveTicket{key: naiveKey{int(op>>2) % Bands, int(op>>5) % 5}, came: now}
		x.real = &Ticket{Key: hash.Key{Lo: uint64(x.key.key)}, Band: x.key.band}
		switch op % 4 {
		case 0, 1:
			got, want := q.push(x.real, most), n.push(x, most)
			if (got == nil) != (want == nil) || got != nil && got != want.real {
				fail("shed", got, want)
			}
		case 2:
			if len(n.waiting) == 0 {
				q.direct(x.real)
				n.tag(x)
				n.virtual[x.key.band] = max(n.virtual[x.key.band], x.tag)
				running = append(running, x)
				break
			}
			want := n.pop()
			if got := q.pop(); got != want.real {
				fail("next", got, want)
			}
			running = append(running, want)
		default:
			switch i := int(op >> 2); {
			case i%2 == 0 && len(n.waiting) > 0:
				w := n.waiting[i/2%len(n.waiting)]
				n.remove(w)
				q.remove(w.real)
			case len(running) > 0:
				w := running[i%len(running)]
				running = slices.DeleteFunc(running, func(x *naiveTicket) bool { return x == w })
				held, left := int64(op)*1000+1, op%16 == 7
				w.real.sample.outcome = Good
				if left {
					w.real.sample.outcome = Left
				}
				n.done(w, held, left)
				q.done(w.real, held)
			}
		}
		if q.waiting != len(n.waiting) {
			fail("waiting", q.waiting, len(n.waiting))
		}
		for _, w := range n.waiting {
			if w.real.tag != w.tag {
				fail("tag", w.real.tag, w.tag)
			}
		}
	}
}

func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	if s := os.Getenv("DIANA_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("DIANA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func TestQueueIsTheNaiveOne(t *testing.T) {
	r := seeded(t)
	for range 400 {
		trace := make([]byte, 1+r.IntN(400))
		for i := range trace {
			trace[i] = byte(r.Uint32())
		}
		checkQueue(t, trace)
	}
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 4, 8, 2, 2, 3, 7})
	f.Add([]byte("the quick brown fox jumps over the lazy dog, again and again and again"))
	f.Fuzz(func(t *testing.T, trace []byte) { checkQueue(t, trace[:min(len(trace), 2000)]) })
}

// TestNobodyStarves has the first band always full: each 16th that leaves is of the others, the longest waiting first.
func TestNobodyStarves(t *testing.T) {
	var q queue
	low := &Ticket{Band: 7}
	middle := &Ticket{Band: 3}
	q.push(low, 100)
	q.push(middle, 100)
	var left []*Ticket
	for i := range 40 {
		q.push(&Ticket{Band: 0, Key: hash.Key{Lo: uint64(i)}}, 100)
		left = append(left, q.pop())
	}
	if got := []int{slices.Index(left, low), slices.Index(left, middle)}; got[0] != 15 || got[1] != 31 {
		t.Fatalf("of the lower bands, those left as %v: want the longest waiting as the 16th, the other as the 32nd", got)
	}
}

// TestKeysAreBounded has clients bring a new key with each request.
func TestKeysAreBounded(t *testing.T) {
	var q queue
	var busy []*Ticket
	for i := range 10 * maxIdle {
		x := &Ticket{Band: i % Bands, Key: hash.Key{Hi: uint64(i)}}
		if q.direct(x); i%1000 == 0 {
			busy = append(busy, x) // in flight: never forgotten
			continue
		}
		q.done(x, 1000)
	}
	flows := 0
	for i := range q.bands {
		flows += len(q.bands[i].flows)
	}
	if want := maxIdle + len(busy); flows != want {
		t.Fatalf("%d keys are remembered: want %d", flows, want)
	}
	for _, x := range busy {
		if q.bands[x.Band].flows[x.Key] != x.flow {
			t.Fatalf("key %v with a request in flight was forgotten", x.Key)
		}
	}
}
