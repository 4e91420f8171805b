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

// History is how much each zone of the configuration that runs allowed and denied in
// the last minutes, step by step. It reads the zones' counters beside requests. The
// number of a step is its beginning since 1970-01-01 UTC in steps, so that numbers go
// on over a restart. The zero value is ready.
type History struct {
	mu    sync.Mutex
	zones map[string]*zoneHistory
	last  int64 // the last step that ended

	stop context.CancelFunc // nil: nobody samples
	done sync.WaitGroup
}

// zoneHistory is that of one zone.
type zoneHistory struct {
	counters       *Counters
	passed, denied uint64 // when the last step ended
	first          int64  // the first step that was watched from its beginning
	steps          [historySteps]historyCounts
}

type historyCounts struct{ passed, denied uint32 }

// Follow watches zones from now on, an instant in microseconds; without any, nobody
// samples. What is known of zones that were watched before is kept. Two calls must
// not be made at the same time.
func (h *History) Follow(zones map[string]*Counters, now int64) {
	if len(zones) == 0 && h.stop != nil {
		h.stop()
		h.done.Wait()
		h.stop = nil
	}
	h.mu.Lock()
	h.advance(now)
	kept := make(map[string]*zoneHistory, len(zones))
	for name, c := range zones {
		z := h.zones[name]
		if z == nil || z.counters != c {
			z = &zoneHistory{counters: c, first: now/historyStep + 1}
			z.passed, z.denied = c.totals()
		}
		kept[name] = z
	}
	h.zones = kept
	h.mu.Unlock()
	if len(zones) > 0 && h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		h.done.Go(func() { h.run(ctx) })
	}
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

// advance ends the steps that are over at an instant. Where several are, because
// the process was stopped, what was counted is spread over them. h.mu is held.
func (h *History) advance(now int64) {
	ended := now/historyStep - 1
	if ended <= h.last {
		return
	}
	for _, z := range h.zones {
		z.advance(max(h.last, ended-historySteps), ended)
	}
	h.last = ended
}

func (z *zoneHistory) advance(last, ended int64) {
	passed, denied := z.counters.totals()
	spread := func(n uint64, i int64) uint32 {
		all, step := uint64(ended-last), uint64(i-last)
		return uint32(min(n*step/all-n*(step-1)/all, math.MaxUint32))
	}
	for i := last + 1; i <= ended; i++ {
		z.steps[i%historySteps] = historyCounts{spread(passed-z.passed, i), spread(denied-z.denied, i)}
	}
	z.passed, z.denied = passed, denied
}

// totals returns how much a zone ever allowed, and denied or would have denied.
func (c *Counters) totals() (passed, denied uint64) {
	return c.sum(Allowed) + c.sum(Delayed), c.sum(Denied) + c.sum(ShadowDenied)
}

// Minutes is the history of several zones, as the admin API answers it.
type Minutes struct {
	Step  float64                `json:"step"`  // seconds
	Last  int64                  `json:"last"`  // the last step's number: its beginning since 1970, in steps
	Zones map[string]ZoneMinutes `json:"zones"` // by name
}

// ZoneMinutes is what a zone decided in each step, the last one last. A zone of which
// less is known has fewer.
type ZoneMinutes struct {
	Passed []uint32 `json:"allowed"` // at once or delayed
	Denied []uint32 `json:"denied"`  // also what a zone in shadow would have denied
}

// Since returns the history of zones, or without any of all, from the step after
// since on.
func (h *History) Since(zones []string, since int64) Minutes {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := Minutes{Step: historyStep / 1e6, Last: h.last, Zones: make(map[string]ZoneMinutes)}
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

func (z *zoneHistory) since(since, last int64) ZoneMinutes {
	from := max(since+1, z.first, last-historySteps+1)
	m := ZoneMinutes{Passed: []uint32{}, Denied: []uint32{}}
	for i := from; i <= last; i++ {
		step := z.steps[i%historySteps]
		m.Passed, m.Denied = append(m.Passed, step.passed), append(m.Denied, step.denied)
	}
	return m
}
