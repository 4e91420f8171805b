package main

import (
	"math"
	"math/rand"
)

func exponential(mean float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return mean * r.ExpFloat64() }
}

func lognormal(mean, sigma float64) func(*rand.Rand) float64 {
	mu := math.Log(mean) - sigma*sigma/2
	return func(r *rand.Rand) float64 { return math.Exp(mu + sigma*r.NormFloat64()) }
}

// bimodal is mostly short, and sometimes four hundred times as long.
func bimodal(r *rand.Rand) float64 {
	if r.Float64() < .9 {
		return .005
	}
	return 2
}

func always(x float64) func(float64) float64 { return func(float64) float64 { return x } }

// steps returns values from times on: t0, value0, t1, value1 and so on.
func steps(at ...float64) func(float64) float64 {
	return func(t float64) float64 {
		v := at[1]
		for i := 0; i < len(at) && at[i] <= t; i += 2 {
			v = at[i+1]
		}
		return v
	}
}

func load(rate float64, size func(*rand.Rand) float64) []source {
	return []source{{rate: always(rate), max: rate, size: size}}
}

func varying(rate func(float64) float64, most float64, size func(*rand.Rand) float64) []source {
	return []source{{rate: rate, max: most, size: size}}
}

func slowed(n int, factor func(float64) float64) func() upstream {
	return func() upstream { return &workers{servers: func(float64) int { return n }, slow: factor} }
}

func counted(n func(t float64) int) func() upstream {
	return func() upstream { return &workers{servers: n} }
}

func halved(from, to float64) func(float64) int {
	return func(t float64) int {
		if t > from && t < to {
			return 20
		}
		return 40
	}
}

// defaults fills in what most scenarios have.
func defaults(l []*scenario) []*scenario {
	for _, s := range l {
		if s.timeout == 0 {
			s.timeout = 2
		}
		if s.waiting == 0 {
			s.waiting = 1000
		}
		switch s.maxWait {
		case 0:
			s.maxWait = .5
		case none:
			s.maxWait = 0
		}
	}
	return l
}

const none = -1

// models are the scenarios with which the algorithm was found.
func models() []*scenario {
	exp := exponential(.2)
	burst := func(t float64) float64 {
		if math.Mod(t, 5) < 1 {
			return 400
		}
		return 110
	}
	streams := source{rate: always(3.2), max: 3.2, size: func(r *rand.Rand) float64 { return .2 + .2*r.Float64() }, stream: exponential(30)}
	return defaults([]*scenario{
		{name: "0.9", best: 40, seconds: 300, src: load(180, exp), up: fixedWorkers(40)},
		{name: "0.9 after a minute", best: 40, seconds: 300, from: 60, src: load(180, exp), up: fixedWorkers(40)},
		{name: "2x", best: 40, seconds: 660, src: load(400, exp), up: fixedWorkers(40)},
		{name: "1.2x", best: 40, seconds: 660, src: load(240, exp), up: fixedWorkers(40)},
		{name: "2x with retries", best: 64, seconds: 300, src: load(400, exp), up: fixedWorkers(40), retries: 2},
		{name: "2x lognormal", best: 70, seconds: 300, src: load(400, lognormal(.2, 1)), up: fixedWorkers(40)},
		{name: "2x cores", best: 20, seconds: 300, src: load(400, exponential(.04)), up: cores(8, 0)},
		{name: "2x knee", best: 40, seconds: 300, src: load(400, exp), up: cores(40, 60)},
		{name: "1.5x a fixed delay first", best: 36, seconds: 300, src: load(300, exponential(.005)), up: func() upstream {
			return &workers{servers: func(float64) int { return 1 }, delay: .1}
		}},
		{name: "five times slower", best: 36, seconds: 360, src: load(160, exp), up: slowed(40, steps(0, 1, 120, 5, 240, 1)), retries: 1},
		{name: "halved", best: 36, seconds: 360, src: load(160, exp), up: counted(halved(120, 240)), retries: 1},
		{name: "1.5x bimodal", best: 60, seconds: 300, src: load(294, bimodal), up: fixedWorkers(40), timeout: 5},
		{name: "0.5x, 5x, 0.5x", best: 40, seconds: 300, src: varying(steps(0, 100, 100, 1000, 200, 100), 1000, exp), up: fixedWorkers(40)},
		{name: "bursts", best: 130, seconds: 300, src: varying(burst, 400, exp), up: fixedWorkers(40)},
		{name: "four instances", best: 40, seconds: 660, src: load(400, exp), up: fixedWorkers(40), gates: 4},
		{name: "one a second", best: 2, seconds: 1200, src: load(1, exp), up: fixedWorkers(40)},
		{name: "one worker", best: 4, seconds: 1200, src: load(1.5, exponential(.8)), up: fixedWorkers(1), maxWait: 2, timeout: 10},
		{name: "cold start", best: 40, seconds: 180, src: load(180, exp), up: slowed(40, func(t float64) float64 { return 1 + 3*math.Exp(-t/15) }), retries: 1},
		{name: "2x, 503 if full", best: 70, seconds: 300, src: load(400, exp), up: func() upstream {
			return &workers{servers: func(float64) int { return 40 }, most: 20}
		}},
		{name: "0.9, a fifth errors", best: 40, seconds: 300, src: load(180, exp), up: fixedWorkers(40), errors: .2},
		{name: "1.5x streams", best: 64, seconds: 3600, src: []source{streams}, up: fixedWorkers(64), maxWait: 5, timeout: 20},
		{name: "a quarter elsewhere", best: 40, seconds: 660, src: append(load(300, exp), source{rate: always(100), max: 100, size: exp, foreign: true}), up: fixedWorkers(40)},
	})
}

