package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A story is several steps that follow each other closely, which faults drawn one by one
// hardly ever do. Each step can still be left out. It has none if no site fits.
type story func(p *Plan, r *rand.Rand, at time.Duration) []step

// stories are of all sites.
var stories = map[string]story{
	"flaps":                flaps,
	"stutters":             stutters,
	"long outage":          longOutage,
	"clock in an outage":   clockInOutage,
	"losses":               losses,
	"loss while idle":      lossWhileIdle,
	"clock after death":    clockAfterDeath,
	"loss after reset":     lossAfterReset,
	"reset in a partition": resetInPartition,
	"relapse":              relapse,
}

// keyStories are of a key of their own, which nothing else is sent.
var keyStories = map[string]story{
	"loss after use":       lossAfterUse,
	"holder dies":          holderDies,
	"holder keeps":         holderKeeps,
	"holder is reloaded":   holderIsReloaded,
	"settled in an outage": settledInOutage,
}

// drawStories adds up to two stories of all sites, and two of a key.
func (p *Plan) drawStories(r *rand.Rand) {
	for range r.IntN(3) {
		p.tell(anyOf(stories, r), r)
	}
	for range 2 {
		p.tell(anyOf(keyStories, r), r)
	}
}

func anyOf(list map[string]story, r *rand.Rand) story { return list[names(list)[r.IntN(len(list))]] }

// tell adds the steps of a story.
func (p *Plan) tell(one story, r *rand.Rand) {
	at := warmUp + 6*time.Second + time.Duration(r.Int64N(int64(p.load-warmUp-30*time.Second)))
	for _, s := range one(p, r, at) {
		s.seed = r.Uint64()
		s.long = min(s.long, p.load-s.at)
		if s.long > 0 || faultKinds[s.what] == nil && !s.client {
			p.steps = append(p.steps, s)
		}
	}
}

// between draws a duration.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// outages are faults in which Redis decides nothing for any instance.
var outages = []string{"pause", "kill", "partition", "oom", "loading", "refuse", "half-open-down"}

func anyOutage(r *rand.Rand) string { return outages[r.IntN(len(outages))] }

// flaps are outages that follow each other.
func flaps(_ *Plan, r *rand.Rand, at time.Duration) (list []step) {
	for range 3 + r.IntN(6) {
		long := between(r, 30*time.Millisecond, 1500*time.Millisecond)
		list = append(list, step{what: anyOutage(r), at: at, long: long, instance: -1})
		at += long + between(r, 20*time.Millisecond, 2*time.Second)
	}
	return list
}

// stutters are outages so short that only some calls fail, of a key that comes often.
func stutters(p *Plan, r *rand.Rand, at time.Duration) (list []step) {
	c, busy := p.clients(ledger, "busy", r, anySite)
	c.at, c.instance, c.rate = at, -1, 60
	what := []string{"pause", "loading", "read-only"}[r.IntN(3)]
	for range 8 + r.IntN(12) {
		long := between(r, 20*time.Millisecond, 90*time.Millisecond)
		list = append(list, step{what: what, at: at, long: long, instance: -1})
		at += long + between(r, 100*time.Millisecond, 1500*time.Millisecond)
	}
	if c.long = at - c.at; busy {
		list = append(list, c)
	}
	return list
}

// longOutage is an outage in which the permits of an instance lapse.
func longOutage(_ *Plan, r *rand.Rand, at time.Duration) []step {
	return []step{{what: anyOutage(r), at: at, long: between(r, 25*time.Second, 45*time.Second), instance: r.IntN(4) - 1}}
}

// clockInOutage sets the clock while instances decide without Redis.
func clockInOutage(_ *Plan, r *rand.Rand, at time.Duration) []step {
	long := between(r, 2*time.Second, 8*time.Second)
	return []step{
		{what: anyOutage(r), at: at, long: long, instance: -1},
		{what: []string{"clock-back", "clock-back", "clock-forward"}[r.IntN(3)], at: at + between(r, long/4, long), instance: -1, long: 1},
	}
}

// relapse has Redis refuse again when instances are back, which then owe for a key.
func relapse(p *Plan, r *rand.Rand, at time.Duration) []step {
	c, _ := p.clients(ledger, "owed", r, anySite) // all plans have one
	c.at, c.long, c.instance = at, 4*time.Second, -1
	return []step{c, {what: "relapse", at: at + time.Second, long: between(r, 4*time.Second, 8*time.Second), instance: -1}}
}

