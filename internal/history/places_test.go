package history

import (
	"reflect"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/internal/metrics"
)

// TestHistoryOfPlaces samples the places of a zone, through a reload, another list of priorities and a suspension.
func TestHistoryOfPlaces(t *testing.T) {
	c, now := new(metrics.Counters), metrics.PlaceState{Limit: 20, InFlight: 7, Priorities: []string{"paid", "free"}, Waiting: map[string]int{"free": 3}}
	follow := func(h *History, step int64) {
		sampled := now.Priorities
		h.Follow(map[string]metrics.Sampled{"a": {Counters: c, Places: func() *metrics.PlaceState {
			p := now
			p.Priorities = sampled
			return &p
		}}, "none": {Counters: new(metrics.Counters)}}, new(metrics.Counters), at(step))
	}
	want := func(h *History, i int, since int64, want *PlacesPast) {
		t.Helper()
		if got := h.Since(i, []string{"a"}, since).Zones["a"].Places; !reflect.DeepEqual(got, want) {
			t.Errorf("%s since %d: %+v, want %+v", Ranges[i].Name, since, got, want)
		}
	}
	h := History{stop: func() {}}
	follow(&h, 1000)
	want(&h, 0, 999, &PlacesPast{Limit: []float32{}, InFlight: []float32{}, Waiting: map[string][]float32{}})
	h.sample(at(1001))
	now.Limit, now.InFlight, now.Waiting = 30, 30, nil
	h.sample(at(1002))
	want(&h, 0, 999, &PlacesPast{Limit: []float32{20, 30}, InFlight: []float32{7, 30}, Waiting: map[string][]float32{"free": {3, 0}}})
	follow(&h, 1002) // a reload
	h.sample(at(1005))
	want(&h, 0, 1001, &PlacesPast{Limit: []float32{30, 30, 30}, InFlight: []float32{30, 30, 30}, Waiting: map[string][]float32{}})
	want(&h, 1, 0, &PlacesPast{Limit: []float32{28}, InFlight: []float32{25.4}, Waiting: map[string][]float32{"free": {.6}}}) // the mean of five steps
	if m := h.Changes(1003); m.Zones["a"].Places == nil || len(m.Zones) != 1 {
		t.Errorf("%+v, want the places, though the zone decides nothing", m)
	}
	if p := h.Since(0, []string{"none"}, 0).Zones["none"].Places; p != nil {
		t.Errorf("%+v, want none of a zone without places", p)
	}

	now = metrics.PlaceState{Limit: 4, Priorities: []string{"0"}, Waiting: map[string]int{"0": 1}} // another configuration
	follow(&h, 1005)
	h.sample(at(1006))
	want(&h, 0, 999, &PlacesPast{Limit: []float32{4}, InFlight: []float32{0}, Waiting: map[string][]float32{"0": {1}}})
	h.sample(at(1006 + 10*fiveMinutes)) // the process was suspended
	if got := h.Since(0, []string{"a"}, 0).Zones["a"].Places.Limit; int64(len(got)) != fiveMinutes || slices.Min(got) != 4 {
		t.Errorf("%v, want %d times 4", got, fiveMinutes)
	}
}

// TestHistoryOfPlacesOfADay compares the steps of all ranges with the samples of more than a day.
func TestHistoryOfPlacesOfADay(t *testing.T) {
	var now int64
	h, value := History{stop: func() {}}, func(step int64) int64 { return step % 977 }
	const begin, end = int64(777_777), 777_777 + 30*3600/2
	h.Follow(map[string]metrics.Sampled{"a": {Counters: new(metrics.Counters), Places: func() *metrics.PlaceState {
		return &metrics.PlaceState{Limit: int(value(now)), Priorities: []string{"0"}}
	}}}, new(metrics.Counters), at(begin))
	for now = begin; now < end; now++ {
		h.sample(at(now + 1))
	}
	for i := range Ranges {
		p := h.Since(i, nil, 0)
		list := p.Zones["a"].Places.Limit
		if int64(len(list)) != Ranges[i].steps() {
			t.Fatalf("%s: %d steps, want %d", Ranges[i].Name, len(list), Ranges[i].steps())
		}
		for k, got := range list {
			var sum int64
			for j := range Ranges[i].step {
				sum += value((p.Last-int64(len(list)-1-k))*Ranges[i].step + j)
			}
			if want := float64(sum) / float64(Ranges[i].step); float64(got) < want-.11 || float64(got) > want+.11 {
				t.Fatalf("%s: %v in step %d, want %v", Ranges[i].Name, got, k, want)
			}
		}
	}
}
