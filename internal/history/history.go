// Package history keeps what zones decided over time, and the events that explain it, for the tools.
// Nothing here is on the way of a request: counters are sampled.
package history

import (
	"context"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/metrics"
)

// Range is a part of the history, with steps of its own: what is older is kept in longer
// steps.
type Range struct {
	Name  string        // in queries
	Lasts time.Duration // how far back it goes
	step  int64         // in steps of the first range
}

// steps returns the number of steps of a range.
func (r *Range) steps() int64 { return r.Lasts.Microseconds() / (historyStep * r.step) }

const historyStep = 2_000_000 // microseconds, of the first range

// Ranges are the ranges of the history: five minutes in steps of 2 s, an hour in steps of
// 10 s, and a day in steps of 2 min.
var Ranges = [...]Range{{"5m", 5 * time.Minute, 1}, {"1h", time.Hour, 5}, {"24h", 24 * time.Hour, 60}}

// History is a time series of the decisions of each zone of the running configuration, and of
// its requests. It samples their counters at the end of each step of the first range, whose
// steps make up those of the others. Steps are numbered by their start since 1970-01-01 UTC, in steps of
// their range, so that numbers continue after a restart. The zero value is ready for use.
type History struct {
	mu    sync.Mutex
	zones map[string]*zoneHistory
	all   *zoneHistory // of requests, each counted once; nil: none was followed
	last  int64        // the last complete step of the first range

	stop context.CancelFunc // nil: not sampling
	done sync.WaitGroup
}

// Of returns the history of decisions of a process.
func Of(p *process.Process) *History { return histories.Of(p) }

// MarksOf returns the marks of a process.
func MarksOf(p *process.Process) *Marks { return marks.Of(p) }

var (
	histories process.Var[History]
	marks     process.Var[Marks]
)

// zoneHistory is the history of one zone.
type zoneHistory struct {
	counters *metrics.Counters
	totals   historyTotals                // at the end of the last step
	first    int64                        // the first step sampled, in which the zone may have begun
	steps    [len(Ranges)][]historyCounts // rings by step number; nil: the zone never decided
	places   *placesHistory               // nil: it has no in_flight adaptive
}

// series is a curve of the history.
type series uint8

const (
	passed        series = iota // allowed, also after a delay
	denied                      // by the zone
	shadowDenied                // passed, and would be denied if the zone were not in shadow; in no other curve
	delayed                     // the part of passed that waited
	shadowDelayed               // the part of passed that would wait if the zone were not in shadow
	elsewhere                   // denied by another zone
	left                        // by their clients, while they waited
	skipped                     // passed uncounted
	fallback                    // decided without the zone's store; also in the others
	cost                        // what requests cost by their responses: no number of requests
	numSeries
)

type (
	historyCounts [numSeries]uint32
	historyTotals [numSeries]uint64
)

// Follow samples these zones and all requests from now on, and keeps the history of those
// sampled before. Without zones, sampling stops. now is in microseconds. Follow must not be
// called concurrently.
func (h *History) Follow(zones map[string]metrics.Sampled, requests *metrics.Counters, now int64) {
	if len(zones) == 0 && h.stop != nil {
		h.stop()
		h.done.Wait()
		h.stop = nil
	}
	h.mu.Lock()
	h.advance(now)
	followed := make(map[string]*zoneHistory, len(zones))
	for name, z := range zones {
		followed[name] = h.zones[name].of(z, now)
	}
	h.zones, h.all = followed, h.all.of(metrics.Sampled{Counters: requests}, now)
	h.mu.Unlock()
	if len(zones) > 0 && h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		h.done.Go(func() { h.run(ctx) })
	}
}

// of returns the history of these counters, another one if z is of others.
func (z *zoneHistory) of(zone metrics.Sampled, now int64) *zoneHistory {
	if c := zone.Counters; z == nil || z.counters != c {
		z = &zoneHistory{counters: c, first: now / historyStep, totals: totalsOf(c)}
	}
	z.places = z.places.of(zone.Places, now)
	return z
}