// losses are several losses within the time of one sweep.
func losses(_ *Plan, r *rand.Rand, at time.Duration) (list []step) {
	for range 2 + r.IntN(3) {
		list = append(list, step{what: []string{"flush", "flush", "evict"}[r.IntN(3)], at: at, long: 1, instance: -1})
		at += between(r, time.Second, 10*time.Second)
	}
	return list
}

// lossWhileIdle has Redis forget while an instance that knows what others do not has no
// requests.
func lossWhileIdle(_ *Plan, r *rand.Rand, at time.Duration) []step {
	return []step{
		{what: "idle", at: at, long: between(r, 5*time.Second, 12*time.Second), instance: r.IntN(8)},
		{what: "flush", at: at + between(r, 50*time.Millisecond, 2*time.Second), long: 1, instance: -1},
	}
}

// clockAfterDeath sets the clock back while the permits of an instance that has died have not lapsed.
func clockAfterDeath(_ *Plan, r *rand.Rand, at time.Duration) []step {
	return []step{
		{what: "die", at: at, long: between(r, time.Second, 40*time.Second), instance: r.IntN(8)},
		{what: "clock-back", at: at + between(r, 0, 15*time.Second), long: 1, instance: -1},
	}
}

// lossAfterReset has Redis forget shortly after a key was reset.
func lossAfterReset(_ *Plan, r *rand.Rand, at time.Duration) []step {
	return []step{
		{what: "key-reset", at: at, instance: r.IntN(8)},
		{what: []string{"flush", "evict"}[r.IntN(2)], at: at + between(r, 0, 3*time.Second), long: 1, instance: -1},
	}
}

// resetInPartition resets a key while an instance that knows of it cannot hear of that.
func resetInPartition(p *Plan, r *rand.Rand, at time.Duration) []step {
	c, ok := p.clients(ledger, "k0", r, anySite)
	if !ok {
		return nil
	}
	return []step{
		{what: []string{"partition", "reset", "half-open-up", "half-open-down"}[r.IntN(4)], at: at, long: between(r, time.Second, 6*time.Second), instance: c.instance},
		{what: "key-reset", at: at + between(r, 0, time.Second), instance: c.instance + 1, site: c.site, key: c.key},
	}
}

// clients returns clients of a key of their own at the first site of a kind that fits, which
// send to one instance; false if there is none.
func (p *Plan) clients(k kind, key string, r *rand.Rand, fits func(one *site) bool) (c step, ok bool) {
	for i := range p.setup.sites {
		if one := &p.setup.sites[i]; one.Kind == k && fits(one) {
			return step{client: true, what: "load", site: i, key: key, rate: 10, instance: r.IntN(p.drawn)}, true
		}
	}
	return c, false
}

func anySite(*site) bool { return true }

// other returns the same clients at another instance.
func (s step) other(at, long time.Duration) step {
	s.instance++
	s.at, s.long = at, long
	return s
}

// lossAfterUse has Redis forget a key that one instance has used up, and another is asked for
// when all that instances know should have been put back.
func lossAfterUse(p *Plan, r *rand.Rand, at time.Duration) []step {
	c, ok := p.clients(bounded, "used", r, func(one *site) bool {
		a := one.Rules[0].Algorithm
		return one.Rules[0].Window >= 10*time.Second && (a == "sliding_log" || a == "sliding_window")
	})
	if !ok {
		return nil
	}
	c.at, c.long = at, 2*time.Second
	return []step{
		c,
		{what: "idle", at: at + c.long, long: 12 * time.Second, instance: c.instance},
		{what: "flush", at: at + c.long + between(r, 50*time.Millisecond, time.Second), long: 1, instance: -1},
		c.other(at+c.long+swept+1500*time.Millisecond, 3*time.Second),
	}
}

// soon is a time near the beginning of a run, for what lasts.
func soon(r *rand.Rand) time.Duration { return warmUp + between(r, time.Second, 10*time.Second) }

