package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// waitBuckets are the upper bounds of the buckets of waits.
var waitBuckets = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 10 * time.Second, time.Minute,
}

// priorities is the number of priorities.
const priorities = 8

// Waits are how long requests waited for a place, by priority. The zero value is ready for use.
type Waits struct {
	bands [priorities]struct {
		buckets [len(waitBuckets) + 1]atomic.Uint64 // the last: longer than all
		sum     atomic.Int64                        // ns
	}
}

// Observe counts a wait.
func (w *Waits) Observe(priority int, took time.Duration) {
	i := 0
	for i < len(waitBuckets) && took > waitBuckets[i] {
		i++
	}
	b := &w.bands[priority]
	b.buckets[i].Add(1)
	b.sum.Add(int64(took))
}

// Places is what the metrics show of the places of a zone with in_flight adaptive.
type Places struct {
	Limit, InFlight int               // how many requests may be in flight, and how many are
	Priorities      []string          // their names
	Waiting         []int             // by priority
	Waits           *Waits            // how long they waited
	Moves           map[string]uint64 // of the limit, by name
}

// Sampled is what the history samples of a zone.
type Sampled struct {
	Counters *Counters      // its decisions
	Places   func() *Places // nil: it has no in_flight adaptive
}

var (
	inFlightLimitDesc = desc("in_flight_limit", "Limit that in_flight adaptive has found, of requests in flight. Only for zones with it.", "zone")
	inFlightDesc      = desc("in_flight", "Requests in flight of zones with in_flight adaptive.", "zone")
	waitingDesc       = desc("waiting", "Requests that wait for a place of in_flight adaptive, by priority.", "zone", "priority")
	waitSecondsDesc   = desc("wait_seconds", "Duration of such waits, also of those that ended without a place.", "zone", "priority")
	movesDesc         = desc("in_flight_moves_total", "Moves of the limit of in_flight adaptive: up, down, and brake: half of it, because most requests failed slowly.", "zone", "to")
	badPriorityDesc   = desc("bad_priority_total", "Requests whose priority was none of the classes of in_flight adaptive, and counted as the last.", "zone")
)

func (p *Places) collect(to samples, name string, c *Counters) {
	if p == nil {
		return
	}
	to.gauge(inFlightLimitDesc, float64(p.Limit), name)
	to.gauge(inFlightDesc, float64(p.InFlight), name)
	for move, n := range p.Moves {
		to.counter(movesDesc, n, name, move)
	}
	to.counter(badPriorityDesc, c.Sum(BadPriority), name)
	for i, priority := range p.Priorities {
		to.gauge(waitingDesc, float64(p.Waiting[i]), name, priority)
		b := &p.Waits.bands[i]
		var count uint64
		buckets := make(map[float64]uint64, len(waitBuckets))
		for j := range b.buckets {
			count += b.buckets[j].Load()
			if j < len(waitBuckets) {
				buckets[waitBuckets[j].Seconds()] = count
			}
		}
		to <- prometheus.MustNewConstHistogram(waitSecondsDesc, count, time.Duration(b.sum.Load()).Seconds(), buckets, name, priority)
	}
}
