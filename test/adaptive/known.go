package main

import (
	"math"
	"math/rand"
	"sort"
)

// The known limits are written from their rules: Netflix' concurrency-limits (Gradient2, Vegas, AIMD), Envoy's
// gradient controller, failsafe-go 0.9.8, all with their defaults.

const initial = 20

// fixed is a limit that does not move.
type fixed int

func (f fixed) Limit(float64) int             { return int(f) }
func (fixed) Start()                          {}
func (fixed) End(float64, permit, bool, bool) {}

// windowed is Netflix' WindowedLimit: averages of a second.
type windowed struct {
	l           float64
	next, sum   float64
	n, inFlight int
	dropped     bool
	update      func(w *windowed, rtt float64)
}

func (w *windowed) Limit(float64) int { return int(w.l) }
func (*windowed) Start()              {}
func (w *windowed) End(now float64, p permit, _, left bool) {
	if left {
		w.dropped = true
	} else {
		w.sum += now - p.start
		w.n++
	}
	w.inFlight = max(w.inFlight, p.inFlight)
	if now <= w.next {
		return
	}
	w.next = now + 1
	if w.n >= 10 {
		w.update(w, w.sum/float64(w.n))
	}
	w.sum, w.n, w.inFlight, w.dropped = 0, 0, 0, false
}

func bounded(l float64) float64 { return max(least, min(most, l)) }

func newGradient2(*rand.Rand) limit {
	var long, sum float64
	var n int
	return &windowed{l: initial, update: func(w *windowed, rtt float64) {
		if n < 10 {
			n++
			sum += rtt
			long = sum / float64(n)
		} else {
			long += (rtt - long) * 2 / 601
		}
		if long/rtt > 2 {
			long *= .9
		}
		if float64(w.inFlight) < w.l/2 {
			return
		}
		g := max(.5, min(1, long/rtt))
		w.l = bounded(w.l*.8 + .2*(w.l*g+4))
	}}
}

func logOf(x float64) float64 { return max(1, math.Floor(math.Log10(x))) }

func newVegas(rng *rand.Rand) limit {
	var noLoad, count float64
	jitter := .5 + rng.Float64()/2
	return &windowed{l: initial, update: func(w *windowed, rtt float64) {
		count++
		if jitter*30*w.l <= count {
			jitter = .5 + rng.Float64()/2
			count, noLoad = 0, rtt
			return
		}
		if noLoad == 0 || rtt < noLoad {
			noLoad = rtt
			return
		}
		q, lg := math.Ceil(w.l*(1-noLoad/rtt)), logOf(w.l)
		switch {
		case w.dropped:
			w.l -= lg
		case float64(w.inFlight)*2 < w.l:
		case q <= lg:
			w.l += 6 * lg
		case q < 3*lg:
			w.l += lg
		case q > 6*lg:
			w.l -= lg
		}
		w.l = bounded(w.l)
	}}
}

// aimd is Netflix' AIMDLimit: times 0.9 after a failure, one more otherwise.
type aimd struct{ l float64 }

func newAIMD(*rand.Rand) limit    { return &aimd{initial} }
func (a *aimd) Limit(float64) int { return int(a.l) }
func (*aimd) Start()              {}
func (a *aimd) End(_ float64, p permit, ok, _ bool) {
	switch {
	case !ok:
		a.l *= .9
	case float64(p.inFlight)*2 >= a.l:
		a.l++
	}
	a.l = bounded(a.l)
}

// envoy is Envoy's gradient controller: a probe of the least latency each 60 s with a limit of 3 and 50 requests,
// updates each 100 ms by the median, with a buffer of 25 %.
type envoy struct {
	rng                   *rand.Rand
	l, deferred, atLeast  int
	least, epoch          float64
	probes                bool
	nextProbe, nextUpdate float64
	samples               []float64
}

func newEnvoy(rng *rand.Rand) limit {
	e := &envoy{rng: rng, l: 3}
	e.probe(0)
	return e
}

func (e *envoy) probe(now float64) {
	e.deferred, e.probes, e.epoch, e.samples = e.l, true, now, e.samples[:0]
	e.l, e.atLeast = 3, 0
}

func (e *envoy) median() float64 {
	sort.Float64s(e.samples)
	v := e.samples[len(e.samples)/2]
	e.samples = e.samples[:0]
	return v
}