// heldBack are scenarios with which no constant was chosen.
func heldBack() []*scenario {
	return defaults([]*scenario{
		{name: "2x of 200", best: 200, seconds: 120, src: load(2000, exponential(.2)), up: fixedWorkers(200)},
		{name: "1.5x of 6", best: 12, seconds: 300, src: load(45, lognormal(.2, 1.5)), up: fixedWorkers(6)},
		{name: "1.3x two cores", best: 8, seconds: 300, src: load(130, lognormal(.02, 1)), up: cores(2, 0)},
		{name: "1.5x an early knee", best: 20, seconds: 300, src: load(300, exponential(.1)), up: cores(20, 25), retries: 1},
		{name: "1.5x without waiting", best: 50, seconds: 300, src: load(300, exponential(.2)), up: fixedWorkers(40), maxWait: none},
		{name: "three times slower", best: 60, seconds: 240, src: load(140, exponential(.3)), up: slowed(60, steps(0, 1, 100, 3, 160, 1)), maxWait: 1, timeout: 5, retries: 1},
		{name: "skewed clocks", best: 40, seconds: 300, src: load(400, exponential(.2)), up: fixedWorkers(40), gates: 4, skew: .05},
		{name: "several upstreams", best: 44, seconds: 300, src: load(400, exponential(.2)), up: func() upstream {
			return &several{ups: []upstream{fixedWorkers(20)(), fixedWorkers(10)(), fixedWorkers(10)()}}
		}},
		{name: "slow start", best: 44, seconds: 240, src: load(300, exponential(.2)), up: counted(func(t float64) int { return int(min(40, 4+t*.6)) })},
		{name: "a deploy in turns", best: 44, seconds: 360, src: load(220, exponential(.2)), retries: 1, up: counted(func(t float64) int {
			if t > 60 && t < 300 && int(t/30)%2 == 0 {
				return 20
			}
			return 40
		})},
		{name: "clients that cancel at once", best: 40, seconds: 300, src: append(
			[]source{{rate: always(300), max: 300, key: 10, keys: 20, size: exponential(.2)}},
			source{rate: always(200), max: 200, key: 1, size: exponential(.2), cancels: func(r *rand.Rand) float64 { return .02 * r.Float64() }},
		), up: fixedWorkers(40)},
		{name: "a client that cancels late", best: 28, seconds: 300, src: append(
			[]source{{rate: always(120), max: 120, key: 10, keys: 10, size: exponential(.2)}},
			source{rate: always(200), max: 200, key: 1, size: exponential(.2), cancels: func(r *rand.Rand) float64 { return .15 + .1*r.Float64() }},
		), up: fixedWorkers(40)},
	})
}

// fairness are loads of several keys and bands on 200 a second.
func fairness() []*scenario {
	exp := exponential(.2)
	light := func(rate float64, keys int) source {
		return source{rate: always(rate), max: rate, key: lightKeys, keys: keys, size: exp}
	}
	low := func(s source) source { s.band = 1; return s }
	heavy := source{rate: always(600), max: 600, key: heavyKey, size: exp}
	first := source{rate: always(120), max: 120, key: 0, keys: 20, size: exp}
	busy := first
	busy.rate, busy.max = always(260), 260
	l := defaults([]*scenario{
		{name: "first class 120/s; a heavy key 600/s and ten light ones after it", src: []source{first, low(heavy), low(light(40, 10))}},
		{name: "a heavy key 600/s beside twenty light ones of 6/s", src: []source{heavy, light(120, 20)}},
		{name: "five keys of 20/s that take four times as long beside ten of 12/s", src: []source{
			{rate: always(100), max: 100, key: heavyKey, keys: 5, size: func(*rand.Rand) float64 { return .8 }}, light(120, 10),
		}},
		{name: "first class 260/s; 60/s after it", src: []source{busy, low(light(60, 10))}},
	})
	for _, s := range l {
		s.seconds, s.from, s.waiting, s.up = 300, 30, 400, fixedWorkers(40)
	}
	return l
}

const heavyKey, lightKeys = 1000, 2000
