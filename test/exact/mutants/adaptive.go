//go:build unix

package main

var (
	adaptiveTests = suite{"adaptive", "internal/adaptive", "DIANA_SEED=1", [][]string{{}}}
	inModel       = suite{"model", "test/adaptive", "", [][]string{{}}}

	ofPlaces    = []suite{adaptiveTests}
	ofDecisions = []suite{adaptiveTests, inModel}
)

// adaptiveMutants break how in_flight adaptive finds its limit, and whom it serves next.
var adaptiveMutants = []mutant{
	{
		name: "adaptive-sign", breaks: "a longer latency raises the limit", in: "adaptive.Limit.decide", suites: ofDecisions,
		old: "case x > certainty*se:\n\t\tdirection = -1", new: "case x > certainty*se:\n\t\tdirection = 1",
	},
	{
		name: "adaptive-up", breaks: "the limit never rises", in: "adaptive.Limit.decide", suites: ofDecisions,
		old: "direction = 1\n", new: "direction = 0\n",
	},
	{
		name: "adaptive-phase", breaks: "samples count for the other limit", in: "adaptive.Limit.answered", suites: ofDecisions,
		old: "case s.upper:", new: "case !s.upper:",
	},
	{
		name: "adaptive-order", breaks: "the upper limit is in force when the number of ones is odd, not even", in: "adaptive.Limit.enter", suites: ofDecisions,
		old: "bits.OnesCount64(uint64(phase))&1 == 0", new: "bits.OnesCount64(uint64(phase))&1 == 1",
	},
	{
		name: "adaptive-star", breaks: "the limit rises as long as more in flight does not harm", in: "adaptive.Limit.decide", suites: ofDecisions,
		old: "x := longer - star*l.width", new: "x := longer - 2*star*l.width",
	},
	{
		name: "adaptive-certainty", breaks: "noise moves the limit", in: "adaptive.Limit.decide", suites: ofDecisions,
		old: "case x < -certainty*se && l.failing < 0.25:", new: "case x < 0*se && l.failing < 0.25:",
	},
	{
		name: "adaptive-settle", breaks: "requests at the start of a phase, which tell of the other limit, are samples", in: "adaptive.Limit.start", suites: ofDecisions,
		old: "s.full = inFlight >= full", new: "s.full = inFlight > 0 || inFlight >= full",
	},
	{
		name: "adaptive-between", breaks: "a load between the two limits is no sample, and the lower one refuses it on", in: "adaptive.Limit.start", suites: []suite{inModel},
		old: "min(full, l.lower+1)", new: "min(full, full+l.lower)",
	},
	{
		name: "adaptive-climb", breaks: "a new limit climbs on", in: "adaptive.Limit.climb", suites: ofDecisions,
		old: "if mean > l.base+math.Ln2 {", new: "if mean > l.base+9*math.Ln2 {",
	},
	{
		name: "adaptive-brake", breaks: "slow failures do not brake", in: "adaptive.Limit.brake", suites: ofDecisions,
		old: "l.failing < 0.5 {", new: "l.failing < 1.5 {",
	},
	{
		name: "adaptive-brake-half", breaks: "the brake leaves what was in flight", in: "adaptive.Limit.brake", suites: ofDecisions,
		old: "l.set(min(l.estimate, float64(inFlight)) / 2)", new: "l.set(min(l.estimate, float64(inFlight)) / 1)",
	},
	{
		name: "adaptive-fast-failures", breaks: "fast failures brake, which load does not cause", in: "adaptive.Limit.answered", suites: ofDecisions,
		old: "r > 2*l.good.value)", new: "r > 0*l.good.value)",
	},
	{
		name: "adaptive-left", breaks: "clients that leave at once brake", in: "adaptive.Limit.answered", suites: ofDecisions,
		old: "r < l.good.value) {", new: "r < 0*l.good.value) {",
	},
	{
		name: "adaptive-ahead", breaks: "phases follow no common clock", in: "adaptive.Limit.enter", suites: ofDecisions,
		old: "wall := now + l.ahead", new: "wall := now + 0*l.ahead",
	},
	{
		name: "adaptive-bounds", breaks: "the limit goes above max", in: "adaptive.Limit.set", suites: ofDecisions,
		old: "max(l.min, min(l.max, estimate))", new: "max(l.min, estimate)",
	},
	{
		name: "places-tags", breaks: "a key that used nothing may be any number of requests ahead", in: "adaptive.flow.start", suites: ofPlaces,
		old: "f.band.virtual-credit*f.mean", new: "f.band.virtual-9*credit*f.mean",
	},
	{
		name: "places-cost", breaks: "requests cost their keys what is average, not what they hold", in: "adaptive.queue.done", suites: ofPlaces,
		old: "f.end += held - t.cost", new: "f.end += 0 * (held - t.cost)",
	},
	{
		name: "places-cancel", breaks: "a client that leaves is charged only what it held", in: "adaptive.queue.done", suites: ofPlaces,
		old: "held = max(held, int64(q.held.value))", new: "held = max(held, 0*int64(q.held.value))",
	},
	{
		name: "places-starve", breaks: "the lower bands starve", in: "adaptive.queue.pop", suites: ofPlaces,
		old: "q.turn%others == 0", new: "q.turn%others > others",
	},
	{
		name: "places-shed", breaks: "the most important is denied when the queue is full", in: "adaptive.queue.last", suites: ofPlaces,
		old: "for i := Bands - 1; ; i-- {", new: "for i := 0; ; i++ {",
	},
	{
		name: "places-idle", breaks: "keys that clients make up fill the memory", in: "adaptive.queue.newFlow", suites: ofPlaces,
		old: "q.idling < maxIdle {", new: "q.idling < 1000*maxIdle {",
	},
	{
		name: "places-heap", breaks: "a request taken from the middle of the queue disorders it", in: "adaptive.heap.remove", suites: ofPlaces,
		old: "	h.up(i, kind)\n", new: "",
	},
	{
		name: "places-over", breaks: "one request more than the limit is in flight", in: "adaptive.Places.Enter", suites: ofPlaces,
		old: "case p.queue.waiting == 0 && p.inFlight < p.limit.at(now):", new: "case p.queue.waiting == 0 && p.inFlight <= p.limit.at(now):",
	},
	{
		name: "places-forgive", breaks: "a request that a rule denies is charged to its key's turn", in: "adaptive.queue.forgive", suites: ofPlaces,
		old: "t.flow.end -= t.cost", new: "t.flow.end -= 0 * t.cost",
	},
	{
		name: "places-retry", breaks: "Retry-After does not count what waits before", in: "adaptive.Places.refuse", suites: ofPlaces,
		old: "int64(float64(before)*p.interval.value)", new: "int64(p.interval.value) * int64(min(before, 1))",
	},
}
