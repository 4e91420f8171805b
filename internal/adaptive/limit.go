package adaptive

import (
	"math"
	"math/bits"
)

const (
	initial   = 20         // places, of a new limit
	widest    = 0.4        // greatest step, in ln
	narrow    = 0.05       // least step, in ln
	narrower  = 0.02       // least step after a clear decision
	wide      = 0.35       // step of a new limit and after the brake
	star      = 0.75       // elasticity of latency at which the estimate stays
	certainty = 1.5        // standard errors of a decision
	clearly   = 4          // standard errors of a clear decision
	fewest    = 8          // samples of each sign for a decision
	look      = 2000       // samples without a decision after which the step changes
	averaged  = 64         // samples of a moving average
	shortest  = 250_000    // us, least length of a phase
	longest   = 64_000_000 // us, greatest length of a phase
	briefest  = 10         // us, least latency
)

// Outcome is how a request was answered, as far as the limit cares.
type Outcome uint8

// The outcomes.
const (
	Unanswered Outcome = iota // not yet
	Good                      // with success, or an error of the client's
	Failed                    // with an error of the upstream's, or not at all
	Left                      // the client left before the first byte
)

// Sample is what the limit remembers of a request in flight.
type Sample struct {
	start    int64 // us, when it took its place
	inFlight int   // with it
	epoch    uint32
	upper    bool // whether it began in a phase with the upper limit
	full     bool // whether its latency tells of the limit
	outcome  Outcome
}

// average is a moving average with the weight max(1/n, 1/averaged).
type average struct{ value, n float64 }

func (a *average) add(x float64) {
	if a.n == averaged {
		a.value += (x - a.value) / averaged
		return
	}
	a.n++
	a.value += (x - a.value) / a.n
}

// phaseSamples are the samples of the phases with one of the two limits.
type phaseSamples struct{ n, mean, squares float64 } // squares: squared deviations from the mean

func (s *phaseSamples) add(x float64) {
	s.n++
	d := x - s.mean
	s.mean += d / s.n
	s.squares += d * (x - s.mean)
}

// variance returns the variance of the mean, as a part of the squared mean.
func (s *phaseSamples) variance() float64 {
	return s.squares / (s.n * (s.n - 1) * s.mean * s.mean)
}

// Limit finds how many requests are to be in flight. It has no lock: its caller does. Times are in
// microseconds, also where they are floating-point numbers; time is an argument.
type Limit struct {
	min, max float64

	estimate float64
	step     float64 // half the distance of the two limits, in ln
	last     int     // direction of the last decision: -1, 0 or 1

	starting bool    // until latency has doubled
	window   average // starting: mean ln of latency, of the samples since the last look
	base     float64 // starting: the least such mean

	ahead  int64   // by how much the system's clock is ahead of the times that methods are given
	length int64   // of a phase
	phase  int64   // number of the phase, since 1970; -1: none
	begun  int64   // when it began
	until  int64   // when it ends
	upper  bool    // whether the upper limit is in force
	limit  int     // in force
	lower  int     // the lower limit
	width  float64 // ln of the ratio of the two limits

	epoch   uint32          // of samples: the brake begins another
	quiet   int64           // no samples until then
	samples [2]phaseSamples // of the lower and the upper limit
	failing float64         // moving average: which part of the requests fails slowly
	first   average         // latency to the first byte
	hold    average         // time in flight
	good    average         // latency to the first byte of successes

	moves [3]uint64 // by Move
	move  Change    // the last
}

func newLimit() Limit {
	return Limit{
		min: 1, max: math.Inf(1), estimate: initial, step: wide, starting: true,
		base: math.Inf(1), length: 1_000_000, phase: -1,
	}
}

// bound changes the least and the greatest limit.
func (l *Limit) bound(least, most int) {
	l.min, l.max = float64(least), float64(most)
	l.set(l.estimate)
	l.phase, l.until = -1, 0
}

func (l *Limit) set(estimate float64) { l.estimate = max(l.min, min(l.max, estimate)) }

// at returns the limit in force.
func (l *Limit) at(now int64) int {
	if now >= l.until {
		l.enter(now)
	}
	return l.limit
}

// enter begins the phase of the time. The upper limit is in force in phases whose number has an even number of
// ones in binary: in this order, of Thue and Morse, trends and periodic load fall on both limits alike.
func (l *Limit) enter(now int64) {
	wall := now + l.ahead
	phase := wall / l.length
	if phase>>1 != l.phase>>1 { // a pair has ended
		l.decide(now)
		l.fit()
		phase = wall / l.length
	}
	l.phase = phase
	l.begun = phase*l.length - l.ahead
	l.until = l.begun + l.length
	l.upper = bits.OnesCount64(uint64(phase))&1 == 0
	upper := min(l.max, math.Ceil(l.estimate*math.Exp(l.step)))
	lower := max(l.min, math.Floor(l.estimate*math.Exp(-l.step)))
	l.lower, l.width = int(lower), math.Log(upper/lower)
	switch {
	case l.starting:
		l.limit = int(l.estimate)
	case l.upper:
		l.limit = int(upper)
	default:
		l.limit = l.lower
	}
}

// fit sets the length of a phase: long enough that requests which begin in it also end in it, and not much longer.
func (l *Limit) fit() {
	want := 4*l.first.value + 8*l.step*l.hold.value
	for float64(l.length) < want && l.length < longest {
		l.length *= 4
	}
	for float64(l.length) > 8*want && l.length > shortest {
		l.length /= 4
	}
}