func (e *envoy) Limit(now float64) int {
	switch {
	case e.probes:
	case now >= e.nextProbe:
		e.probe(now)
	case now >= e.nextUpdate:
		e.nextUpdate = now + .1
		if len(e.samples) == 0 {
			break
		}
		g := max(.5, min(2, e.least*1.25/e.median()))
		l := float64(e.l) * g
		old := e.l
		e.l = max(3, min(most, int(l+math.Sqrt(l))))
		if e.atLeast++; old != 3 || e.l != 3 {
			e.atLeast = 0
		}
		if e.atLeast >= 5 {
			e.nextProbe = 0
		}
	}
	return e.l
}

func (*envoy) Start() {}
func (e *envoy) End(now float64, p permit, _, left bool) {
	e.Limit(now)
	if left || p.start < e.epoch {
		return
	}
	e.samples = append(e.samples, now-p.start)
	if e.probes && len(e.samples) >= 50 {
		e.least, e.probes, e.l = e.median(), false, e.deferred
		e.nextProbe, e.nextUpdate = now+60*(1+.15*e.rng.Float64()), now+.1
	}
}

// failsafe is failsafe-go's adaptive limiter: at least a second and 50 samples, their 90th percentile, beside a
// moving baseline, and correlations of in flight with throughput and latency.
type failsafe struct {
	l                   float64
	samples             []float64
	most, inFlight      int
	least, next         float64
	recent              []float64
	short, base         moving
	throughput, latency correlation
}

type moving struct{ factor, value, sum, n float64 }

func (m *moving) add(x float64) float64 {
	if m.n < 10 {
		m.n++
		m.sum += x
		m.value = m.sum / m.n
	} else {
		m.value += (x - m.value) * m.factor
	}
	return m.value
}

type correlation struct{ x, y []float64 }

func spread(a []float64) (relative, mean, variance float64) {
	for _, x := range a {
		mean += x / float64(len(a))
	}
	for _, x := range a {
		variance += (x - mean) * (x - mean) / float64(len(a))
	}
	return math.Sqrt(variance) / mean, mean, variance
}

func (w *correlation) add(x, y float64) (r, relative float64) {
	w.x, w.y = append(w.x, x), append(w.y, y)
	if len(w.x) > 50 {
		w.x, w.y = w.x[1:], w.y[1:]
	}
	if len(w.x) < 10 {
		return 0, 0
	}
	cx, mx, vx := spread(w.x)
	cy, my, vy := spread(w.y)
	if cx < .01 || cy < .01 {
		return 0, cy
	}
	c := 0.
	for i := range w.x {
		c += (w.x[i] - mx) * (w.y[i] - my)
	}
	return c / float64(len(w.x)) / math.Sqrt(vx*vy), cy
}

func newFailsafe(*rand.Rand) limit {
	return &failsafe{l: initial, short: moving{factor: 2. / 6}, base: moving{factor: 2. / 11}}
}

func (f *failsafe) Limit(float64) int { return int(f.l) }
func (f *failsafe) Start()            { f.inFlight++ }
func (f *failsafe) End(now float64, p permit, _, left bool) {
	full := f.inFlight >= int(f.l)
	f.inFlight--
	if rtt := now - p.start; !left {
		if len(f.samples) == 0 || rtt < f.least {
			f.least = rtt
		}
		f.samples = append(f.samples, rtt)
		f.most = max(f.most, p.inFlight)
	}
	if now <= f.next || len(f.samples) < 50 {
		return
	}
	f.l = bounded(f.moved(f.quantile(), full))
	f.next = now + min(max(2*f.least, 1), 30)
	f.samples, f.most = f.samples[:0], 0
}

// quantile returns the median of the last five 90th percentiles.
func (f *failsafe) quantile() float64 {
	sort.Float64s(f.samples)
	q := f.samples[len(f.samples)*9/10]
	if f.recent = append(f.recent, q); len(f.recent) < 5 {
		return q
	}
	f.recent = f.recent[len(f.recent)-5:]
	m := append([]float64(nil), f.recent...)
	sort.Float64s(m)
	return m[2]
}

func (f *failsafe) moved(q float64, full bool) float64 {
	r := f.short.add(q)
	queued, lg, in := math.Ceil(f.l*(1-f.base.add(r)/r)), logOf(f.l), float64(f.most)
	tc, tcv := f.throughput.add(in, in/r)
	rc, _ := f.latency.add(in, r)
	n := f.l
	switch {
	case queued > 6*lg, full && tc < 0, full && tc < .3 && rc > .5, full && tcv < .2 && rc > .5:
		n -= lg
	case queued < 3*lg:
		n += lg
	}
	switch most := in * 5; {
	case n <= most:
		return n
	case f.l > most:
		return f.l - lg
	default:
		return most
	}
}