// run samples at the end of each step until ctx ends.
func (h *History) run(ctx context.Context) {
	for {
		left := historyStep - clock.Now()%historyStep
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(left) * time.Microsecond):
		}
		h.sample(clock.Now())
	}
}

func (h *History) sample(now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(now)
}

// advance completes the steps that ended before now. If several did, because the process
// was suspended, the counts are spread evenly over them. h.mu is held.
func (h *History) advance(now int64) {
	ended := now/historyStep - 1
	if ended <= h.last {
		return
	}
	for _, z := range h.zones {
		z.advance(h.last, ended)
	}
	if h.all != nil {
		h.all.advance(h.last, ended)
	}
	h.last = ended
}

// advance adds the steps of the first range after last, up to ended.
func (z *zoneHistory) advance(last, ended int64) {
	z.places.advance(last, ended)
	totals := totalsOf(z.counters)
	for s := range totals { // requests that have moved to another curve are subtracted from those that follow
		totals[s] = max(totals[s], z.totals[s])
	}
	if z.steps[0] == nil {
		if totals == z.totals {
			return
		}
		// A zone that never decides anything needs no room. One step has not ended.
		for i := range Ranges {
			z.steps[i] = make([]historyCounts, Ranges[i].steps()+1)
		}
	}
	for i, k := range begun(last, ended) {
		*z.at(i, k) = historyCounts{}
	}
	last = max(last, ended-Ranges[0].steps())
	spread := func(n uint64, k int64) uint32 {
		all, step := uint64(ended-last), uint64(k-last)
		return uint32(min(n*step/all-n*(step-1)/all, math.MaxUint32))
	}
	for k := last + 1; k <= ended; k++ {
		for s := range totals {
			n := spread(totals[s]-z.totals[s], k)
			for i := range Ranges {
				at := &z.at(i, k/Ranges[i].step)[s]
				*at += min(n, math.MaxUint32-*at)
			}
		}
	}
	z.totals = totals
}

// begun returns the ranges and their steps that begin after the step last of the first range, up to its step ended.
func begun(last, ended int64) iter.Seq2[int, int64] {
	return func(yield func(int, int64) bool) {
		for i := range Ranges {
			for k := max(last/Ranges[i].step, ended/Ranges[i].step-Ranges[i].steps()-1) + 1; k <= ended/Ranges[i].step; k++ {
				if !yield(i, k) {
					return
				}
			}
		}
	}
}

// at returns a step of the range i.
func (z *zoneHistory) at(i int, k int64) *historyCounts {
	return &z.steps[i][k%int64(len(z.steps[i]))]
}

// totalsOf returns the numbers of decisions so far.
func totalsOf(c *metrics.Counters) historyTotals {
	waited, shadowWaited, shadow := c.Sum(metrics.Delayed), c.Sum(metrics.ShadowDelayed), c.Sum(metrics.ShadowDenied)
	return historyTotals{
		passed: c.Sum(metrics.Allowed) + waited + shadowWaited, denied: c.Sum(metrics.Denied), shadowDenied: shadow, delayed: waited, shadowDelayed: shadowWaited,
		elsewhere: c.Sum(metrics.DeniedElsewhere), left: c.Sum(metrics.Left), skipped: c.Sum(metrics.Skipped), fallback: c.Sum(metrics.Fallback),
		cost: c.Sum(metrics.Settled),
	}
}

// Past is a range of the history of several zones, the answer of GET /rate_limit/history.
type Past struct {
	Step  float64             `json:"step"`  // length of a step in seconds
	Last  int64               `json:"last"`  // number of the last step: its start since 1970, in steps
	Zones map[string]ZonePast `json:"zones"` // by name

	// Requests is the history of requests, each counted once, however many zones it met.
	Requests ZonePast `json:"requests"`
}