// start makes a request a sample if it takes the last place or, with the upper limit, one that the lower limit does
// not have: a load between the two never takes the last of the upper, and is refused places by the lower. The phase
// must not have just begun: then those before it still tell of the other limit. inFlight includes it.
func (l *Limit) start(now int64, inFlight int, s *Sample) {
	full := l.at(now)
	if l.upper && !l.starting {
		full = min(full, l.lower+1)
	}
	*s = Sample{start: now, inFlight: inFlight, epoch: l.epoch, upper: l.upper}
	s.full = inFlight >= full && now >= l.quiet && (l.starting || now-l.begun >= l.length/4)
}

// answered takes the latency to the first byte, or to the failure, of a request.
func (l *Limit) answered(now int64, s *Sample, o Outcome) {
	r := float64(max(now-s.start, briefest))
	known := l.good.n > 0
	s.outcome = o
	if o == Left && (!known || r < l.good.value) {
		return // it tells nothing: its client did not wait for an answer
	}
	x := min(r, 10*l.first.value)
	if l.first.n == 0 {
		x = r
	}
	l.first.add(r)
	slow := o == Left || o == Failed && (!known || r > 2*l.good.value)
	if o == Good {
		l.good.add(r)
	} else {
		x = max(r, 8*l.first.value)
	}
	switch {
	case s.epoch != l.epoch, now < l.quiet, l.brake(now, slow, s.inFlight), !s.full:
	case l.starting:
		l.climb(now, x, o)
	case s.upper:
		l.samples[1].add(x)
	default:
		l.samples[0].add(x)
	}
}

// ended takes how long a request held its place.
func (l *Limit) ended(held int64) { l.hold.add(float64(held)) }

// brake halves the limit, or what is in flight if that is less, when most requests fail slowly. It
// reports whether it did.
func (l *Limit) brake(now int64, slow bool, inFlight int) bool {
	failed := 0.
	if slow {
		failed = 1
	}
	if l.failing += (failed - l.failing) / 16; l.failing < 0.5 {
		return false
	}
	from := l.estimate
	l.set(min(l.estimate, float64(inFlight)) / 2)
	l.quiet = now + int64(2*l.first.value) // what is in flight now was too much
	l.starting, l.step, l.last, l.failing = false, wide, 1, 0
	l.first.n, l.hold.n = 0, 0
	l.phase, l.until = -1, 0
	l.epoch++
	l.forget()
	l.moved(Change{At: now, Move: Brake, From: from})
	return true
}

// climb raises a new limit by half a place for each success until latency has doubled.
func (l *Limit) climb(now int64, x float64, o Outcome) {
	l.window.value += math.Log(x)
	l.window.n++
	if l.window.n >= max(24, 0.75*l.estimate) {
		mean := l.window.value / l.window.n
		l.window = average{}
		l.base = min(l.base, mean)
		if mean > l.base+math.Ln2 {
			from := l.estimate
			l.starting = false
			l.set(l.estimate / 1.2)
			l.phase, l.until = -1, 0
			l.moved(Change{At: now, Move: Down, From: from, Longer: math.Exp(mean - l.base)})
			return
		}
	}
	if o == Good {
		l.set(l.estimate + 0.5)
		l.limit = int(l.estimate)
	}
}

// decide moves the estimate if the samples are enough to tell where.
func (l *Limit) decide(now int64) {
	lower, upper := &l.samples[0], &l.samples[1]
	if l.starting || lower.n < fewest || upper.n < fewest {
		return
	}
	longer := math.Log(upper.mean / lower.mean)
	x := longer - star*l.width
	se := math.Sqrt(lower.variance() + upper.variance())
	direction := 0
	switch {
	case x > certainty*se:
		direction = -1
	case x < -certainty*se && l.failing < 0.25:
		direction = 1
	case lower.n+upper.n < look:
		return
	case se > l.width/4: // too much noise for so small a difference
		l.step = min(widest, 1.4*l.step)
		l.forget()
		return
	}
	from := l.estimate
	switch direction {
	case -1:
		l.set(l.estimate * math.Exp(-l.step))
	case 1:
		l.set(l.estimate*math.Exp(l.step) + 1)
	}
	if direction != 0 {
		l.moved(Change{At: now, Move: moveOf(direction), From: from, More: math.Exp(l.width), Longer: math.Exp(longer)})
	}
	l.pace(direction, math.Abs(x) > clearly*se)
	l.forget()
}

// pace changes the step after a decision: wider while decisions agree, narrower around the best estimate.
func (l *Limit) pace(direction int, sure bool) {
	least := narrow
	if sure {
		least = narrower
	}
	if direction == l.last && direction != 0 {
		l.step = min(widest, 1.4*l.step)
	} else {
		l.step = max(least, l.step/2)
	}
	l.last = direction
}

func (l *Limit) forget() { l.samples = [2]phaseSamples{} }

// Move is a kind of move of a limit.
type Move uint8

// The moves.
const (
	Up    Move = iota // latency told that more in flight brings more throughput
	Down              // latency told that it does not
	Brake             // most requests failed slowly
)

func moveOf(direction int) Move {
	if direction > 0 {
		return Up
	}
	return Down
}

// String returns the name of the move, as in metrics.
func (m Move) String() string { return [...]string{"up", "down", "brake"}[m] }

// Change is a move of a limit and its reason.
type Change struct {
	At       int64   // us; 0: there was none
	Move     Move    // which it was
	From, To float64 // the estimate before and after

	// With More times as many requests in flight, latency was Longer times as long. More is 0 of a new
	// limit, whose latency was Longer times the least; both are 0 of the brake.
	More, Longer float64
}

func (l *Limit) moved(c Change) {
	c.To = l.estimate
	if c.From == c.To { // at its bound
		return
	}
	l.moves[c.Move]++
	l.move = c
}
