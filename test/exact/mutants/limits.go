//go:build unix

package main

const (
	indexOfKeysGo = "internal/key/index.go"
	patternGo     = "internal/key/pattern.go"
	limitsGo      = "internal/limiter/limits.go"
	limitFromGo   = "config/limitfrom.go"
	decisionGo    = "internal/limiter/decision.go"
)

var (
	ofKeys     = []suite{keys}
	ofRequests = []suite{limiterTests}
	ofRedis    = []suite{redisStore}
)

// limitMutants break which limit a request meets: the search for its override, and the
// limits that requests bring.
var limitMutants = []mutant{
	{
		name: "index-order", breaks: "of overrides that are as specific the last one wins", file: indexOfKeysGo, suites: ofKeys,
		old: "weight == s.weight && child < s.value", new: "weight == s.weight && child > s.value",
	},
	{
		name: "index-weight", breaks: "the least specific override wins", file: indexOfKeysGo, suites: ofKeys,
		old: "weight > s.weight ||", new: "weight < s.weight ||",
	},
	{
		name: "index-any", breaks: "* does not match the last part of a key", file: indexOfKeysGo, suites: ofKeys,
		old: "if l.any != none {", new: "if l.any != none && part < x.last {",
	},
	{
		name: "index-exact-only", breaks: "an exact part hides networks and * before it", file: indexOfKeysGo, suites: ofKeys,
		old: "if part == x.last {\n				return", new: "if part <= x.last {\n				return",
	},
	{
		name: "index-longest-only", breaks: "of the networks that contain a part, only the longest is followed", file: indexOfKeysGo, suites: ofKeys,
		old: "bits = net.Bits() - 1", new: "bits = -1",
	},
	{
		name: "index-net-weight", breaks: "a network is as specific as *", file: indexOfKeysGo, suites: ofKeys,
		old: "weight+weightOf(net))", new: "weight)",
	},
	{
		name: "index-twice", breaks: "a later override of the same networks replaces the first", file: indexOfKeysGo, suites: ofKeys,
		old: "if n, ok := l.nets.Get(part.prefix); ok {", new: "if n, ok := l.nets.Get(part.prefix); ok && n < 0 {",
	},
	{
		name: "index-level", breaks: "patterns that begin with the same text share no level", file: indexOfKeysGo, suites: ofKeys,
		old: "if n, ok := l.exact[string(part.exact)]; ok {", new: "if n, ok := l.exact[string(part.exact)]; ok && n < 0 {",
	},
	{
		name: "index-narrow", breaks: "a network of the zone's prefix is taken for a narrower one", file: patternGo, suites: ofKeys,
		old: "return net.Bits() > p.V4", new: "return net.Bits() >= p.V4",
	},
	{
		name: "limits-mixed", breaks: "a request meets the limit of another", file: limitsGo, suites: ofRequests,
		old: "slices.Equal(v.limits, list)", new: "len(v.limits) == len(list)",
	},
	{
		name: "limits-zero", breaks: "the limit 0 counts as none", file: limitsGo, suites: ofRequests,
		old: "} else if n == 0 {", new: "} else if n < 0 {",
	},
	{
		name: "limits-missing", breaks: "a limit that is missing is not told", file: limitsGo, suites: ofRequests,
		old: "				bad = true", new: "				bad = l == nil",
	},
	{
		name: "limits-refused", breaks: "a limit that is refused is not told", file: limitsGo, suites: ofRequests,
		old: "l.base.specs[i].Limit, true", new: "l.base.specs[i].Limit, false",
	},
	{
		name: "limits-window", breaks: "a rate with another window is taken", file: limitFromGo, suites: ofRequests,
		old: "err == nil && window == l.window", new: "err == nil && window > 0",
	},
	{
		name: "limits-sign", breaks: "a limit may have a sign", file: limitFromGo, suites: ofRequests,
		old: "if text[0] >= '0' && text[0] <= '9' {", new: "if text[0] <= '9' {",
	},
	{
		name: "limits-long", breaks: "a limit of any length is read", file: limitFromGo, suites: ofRequests,
		old: "len(text) > maxLimitText", new: "len(text) > maxLimitText<<20",
	},
	{
		name: "limits-near-edge", breaks: "with a fifth left a request is near the limit", file: decisionGo, suites: ofRequests,
		old: "5*c.Results[i].Remaining < r.Capacity()", new: "5*c.Results[i].Remaining <= r.Capacity()",
	},
	{
		name: "limits-near-floor", breaks: "a fifth of a limit is rounded down", file: decisionGo, suites: ofRequests,
		old: "5*c.Results[i].Remaining < r.Capacity()", new: "c.Results[i].Remaining < r.Capacity()/5",
	},
	{
		name: "limits-near-limit", breaks: "a fifth of the limit is looked at instead of the burst", file: decisionGo, suites: ofRequests,
		old: "5*c.Results[i].Remaining < r.Capacity()", new: "5*c.Results[i].Remaining < r.Limit()",
	},
	{
		name: "limits-denial", breaks: "a denial is remembered though limits come from requests", file: denialsGo, suites: ofRedis,
		old: "if check.Zones[i].Counter.Varies() {", new: "if check.Zones[i].Counter == nil {",
	},
	{
		name: "limits-debts", breaks: "a debt is charged under the smallest limit of requests", file: handoversGo, suites: ofRedis,
		old: "capacityOf(c) <= capacityOf(z.Counter)", new: "capacityOf(c) > capacityOf(z.Counter)",
	},
	{
		name: "limits-remembered", breaks: "every limit of a request is remembered", file: handoversGo, suites: ofRedis,
		old: "d.adopt(cmp.Or(z.Counter.Base, z.Counter))", new: "d.adopt(cmp.Or(z.Counter, z.Counter.Base))",
	},
	{
		name: "limits-reset", breaks: "a reset is undone under a small limit of a request", file: resetsGo, suites: ofRedis,
		old: "meter && c.Varies()", new: "meter && c == nil",
	},
}
