package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PlaceState is what the places of a zone with in_flight adaptive are in this instance.
type PlaceState struct {
	Min      int               `json:"min"`                 // least limit
	Max      int               `json:"max"`                 // greatest limit
	Limit    int               `json:"limit"`               // requests that may be in flight now
	InFlight int               `json:"in_flight"`           // requests that are
	Waiting  map[string]int    `json:"waiting"`             // requests that wait, by priority; without priorities under 0
	Moves    map[string]uint64 `json:"moves"`               // moves of the limit: up, down and brake
	Last     *PlaceMove        `json:"last_move,omitempty"` // absent: the limit did not move yet

	Priorities []string                 `json:"-"` // their names, in their order
	Waits      *prometheus.HistogramVec `json:"-"` // see NewWaits
}

// PlaceMove is a move of the limit of a zone.
type PlaceMove struct {
	At    time.Time `json:"at"`    // when it was
	To    string    `json:"to"`    // up, down or brake
	From  float64   `json:"from"`  // the limit before
	Limit float64   `json:"limit"` // the limit after
	Why   string    `json:"why"`   // the reason
}

// NewWaits returns the durations of waits for the places of a zone, by priority.
func NewWaits() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: Namespace, Name: "wait_seconds", Help: "Duration of such waits, also of those that ended without a place.",
		Buckets: []float64{1e-3, 5e-3, 2e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 10, 60},
	}, []string{"zone", "priority"})
}

// Sampled is what the history samples of a zone.
type Sampled struct {
	Counters *Counters          // its decisions
	Places   func() *PlaceState // nil: it has no in_flight adaptive
}

var (
	inFlightLimitDesc = desc("in_flight_limit", "Limit that in_flight adaptive has found, of requests in flight. Only for zones with it.", "zone")
	inFlightDesc      = desc("in_flight", "Requests in flight of zones with in_flight adaptive.", "zone")
	waitingDesc       = desc("waiting", "Requests that wait for a place of in_flight adaptive, by priority.", "zone", "priority")
	movesDesc         = desc("in_flight_moves_total", "Moves of the limit of in_flight adaptive: up, down, and brake: half of it, because most requests failed slowly.", "zone", "to")
	badPriorityDesc   = desc("bad_priority_total", "Requests whose priority was none of the classes of in_flight adaptive, and counted as the last.", "zone")
)

func (p *PlaceState) collect(to samples, name string, c *Counters) {
	if p == nil {
		return
	}
	to.gauge(inFlightLimitDesc, float64(p.Limit), name)
	to.gauge(inFlightDesc, float64(p.InFlight), name)
	for move, n := range p.Moves {
		to.counter(movesDesc, n, name, move)
	}
	to.counter(badPriorityDesc, c.Sum(BadPriority), name)
	for _, priority := range p.Priorities {
		to.gauge(waitingDesc, float64(p.Waiting[priority]), name, priority)
		to <- p.Waits.WithLabelValues(name, priority).(prometheus.Metric) //nolint:forcetypeassert // a histogram is one
	}
}
