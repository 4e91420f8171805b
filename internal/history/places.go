package history

import (
	"math"
	"slices"

	"github.com/dianalimiter/diana/internal/metrics"
)

// placesHistory is the history of the places of a zone with in_flight adaptive, which are sampled at the end of each step
// of the first range. A step of another range has the means of its samples.
type placesHistory struct {
	now   func() *metrics.PlaceState
	names []string // of the priorities
	first int64    // the first step sampled
	steps [len(Ranges)][]float32
}

// In a step are the number of samples, and their means:
const (
	placesSamples = iota
	placesLimit
	placesInFlight
	placesWaiting // and those of the other priorities
)

// of returns the history of places that have these priorities, another one if p is of others; nil: the zone has no places.
func (p *placesHistory) of(places func() *metrics.PlaceState, now int64) *placesHistory {
	if places == nil {
		return nil
	}
	if names := places().Priorities; p == nil || !slices.Equal(p.names, names) {
		p = &placesHistory{names: names, first: now / historyStep}
		for i := range Ranges {
			p.steps[i] = make([]float32, (Ranges[i].steps()+1)*p.width())
		}
	}
	p.now = places
	return p
}

func (p *placesHistory) width() int64 { return placesWaiting + int64(len(p.names)) }

// at returns a step of the range i.
func (p *placesHistory) at(i int, k int64) []float32 {
	from := k * p.width() % int64(len(p.steps[i]))
	return p.steps[i][from : from+p.width()]
}

// advance adds the steps of the first range after last, up to ended, all with what is now.
func (p *placesHistory) advance(last, ended int64) {
	if p == nil {
		return
	}
	for i, k := range begun(last, ended) {
		clear(p.at(i, k))
	}
	s := p.now()
	for k := max(last, ended-Ranges[0].steps()) + 1; k <= ended; k++ {
		for i := range Ranges {
			at := p.at(i, k/Ranges[i].step)
			at[placesSamples]++
			add := func(j, n int) { at[j] += (float32(n) - at[j]) / at[placesSamples] }
			add(placesLimit, s.Limit)
			add(placesInFlight, s.InFlight)
			for b, name := range p.names {
				add(placesWaiting+b, s.Waiting[name])
			}
		}
	}
}

// PlacesPast is what the places of a zone with in_flight adaptive were, on average of each step, up to the last step. Zones
// whose places were sampled later have fewer steps.
type PlacesPast struct {
	Limit    []float32            `json:"limit"`     // requests that might be in flight
	InFlight []float32            `json:"in_flight"` // requests that were
	Waiting  map[string][]float32 `json:"waiting"`   // requests that waited, by priority; without priorities under 0. One of which none waited is left out
}

func (p *placesHistory) since(i int, since, last int64) *PlacesPast {
	if p == nil {
		return nil
	}
	from := kept(i, p.first, since, last)
	curve := func(j int) []float32 {
		list := make([]float32, max(0, last-from+1))
		for k := range list {
			list[k] = float32(math.Round(float64(p.at(i, from+int64(k))[j])*10) / 10)
		}
		return list
	}
	past := &PlacesPast{Limit: curve(placesLimit), InFlight: curve(placesInFlight), Waiting: make(map[string][]float32)}
	for b, name := range p.names {
		if list := curve(placesWaiting + b); len(list) > 0 && slices.Max(list) > 0 {
			past.Waiting[name] = list
		}
	}
	return past
}