// holderDies has an instance die that holds places, and the clock set back sometimes before
// they lapse.
func holderDies(p *Plan, r *rand.Rand, _ time.Duration) []step {
	c, ok := p.clients(inFlight, "held", r, anySite)
	if !ok {
		return nil
	}
	c.at, c.long, c.holds = soon(r), time.Second, 20*time.Second
	list := []step{
		c,
		{what: "die", at: c.at + 2*time.Second, long: between(r, time.Second, 40*time.Second), instance: c.instance},
		c.other(c.at+15*time.Second, 40*time.Second),
	}
	if r.IntN(2) == 0 {
		list = append(list, step{what: "clock-back", at: c.at + between(r, 3*time.Second, 15*time.Second), long: 1, instance: -1})
	}
	return list
}

// holderKeeps has an instance hold places for which it, or another, is asked all the time.
// Redis may forget them meanwhile.
func holderKeeps(p *Plan, r *rand.Rand, _ time.Duration) []step {
	c, ok := p.clients(inFlight, "kept", r, anySite)
	if !ok {
		return nil
	}
	c.at, c.long, c.holds = soon(r), time.Second, between(r, 15*time.Second, 60*time.Second)
	others := c
	if r.IntN(2) == 0 {
		others.instance++
	}
	others.at, others.long, others.holds = c.at+3*time.Second, c.holds, 0
	list := []step{c, others}
	if r.IntN(3) == 0 {
		list = append(list, step{what: []string{"flush", "kill-empty"}[r.IntN(2)], at: c.at + between(r, 3*time.Second, 10*time.Second), long: between(r, time.Millisecond, time.Second), instance: -1})
	}
	return list
}

// holderIsReloaded replaces the store of an instance that holds places, before an outage.
func holderIsReloaded(p *Plan, r *rand.Rand, _ time.Duration) []step {
	c, ok := p.clients(inFlight, "reloaded", r, anySite)
	if !ok {
		return nil
	}
	c.at, c.long, c.holds = soon(r), time.Second, between(r, 10*time.Second, 30*time.Second)
	return []step{
		c,
		{what: "reload-pool", at: c.at + 2*time.Second, instance: c.instance},
		{what: anyOutage(r), at: c.at + between(r, 4*time.Second, 10*time.Second), long: between(r, 2*time.Second, 5*time.Second), instance: -1},
	}
}

// refusals are outages in which each call is answered.
var refusals = []string{"oom", "read-only", "loading", "busy"}

// settledInOutage has requests end while Redis refuses, of which some were decided before, and
// some by a store that is replaced meanwhile.
func settledInOutage(p *Plan, r *rand.Rand, at time.Duration) []step {
	c, ok := p.clients(settled, "settled", r, anySite)
	if !ok {
		return nil
	}
	c.at, c.long, c.holds = at, time.Second, 4*time.Second
	list := []step{c, {what: refusals[r.IntN(len(refusals))], at: at + between(r, 200*time.Millisecond, 3*time.Second), long: 6 * time.Second, instance: -1}}
	if r.IntN(2) == 0 {
		list = append(list, step{what: "reload-pool", at: list[1].at + between(r, 0, time.Second), instance: c.instance})
	}
	return list
}

// drawReload adds to every other plan a reload that changes an option of the stores while an
// instance owes for a key that nothing else is sent. Plans that follow one another take all faults
// that make instances decide without Redis in turn.
func (p *Plan) drawReload(r *rand.Rand) {
	if p.Seed%2 == 0 {
		return
	}
	whole := p.Seed%4 == 1 // what is lost is told best where no call is answered
	list := slices.DeleteFunc(faultsAt(p.setup.topology), func(name string) bool { return !faultKinds[name].away || whole && !faultKinds[name].whole })
	p.tell(func(p *Plan, r *rand.Rand, at time.Duration) []step {
		c, _ := p.clients(ledger, "kept", r, anySite) // all plans have one
		c.at, c.long = at, between(r, 4*time.Second, 7*time.Second)
		return []step{
			c,
			{what: list[p.Seed/4%uint64(len(list))], at: at + between(r, 0, 2*time.Second), long: between(r, 5*time.Second, 8*time.Second), instance: r.IntN(2)*(c.instance+1) - 1},
			{what: "reload-pool", at: at + between(r, 2*time.Second, 6*time.Second), instance: c.instance},
		}
	}, r)
}
