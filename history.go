package diana

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	historyStep  = 2 * second // microseconds
	historySteps = 150        // five minutes
)

// history is how much each zone of the configuration that runs let pass and
// denied in the last minutes, step by step. It reads the zones' tallies beside
// requests, which know nothing of it. A step's number is that of its beginning
// since 1970 in steps, so that numbers go on over a restart.
type history struct {
	mu    sync.Mutex
	zones map[string]*past
	last  int64 // the last step that ended

	stop context.CancelFunc // nil: nobody samples
	done sync.WaitGroup
}

// theHistory is that of the process.
var theHistory history

// past is that of one zone.
type past struct {
	tally          *tally
	passed, denied uint64 // when the last step ended
	first          int64  // the first step that was watched from its beginning
	steps          [historySteps]pastStep
}

type pastStep struct{ passed, denied uint32 }

// follow has zones watched from now on; without any, nobody samples. What is
// known of those that were watched before is kept. Two calls may not be made at
// the same time.
func (h *history) follow(zones map[string]*tally, now int64) {
	if len(zones) == 0 && h.stop != nil {
		h.stop()
		h.done.Wait()
		h.stop = nil
	}
	h.mu.Lock()
	h.advance(now)
	kept := make(map[string]*past, len(zones))
	for name, t := range zones {
		p := h.zones[name]
		if p == nil || p.tally != t {
			p = &past{tally: t, first: now/historyStep + 1}
			p.passed, p.denied = t.totals()
		}
		kept[name] = p
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
func (h *history) run(ctx context.Context) {
	for {
		left := historyStep - clock()%historyStep
		if pause(ctx, time.Duration(left)*time.Microsecond) {
			return
		}
		h.sample(clock())
	}
}

func (h *history) sample(now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(now)
}

// advance ends the steps that are over at an instant. Where several are, because
// the process was stopped, what was counted is spread over them. h.mu is held.
func (h *history) advance(now int64) {
	ended := now/historyStep - 1
	if ended <= h.last {
		return
	}
	for _, p := range h.zones {
		p.advance(max(h.last, ended-historySteps), ended)
	}
	h.last = ended
}

func (p *past) advance(last, ended int64) {
	passed, denied := p.tally.totals()
	spread := func(n uint64, i int64) uint32 {
		all, step := uint64(ended-last), uint64(i-last)
		return uint32(min(n*step/all-n*(step-1)/all, math.MaxUint32))
	}
	for i := last + 1; i <= ended; i++ {
		p.steps[i%historySteps] = pastStep{spread(passed-p.passed, i), spread(denied-p.denied, i)}
	}
	p.passed, p.denied = passed, denied
}

// totals are what a zone ever let pass, and denied or would have denied.
func (t *tally) totals() (passed, refused uint64) {
	return t.of(allowed) + t.of(delayed), t.of(denied) + t.of(shadowDenied)
}

// statusOfHistory is what the admin API says of the last minutes.
type statusOfHistory struct {
	Step  float64                 `json:"step"` // seconds
	Last  int64                   `json:"last"` // the last step's number: its beginning since 1970, in steps
	Zones map[string]statusOfPast `json:"zones"`
}

// statusOfPast is what a zone decided in each step, the last one last. A zone of
// which less is known has fewer.
type statusOfPast struct {
	Passed []uint32 `json:"allowed"`
	Denied []uint32 `json:"denied"` // also what a zone in shadow would have
}

// status tells of zones, or without any of all, from the step after since on.
func (h *history) status(zones []string, since int64) statusOfHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := statusOfHistory{Step: inSeconds(historyStep), Last: h.last, Zones: make(map[string]statusOfPast)}
	if len(zones) == 0 {
		for name, p := range h.zones {
			s.Zones[name] = p.status(since, h.last)
		}
	}
	for _, name := range zones {
		if p := h.zones[name]; p != nil {
			s.Zones[name] = p.status(since, h.last)
		}
	}
	return s
}

func (p *past) status(since, last int64) statusOfPast {
	from := max(since+1, p.first, last-historySteps+1)
	s := statusOfPast{Passed: []uint32{}, Denied: []uint32{}}
	for i := from; i <= last; i++ {
		step := p.steps[i%historySteps]
		s.Passed, s.Denied = append(s.Passed, step.passed), append(s.Denied, step.denied)
	}
	return s
}

// historyOf reads the question: zone for each zone that is wanted, and since.
func historyOf(q url.Values) (zones []string, since int64, err error) {
	if text := q.Get("since"); text != "" {
		if since, err = strconv.ParseInt(text, 10, 64); err != nil || since < 0 || since == math.MaxInt64 {
			return nil, 0, fmt.Errorf("since %q: want the number of a step, as last was", text[:min(len(text), 64)])
		}
	}
	return q["zone"], since, nil
}

// tallies are those of the app's zones that are in the metrics.
func (a *App) tallies() map[string]*tally {
	all := make(map[string]*tally)
	for _, h := range a.remote.list() {
		for _, z := range h.zones {
			if t := z.metrics.decisions; t != nil {
				all[z.Name] = t
			}
		}
	}
	return all
}
