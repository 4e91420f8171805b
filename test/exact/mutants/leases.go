//go:build unix

package main

// leaseMutants break what is charged in advance.
var leaseMutants = []mutant{
	{
		name: "lease-burst", breaks: "nothing of a burst is kept back", in: "algorithms.meter.keepBack", suites: redis,
		old: "m.burst -= kept", new: "m.burst -= 0 * kept",
	},
	{
		name: "lease-step", breaks: "the reserve of a lease is not rounded up to a whole step", in: "algorithms.meter.keepBack", suites: redis,
		old: "lease = cd(lease, m.step) * m.step", new: "lease += 0",
	},
	{
		name: "lua-lease-part", breaks: "a lease is charged in the part in which it begins", in: slidingLua, suites: redis,
		old: "max(0, 2 * L - u)), ahead", new: "max(0, 2 * L - u)), at",
	},
	{
		name: "lua-lease-stamp", breaks: "a lease is stamped with its beginning", in: logLua, suites: redis,
		old: "max(p and t or t + d, last)", new: "max(t, last)",
	},
	{
		name: "lua-lease-half", breaks: "a lease may be all that is left", in: generalLua, suites: redis,
		old: "z.n + 2 * more, z.held", new: "z.n + more, z.held",
	},
	{
		name: "lua-lease-held", breaks: "a lease takes what others hold", in: generalLua, suites: redis,
		old: "z.n + 2 * more, z.held", new: "z.n + 2 * more, 0",
	},
	{
		name: "lease-unsaid", breaks: "a reply that cannot be used says what was leased", in: "redis.decider.attempt", suites: redis,
		old: "check.Zones[i].Lease.Granted = -1", new: "_ = i",
	},
	{
		name: "lease-blocked", breaks: "a reply about a block is taken for one about the rules", in: "redis.leases.answered", suites: redis,
		old: "z.Lease.Granted >= 0 && !z.Blocked()", new: "z.Lease.Granted >= 0",
	},
	{
		name: "lease-slot", breaks: "a lease whose slot is another key's is not counted as granted", in: "redis.leases.answered", suites: redis,
		old: "if reported && z.Charged {", new: "if reported && z.Charged && x.is(z) {",
	},
	{
		name: "lease-window", breaks: "a lease outlives its window", in: "algorithms.Lasts", suites: redis,
		old: "return min(lease, e.end(s, now)-now)", new: "return max(lease, e.end(s, now)-now)",
	},
	{
		name: "lease-end", breaks: "a lease does not end", in: "redis.lease.draw", suites: redis,
		old: "p.left >= cost && now < p.end", new: "p.left >= cost",
	},
	{
		name: "lease-long", breaks: "a lease lasts twice as long", in: "redis.leases.answered", suites: redis,
		old: "sent + lasts - (lasts+999)/1000", new: "sent + 2*lasts",
	},
	{
		name: "lease-epoch", breaks: "a lease survives a reset", in: "redis.lease.own", suites: redis,
		old: "x.epoch, x.parts, x.thin = epoch, [2]leasedPart{}, false", new: "x.epoch, x.thin = epoch, false",
	},
	{
		name: "lease-pause", breaks: "a lease is requested continually for a key that is used up", in: "redis.leases.answered", suites: redis,
		old: "x.thin = got < z.Lease.Want/4; x.thin", new: "x.thin = false; x.thin",
	},
	{
		name: "lease-back", breaks: "what was taken for a denied request is lost", in: "redis.leasing.merge", suites: redis,
		old: "l.leases.putBack(z, z.Cost, g.end)", new: "_ = g",
	},
}
