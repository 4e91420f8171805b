package exact_test

import (
	"fmt"

	"pgregory.net/rapid"
)

// attack is a client that maximizes what passes in a window, with the trace of its
// requests.
type attack struct {
	*watched
	*trace
	requests *int
}

// moves are the strategies of an attack.
var moves = []func(a *attack, size int64){
	(*attack).drip,
	(*attack).burst,
	(*attack).gulp,
	(*attack).straddle,
	(*attack).rest,
	(*attack).almost,
}

// attacked runs an attack on the key.
func (w *watched) attacked(t *rapid.T, requests *int) fmt.Stringer {
	a := &attack{w, newTrace(beginning(t), w.rules, w.key.rules), requests}
	for range rapid.IntRange(1, 12).Draw(t, "moves") {
		move := rapid.SampledFrom(moves).Draw(t, "move")
		move(a, size().Draw(t, "size"))
	}
	return a.trace
}

func (a *attack) send(cost int64) bool {
	ok, verdicts := a.watched.decide(a.now, cost)
	a.done(event{now: a.now, cost: cost}, ok, verdicts)
	*a.requests++
	return ok
}

// left returns the minimum of what remains in all rules.
func (a *attack) left() int64 {
	left := a.most[0]
	for _, v := range a.watched.peek(a.now, 1) {
		left = min(left, v.Remaining)
	}
	return left
}

// drip sends requests of cost 1, each as soon as it can pass.
func (a *attack) drip(int64) {
	for range 40 {
		if !a.send(1) {
			a.now += a.longest()
		}
	}
}

// burst takes all that remains in one request.
func (a *attack) burst(int64) {
	a.send(max(1, a.left()))
}

// gulp sends requests of one cost, each as soon as it can pass.
func (a *attack) gulp(size int64) {
	cost := 1 + size%a.most[0]
	for range 20 {
		if !a.send(cost) {
			a.now += max(0, a.longest())
		}
	}
}

// straddle opens a window with one request, takes the rest at the end of the window
// and all of the next window at its beginning.
func (a *attack) straddle(size int64) {
	r := a.trace.rules[int(size)%len(a.trace.rules)]
	if size%2 == 0 {
		a.now += toNext(a.now, r)
	}
	a.send(1)
	a.now += r.Window - 1
	a.burst(0)
	a.now++
	a.burst(0)
}

// rest waits until nothing counts any more.
func (a *attack) rest(int64) {
	for _, v := range a.watched.peek(a.now, 1) {
		a.now += v.ResetAfter
	}
}

// almost waits until the last instant at which something counts.
func (a *attack) almost(size int64) {
	verdicts := a.watched.peek(a.now, 1)
	a.now += max(0, verdicts[int(size)%len(verdicts)].ResetAfter-1)
}
