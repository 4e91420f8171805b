//go:build unix

package main

var (
	ofKeys     = []suite{keys}
	ofRequests = []suite{limiterTests}
	ofRedis    = []suite{redisStore}
)

// limitMutants break which limit a request meets: the search for its override, and the
// limits that requests bring.
var limitMutants = []mutant{
	{
		name: "index-order", breaks: "of overrides that are as specific the last one wins", in: "key.Index.Add", suites: ofKeys,
		old: "m.pattern.weight < p.weight", new: "m.pattern.weight <= p.weight",
	},
	{
		name: "index-weight", breaks: "the least specific override wins", in: "key.Index.Add", suites: ofKeys,
		old: "m.pattern.weight < p.weight", new: "m.pattern.weight > p.weight",
	},
	{
		name: "index-any", breaks: "* matches only itself", in: "key.Pattern.matches", suites: ofKeys,
		old: "if p.any {", new: "if p.any && len(k.part(i)) == 2 {",
	},
	{
		name: "index-text", breaks: "a network in a key of several parts matches every address", in: "key.Pattern.matches", suites: ofKeys,
		old: "!p.prefix.Contains(addr)", new: "!p.prefix.Contains(addr) && !ok",
	},
	{
		name: "index-net-weight", breaks: "a network is as specific as *", in: "key.weightOf", suites: ofKeys,
		old: "return 1 + prefix.Bits() + family", new: "return 0 * family",
	},
	{
		name: "index-twice", breaks: "a later override of the same network replaces the first", in: "key.Index.Add", suites: ofKeys,
		old: "if is {", new: "if is && false {",
	},
	{
		name: "index-narrow", breaks: "a network of the zone's prefix is taken for a narrower one", in: "key.Plan.narrow", suites: ofKeys,
		old: "return net.Bits() > p.bits(net.Addr())", new: "return net.Bits() >= p.bits(net.Addr())",
	},
	{
		name: "limits-mixed", breaks: "a request meets the limit of another", in: "limiter.limits.find", suites: ofRequests,
		old: "slices.Equal(v.limits, list)", new: "len(v.limits) == len(list)",
	},
	{
		name: "limits-zero", breaks: "the limit 0 counts as none", in: "limiter.limits.of", suites: ofRequests,
		old: "} else if n == 0 {", new: "} else if n < 0 {",
	},
	{
		name: "limits-missing", breaks: "a limit that is missing is not told", in: "limiter.limits.of", suites: ofRequests,
		old: "				bad = true", new: "				bad = l == nil",
	},
	{
		name: "limits-refused", breaks: "a limit that is refused is not told", in: "limiter.limited.refused", suites: ofRequests,
		old: "return !slices", new: "return len(v.limits) == 0 && !slices",
	},
	{
		name: "limits-window", breaks: "a rate with another window is taken", in: "config.LimitFrom.Limit", suites: ofRequests,
		old: "err == nil && window == l.window", new: "err == nil && window != (Window{})",
	},
	{
		name: "limits-sign", breaks: "a limit may have a sign", in: "config.LimitFrom.Limit", suites: ofRequests,
		old: "if text[0] >= '0' && text[0] <= '9' {", new: "if text[0] <= '9' {",
	},
	{
		name: "limits-long", breaks: "a limit of any length is read", in: "config.LimitFrom.Limit", suites: ofRequests,
		old: "len(text) > maxLimitText", new: "len(text) > maxLimitText<<20",
	},
	{
		name: "limits-near-edge", breaks: "with a fifth left a request is near the limit", in: "limiter.zoneResult.isNear", suites: ofRequests,
		old: "5*c.Results[r].Remaining < c.Rules[r].Capacity()", new: "5*c.Results[r].Remaining <= c.Rules[r].Capacity()",
	},
	{
		name: "limits-near-floor", breaks: "a fifth of a limit is rounded down", in: "limiter.zoneResult.isNear", suites: ofRequests,
		old: "5*c.Results[r].Remaining < c.Rules[r].Capacity()", new: "c.Results[r].Remaining < c.Rules[r].Capacity()/5",
	},
	{
		name: "limits-near-limit", breaks: "a fifth of the limit is looked at instead of the burst", in: "limiter.zoneResult.isNear", suites: ofRequests,
		old: "5*c.Results[r].Remaining < c.Rules[r].Capacity()", new: "5*c.Results[r].Remaining < c.Rules[r].Limit()",
	},
	{
		name: "limits-denial", breaks: "a check is denied without a call though limits come from requests", in: "outage.recall", suites: ofRedis,
		old: "permit || z.Counter.Varies() {", new: "permit {",
	},
	{
		name: "limits-debts", breaks: "a debt is charged under the smallest limit of requests", in: "outage.Handovers.remember", suites: ofRedis,
		old: "c.Capacity() <= of.Capacity()", new: "c.Capacity() > of.Capacity()",
	},
	{
		name: "limits-reset", breaks: "a reset is undone under a small limit of a request", in: "redis.forgetsAfter", suites: ofRedis,
		old: "refills && c.Varies()", new: "refills && c == nil",
	},
}