// ZonePast is the numbers of requests in each step, up to the last step. Zones sampled
// later have fewer steps. Of the curves that may be left out, one that is 0 in each step
// is.
type ZonePast struct {
	Passed        []uint32 `json:"allowed"`                    // including those delayed
	Denied        []uint32 `json:"denied"`                     // by the zone
	ShadowDenied  []uint32 `json:"shadow_denied,omitempty"`    // requests that the zone would deny if it were not in shadow; they are in no other curve
	Delayed       []uint32 `json:"delayed,omitempty"`          // allowed requests that waited
	ShadowDelayed []uint32 `json:"shadow_delayed,omitempty"`   // allowed requests that would wait if the zone were not in shadow
	Elsewhere     []uint32 `json:"denied_elsewhere,omitempty"` // denied by another zone
	Left          []uint32 `json:"left,omitempty"`             // whose clients left while they waited
	Skipped       []uint32 `json:"skipped,omitempty"`          // uncounted: exempt, unlimited, or the zone is off
	Fallback      []uint32 `json:"fallback,omitempty"`         // decided without the zone's store
	Cost          []uint32 `json:"cost,omitempty"`             // what requests cost by their responses, with tokens or settle; 4294967295: that and more

	Places *PlacesPast `json:"places,omitempty"` // with in_flight adaptive
}

// past returns what the range i has after its step since, of the zones that are wanted.
func (h *History) past(i int, since int64, wants func(string, *zoneHistory) bool) Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &Ranges[i]
	p := Past{Step: float64(r.step*historyStep) / 1e6, Last: (h.last+1)/r.step - 1, Zones: make(map[string]ZonePast)}
	if h.all != nil {
		p.Requests = h.all.since(i, since, p.Last)
	}
	for name, z := range h.zones {
		if wants(name, z) {
			p.Zones[name] = z.since(i, since, p.Last)
		}
	}
	return p
}

// Since returns what the range i has after its step since, of these zones or, without any,
// of all.
func (h *History) Since(i int, zones []string, since int64) Past {
	return h.past(i, since, func(name string, _ *zoneHistory) bool { return len(zones) == 0 || slices.Contains(zones, name) })
}

// Changes returns what the first range has after the step since, without the zones that
// decided nothing meanwhile and have no places.
func (h *History) Changes(since int64) Past {
	return h.past(0, since, func(_ string, z *zoneHistory) bool { return z.busy(since, h.last) })
}

// kept returns the first step of the range i after since that is kept of what is sampled from the step first.
func kept(i int, first, since, last int64) int64 {
	return max(since+1, first/Ranges[i].step, last-Ranges[i].steps()+1)
}

// busy reports whether the zone decided anything after the step since of the first range, or has places.
func (z *zoneHistory) busy(since, last int64) bool {
	if z.places != nil {
		return true
	}
	if z.steps[0] == nil {
		return false
	}
	for k := kept(0, z.first, since, last); k <= last; k++ {
		if *z.at(0, k) != (historyCounts{}) {
			return true
		}
	}
	return false
}

func (z *zoneHistory) since(i int, since, last int64) ZonePast {
	from := kept(i, z.first, since, last)
	curve := func(s series) (list []uint32, some bool) {
		list = make([]uint32, max(0, last-from+1))
		for k := range list {
			if z.steps[i] != nil {
				list[k] = z.at(i, from+int64(k))[s]
			}
			some = some || list[k] > 0
		}
		return list, some
	}
	p := ZonePast{Places: z.places.since(i, since, last)}
	p.Passed, _ = curve(passed)
	p.Denied, _ = curve(denied)
	for s, to := range map[series]*[]uint32{
		shadowDenied: &p.ShadowDenied, delayed: &p.Delayed, shadowDelayed: &p.ShadowDelayed,
		elsewhere: &p.Elsewhere, left: &p.Left, skipped: &p.Skipped, fallback: &p.Fallback, cost: &p.Cost,
	} {
		if list, some := curve(s); some {
			*to = list
		}
	}
	return p
}
