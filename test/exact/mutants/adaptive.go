//go:build unix

package main

const (
	limitGo  = "internal/adaptive/limit.go"
	orderGo  = "internal/adaptive/queue.go"
	heapGo   = "internal/adaptive/heap.go"
	placesGo = "internal/adaptive/places.go"
)

var (
	adaptiveTests = suite{"adaptive", "internal/adaptive", "DIANA_SEED=1", [][]string{{}}}
	inModel       = suite{"model", "test/adaptive", "", [][]string{{}}}

	ofPlaces    = []suite{adaptiveTests}
	ofDecisions = []suite{adaptiveTests, inModel}
)

// adaptiveMutants break how in_flight adaptive finds its limit, and whom it serves next.
var adaptiveMutants = []mutant{
	{
		name: "adaptive-sign", breaks: "a longer latency raises the limit", file: limitGo, suites: ofDecisions,
		old: "case x > certainty*se:\n\t\tdirection = -1", new: "case x > certainty*se:\n\t\tdirection = 1",
	},
	{
		name: "adaptive-up", breaks: "the limit never rises", file: limitGo, suites: ofDecisions,
		old: "direction = 1\n", new: "direction = 0\n",
	},
	{
		name: "adaptive-phase", breaks: "samples count for the other limit", file: limitGo, suites: ofDecisions,
		old: "case s.upper:", new: "case !s.upper:",
	},
	{
		name: "adaptive-order", breaks: "the upper limit is in force when the number of ones is odd, not even", file: limitGo, suites: ofDecisions,
		old: "bits.OnesCount64(uint64(phase))&1 == 0", new: "bits.OnesCount64(uint64(phase))&1 == 1",
	},
	{
		name: "adaptive-star", breaks: "the limit rises as long as more in flight does not harm", file: limitGo, suites: ofDecisions,
		old: "x := longer - star*l.width", new: "x := longer - 2*star*l.width",
	},
	{
		name: "adaptive-certainty", breaks: "noise moves the limit", file: limitGo, suites: ofDecisions,
		old: "case x < -certainty*se && l.failing < 0.25:", new: "case x < 0*se && l.failing < 0.25:",
	},
	{
		name: "adaptive-settle", breaks: "requests at the start of a phase, which tell of the other limit, are samples", file: limitGo, suites: ofDecisions,
		old: "s.full = inFlight >= limit", new: "s.full = inFlight > 0 || inFlight >= limit",
	},
	{
		name: "adaptive-climb", breaks: "a new limit climbs on", file: limitGo, suites: ofDecisions,
		old: "if mean > l.base+math.Ln2 {", new: "if mean > l.base+9*math.Ln2 {",
	},
	{
		name: "adaptive-brake", breaks: "slow failures do not brake", file: limitGo, suites: ofDecisions,
		old: "l.failing < 0.5 {", new: "l.failing < 1.5 {",
	},
	{
		name: "adaptive-brake-half", breaks: "the brake leaves what was in flight", file: limitGo, suites: ofDecisions,
		old: "l.set(min(l.estimate, float64(inFlight)) / 2)", new: "l.set(min(l.estimate, float64(inFlight)) / 1)",
	},
	{
		name: "adaptive-fast-failures", breaks: "fast failures brake, which load does not cause", file: limitGo, suites: ofDecisions,
		old: "r > 2*l.good.value)", new: "r > 0*l.good.value)",
	},
	{
		name: "adaptive-left", breaks: "clients that leave at once brake", file: limitGo, suites: ofDecisions,
		old: "r < l.good.value) {", new: "r < 0*l.good.value) {",
	},
	{
		name: "adaptive-ahead", breaks: "phases follow no common clock", file: limitGo, suites: ofDecisions,
		old: "wall := now + l.ahead", new: "wall := now + 0*l.ahead",
	},
	{
		name: "adaptive-bounds", breaks: "the limit goes above max", file: limitGo, suites: ofDecisions,
		old: "max(l.min, min(l.max, estimate))", new: "max(l.min, estimate)",
	},
	{
		name: "places-tags", breaks: "a key that used nothing may be any number of requests ahead", file: orderGo, suites: ofPlaces,
		old: "f.band.virtual-credit*f.mean", new: "f.band.virtual-9*credit*f.mean",
	},
	{
		name: "places-cost", breaks: "requests cost their keys what is average, not what they hold", file: orderGo, suites: ofPlaces,
		old: "f.end += held - t.cost", new: "f.end += 0 * (held - t.cost)",
	},
	{
		name: "places-cancel", breaks: "a client that leaves is charged only what it held", file: orderGo, suites: ofPlaces,
		old: "held = max(held, int64(q.held.value))", new: "held = max(held, 0*int64(q.held.value))",
	},
	{
		name: "places-starve", breaks: "the lower bands starve", file: orderGo, suites: ofPlaces,
		old: "q.turn%others == 0", new: "q.turn%others > others",
	},
	{
		name: "places-shed", breaks: "the most important is denied when the queue is full", file: orderGo, suites: ofPlaces,
		old: "for i := Bands - 1; ; i-- {", new: "for i := 0; ; i++ {",
	},
	{
		name: "places-idle", breaks: "keys that clients make up fill the memory", file: orderGo, suites: ofPlaces,
		old: "q.idling > maxIdle {", new: "q.idling > 1000*maxIdle {",
	},
	{
		name: "places-heap", breaks: "a request taken from the middle of the queue disorders it", file: heapGo, suites: ofPlaces,
		old: "	h.up(i, kind)\n", new: "",
	},
	{
		name: "places-over", breaks: "one request more than the limit is in flight", file: placesGo, suites: ofPlaces,
		old: "case p.queue.waiting == 0 && p.inFlight < p.limit.at(now):", new: "case p.queue.waiting == 0 && p.inFlight <= p.limit.at(now):",
	},
	{
		name: "places-forgive", breaks: "a request that a rule denies is charged to its key's turn", file: orderGo, suites: ofPlaces,
		old: "t.flow.end -= t.cost", new: "t.flow.end -= 0 * t.cost",
	},
	{
		name: "places-retry", breaks: "Retry-After does not count what waits before", file: placesGo, suites: ofPlaces,
		old: "int64(float64(before)*p.interval.value)", new: "int64(p.interval.value) * int64(min(before, 1))",
	},
}
