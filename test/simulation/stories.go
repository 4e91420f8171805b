package simulation

import (
	"math/rand/v2"
	"time"
)

// A story is several steps that follow each other closely, which faults drawn one by one
// hardly ever do. Each step can still be left out.
var stories = map[string]func(r *rand.Rand, at time.Duration) []step{
	"flaps":              flaps,
	"stutters":           stutters,
	"long outage":        longOutage,
	"clock in an outage": clockInOutage,
	"losses":             losses,
	"loss while idle":    lossWhileIdle,
	"clock after death":  clockAfterDeath,
	"loss after reset":   lossAfterReset,
}

var storyNames = names(stories)

// drawStories adds up to two stories.
func (p *Plan) drawStories(r *rand.Rand) {
	for range r.IntN(3) {
		at := warmUp + 6*time.Second + time.Duration(r.Int64N(int64(p.load-warmUp-30*time.Second)))
		for _, s := range stories[storyNames[r.IntN(len(storyNames))]](r, at) {
			s.seed = r.Uint64()
			s.long = min(s.long, p.load-s.at)
			if s.long > 0 || faultKinds[s.what] == nil {
				p.steps = append(p.steps, s)
			}
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
func flaps(r *rand.Rand, at time.Duration) (list []step) {
	for range 3 + r.IntN(6) {
		long := between(r, 30*time.Millisecond, 1500*time.Millisecond)
		list = append(list, step{what: anyOutage(r), at: at, long: long, instance: -1})
		at += long + between(r, 20*time.Millisecond, 2*time.Second)
	}
	return list
}

// stutters are outages so short that only some calls fail.
func stutters(r *rand.Rand, at time.Duration) (list []step) {
	what := []string{"pause", "loading", "read-only"}[r.IntN(3)]
	for range 8 + r.IntN(12) {
		long := between(r, 20*time.Millisecond, 90*time.Millisecond)
		list = append(list, step{what: what, at: at, long: long, instance: -1})
		at += long + between(r, 100*time.Millisecond, 1500*time.Millisecond)
	}
	return list
}

// longOutage is an outage in which the permits of an instance lapse.
func longOutage(r *rand.Rand, at time.Duration) []step {
	return []step{{what: anyOutage(r), at: at, long: between(r, 25*time.Second, 45*time.Second), instance: r.IntN(4) - 1}}
}

// clockInOutage sets the clock while instances decide without Redis.
func clockInOutage(r *rand.Rand, at time.Duration) []step {
	long := between(r, 2*time.Second, 8*time.Second)
	return []step{
		{what: anyOutage(r), at: at, long: long, instance: -1},
		{what: []string{"clock-back", "clock-back", "clock-forward"}[r.IntN(3)], at: at + between(r, long/4, long), instance: -1, long: 1},
	}
}

// losses are several losses within the time of one sweep.
func losses(r *rand.Rand, at time.Duration) (list []step) {
	for range 2 + r.IntN(3) {
		list = append(list, step{what: []string{"flush", "flush", "evict"}[r.IntN(3)], at: at, long: 1, instance: -1})
		at += between(r, time.Second, 10*time.Second)
	}
	return list
}

// lossWhileIdle has Redis forget while an instance that knows what others do not has no
// requests.
func lossWhileIdle(r *rand.Rand, at time.Duration) []step {
	return []step{
		{what: "idle", at: at, long: between(r, 5*time.Second, 12*time.Second), instance: r.IntN(8)},
		{what: "flush", at: at + between(r, 50*time.Millisecond, 2*time.Second), long: 1, instance: -1},
	}
}

// clockAfterDeath sets the clock back while the permits of an instance that has died have not lapsed.
func clockAfterDeath(r *rand.Rand, at time.Duration) []step {
	return []step{
		{what: "die", at: at, long: between(r, time.Second, 40*time.Second), instance: r.IntN(8)},
		{what: "clock-back", at: at + between(r, 0, 15*time.Second), long: 1, instance: -1},
	}
}

// lossAfterReset has Redis forget shortly after a key was reset.
func lossAfterReset(r *rand.Rand, at time.Duration) []step {
	return []step{
		{what: "key-reset", at: at, instance: r.IntN(8)},
		{what: []string{"flush", "evict"}[r.IntN(2)], at: at + between(r, 0, 3*time.Second), long: 1, instance: -1},
	}
}
