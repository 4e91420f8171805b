package metrics

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/dianalimiter/diana/internal/clock"
)

const (
	historyStep  = 2_000_000 // microseconds
	historySteps = 150       // five minutes
)

// History is a time series of the decisions of each zone of the running configuration, and of
// its requests, of five minutes in steps of two seconds. It samples their
// counters. Steps are numbered by their start since 1970-01-01 UTC, in steps, so that
// numbers continue after a restart. The zero value is ready for use.
type History struct {
	mu    sync.Mutex
	zones map[string]*zoneHistory
	all   *zoneHistory // of requests, each counted once; nil: none was followed
	last  int64        // the last complete step

	stop context.CancelFunc // nil: not sampling
	done sync.WaitGroup
}

// zoneHistory is the history of one zone.
type zoneHistory struct {
	counters *Counters
	totals   [numSeries]uint64           // at the end of the last step
	first    int64                       // the first step sampled, in which the zone may have begun
	steps    [historySteps]historyCounts // ring by step number
}

// series is a curve of the history.
type series uint8

const (
	passed series = iota // allowed, also after a delay
	denied
	shadowed  // allowed, though a zone in shadow would have denied them
	delayed   // the part of passed that waited
	elsewhere // denied by another zone
	skipped   // passed uncounted
	fallback  // decided without the zone's store; also in the others
	numSeries
)

type historyCounts [numSeries]uint32

// Follow samples these zones and all requests from now on, and keeps the history of those
// sampled before. Without zones, sampling stops. now is in microseconds. Follow must not be
// called concurrently.
func (h *History) Follow(zones map[string]*Counters, requests *Counters, now int64) {
	if len(zones) == 0 && h.stop != nil {
		h.stop()
		h.done.Wait()
		h.stop = nil
	}
	h.mu.Lock()
	h.advance(now)
	kept := make(map[string]*zoneHistory, len(zones))
	for name, c := range zones {
		kept[name] = h.zones[name].of(c, now)
	}
	h.zones, h.all = kept, h.all.of(requests, now)
	h.mu.Unlock()
	if len(zones) > 0 && h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		h.done.Go(func() { h.run(ctx) })
	}
}

// of returns the history of these counters, another one if z is of others.
func (z *zoneHistory) of(c *Counters, now int64) *zoneHistory {
	if z == nil || z.counters != c {
		return &zoneHistory{counters: c, first: now / historyStep, totals: c.totals()}
	}
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
	from := max(h.last, ended-historySteps)
	for _, z := range h.zones {
		z.advance(from, ended)
	}
	if h.all != nil {
		h.all.advance(from, ended)
	}
	h.last = ended
}

func (z *zoneHistory) advance(last, ended int64) {
	totals := z.counters.totals()
	spread := func(n uint64, i int64) uint32 {
		all, step := uint64(ended-last), uint64(i-last)
		return uint32(min(n*step/all-n*(step-1)/all, math.MaxUint32))
	}
	for i := last + 1; i <= ended; i++ {
		step := &z.steps[i%historySteps]
		for s := range totals {
			step[s] = spread(max(totals[s], z.totals[s])-z.totals[s], i) // of requests, some may have moved
		}
	}
	z.totals = totals
}

// totals returns the numbers of decisions so far.
func (c *Counters) totals() [numSeries]uint64 {
	waited := c.sum(Delayed) + c.sum(ShadowDelayed)
	return [numSeries]uint64{
		passed: c.sum(Allowed) + waited, denied: c.sum(Denied), shadowed: c.sum(ShadowDenied), delayed: waited,
		elsewhere: c.sum(DeniedElsewhere), skipped: c.sum(Skipped), fallback: c.fallbacks.Load(),
	}
}

// Minutes is the history of several zones, the answer of GET /rate_limit/history.
type Minutes struct {
	Step  float64                `json:"step"`  // length of a step in seconds
	Last  int64                  `json:"last"`  // number of the last step: its start since 1970, in steps
	Zones map[string]ZoneMinutes `json:"zones"` // by name

	// Requests is the history of requests, each counted once, however many zones it met.
	Requests ZoneMinutes `json:"requests"`
}

// ZoneMinutes is the numbers of requests in each step, up to the last step. Zones sampled
// later have fewer steps. Of the curves that may be left out, one that is 0 in each step
// is.
type ZoneMinutes struct {
	Passed    []uint32 `json:"allowed"`                    // including those delayed
	Denied    []uint32 `json:"denied"`                     // by the zone
	Shadowed  []uint32 `json:"shadow_denied,omitempty"`    // those that the zone would deny if it were not in shadow; they are in no other curve
	Delayed   []uint32 `json:"delayed,omitempty"`          // those of allowed that waited, or would wait in a zone that is not in shadow
	Elsewhere []uint32 `json:"denied_elsewhere,omitempty"` // denied by another zone
	Skipped   []uint32 `json:"skipped,omitempty"`          // uncounted: exempt, unlimited, or the zone is off
	Fallback  []uint32 `json:"fallback,omitempty"`         // decided without the zone's store
}

// Since returns the history after the step since, of these zones or, without any, of all.
func (h *History) Since(zones []string, since int64) Minutes {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.minutes(since)
	if len(zones) == 0 {
		for name, z := range h.zones {
			m.Zones[name] = z.since(since, h.last)
		}
	}
	for _, name := range zones {
		if z := h.zones[name]; z != nil {
			m.Zones[name] = z.since(since, h.last)
		}
	}
	return m
}

// Changes is Since without the zones that decided nothing meanwhile.
func (h *History) Changes(since int64) Minutes {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.minutes(since)
	for name, z := range h.zones {
		if z.busy(since, h.last) {
			m.Zones[name] = z.since(since, h.last)
		}
	}
	return m
}

// minutes returns the history of requests after the step since, without zones. h.mu is held.
func (h *History) minutes(since int64) Minutes {
	m := Minutes{Step: historyStep / 1e6, Last: h.last, Zones: make(map[string]ZoneMinutes)}
	if h.all != nil {
		m.Requests = h.all.since(since, h.last)
	}
	return m
}

// from returns the first step after since that is kept.
func (z *zoneHistory) from(since, last int64) int64 {
	return max(since+1, z.first, last-historySteps+1)
}

// busy reports whether the zone decided anything after the step since.
func (z *zoneHistory) busy(since, last int64) bool {
	for i := z.from(since, last); i <= last; i++ {
		if z.steps[i%historySteps] != (historyCounts{}) {
			return true
		}
	}
	return false
}

func (z *zoneHistory) since(since, last int64) ZoneMinutes {
	from := z.from(since, last)
	curve := func(s series) (list []uint32, some bool) {
		list = make([]uint32, 0, max(0, last-from+1))
		for i := from; i <= last; i++ {
			n := z.steps[i%historySteps][s]
			list, some = append(list, n), some || n > 0
		}
		return list, some
	}
	if from > last {
		return ZoneMinutes{Passed: []uint32{}, Denied: []uint32{}}
	}
	var m ZoneMinutes
	m.Passed, _ = curve(passed)
	m.Denied, _ = curve(denied)
	for s, to := range map[series]*[]uint32{shadowed: &m.Shadowed, delayed: &m.Delayed, elsewhere: &m.Elsewhere, skipped: &m.Skipped, fallback: &m.Fallback} {
		if list, some := curve(s); some {
			*to = list
		}
	}
	return m
}
