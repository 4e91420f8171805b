package metrics

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"
)

// add counts decisions in random shards.
func (c *Counters) add(o Outcome, n int) {
	z := Zone{Counters: c}
	for range n {
		z.Count(o, rand.Uint32())
	}
}

// at is an instant within a step.
func at(step int64) int64 { return step*historyStep + historyStep/3 }

func wantPast(t *testing.T, h *History, zone string, since int64, passed, denied []uint32) {
	t.Helper()
	p := h.Since([]string{zone}, since).Zones[zone]
	if !slices.Equal(p.Passed, passed) || !slices.Equal(p.Denied, denied) {
		t.Errorf("%s since %d: %v and %v, want %v and %v", zone, since, p.Passed, p.Denied, passed, denied)
	}
}

// TestHistory samples minutes of a zone, step by step.
func TestHistory(t *testing.T) {
	a, b := new(Counters), new(Counters)
	a.add(Allowed, 7) // before the first sample
	h := History{stop: func() {}}
	h.Follow(map[string]*Counters{"a": a}, new(Counters), at(1000))
	a.add(Denied, 5) // in a step that was followed in part
	h.sample(at(1001))
	wantPast(t, &h, "a", 0, []uint32{0}, []uint32{5})
	a.add(Allowed, 2)
	a.add(Delayed, 1)
	a.add(Denied, 4)
	a.add(ShadowDenied, 2)
	a.add(Skipped, 9)
	a.add(DeniedElsewhere, 9)
	h.sample(at(1001) + 1)
	wantPast(t, &h, "a", 0, []uint32{0}, []uint32{5}) // the step has not ended
	h.sample(at(1002))
	wantPast(t, &h, "a", 0, []uint32{0, 3}, []uint32{5, 4})
	h.sample(at(1003))
	a.add(Allowed, 10)
	h.sample(at(1007)) // the process was suspended: the decisions are distributed over the steps
	wantPast(t, &h, "a", 0, []uint32{0, 3, 0, 2, 3, 2, 3}, []uint32{5, 4, 0, 0, 0, 0, 0})
	wantPast(t, &h, "a", 1004, []uint32{2, 3}, []uint32{0, 0})
	wantPast(t, &h, "a", 1006, nil, nil)
	wantPast(t, &h, "a", 9999, nil, nil)

	// The history survives another configuration.
	h.Follow(map[string]*Counters{"a": a, "b": b}, new(Counters), at(1007))
	b.add(Allowed, 1)
	h.sample(at(1009))
	wantPast(t, &h, "a", 1005, []uint32{3, 0, 0}, []uint32{0, 0, 0})
	wantPast(t, &h, "b", 0, []uint32{0, 1}, []uint32{0, 0})
	if s := h.Since(nil, 1007); len(s.Zones) != 2 || s.Last != 1008 || s.Step != 2 {
		t.Errorf("%+v", s)
	}
	h.Follow(map[string]*Counters{"b": b}, new(Counters), at(1009))
	if s := h.Since([]string{"a", "none"}, 0); len(s.Zones) != 0 {
		t.Errorf("zones that are no longer followed: %+v", s)
	}

	// Only the last historySteps steps are kept. The decisions of steps without
	// samples are distributed over them.
	for i := range int64(2 * historySteps) {
		b.add(Denied, int(i%7))
		h.sample(at(1010 + i))
	}
	p := h.Since(nil, 0).Zones["b"]
	if len(p.Passed) != historySteps || len(p.Denied) != historySteps {
		t.Errorf("%d and %d steps, want %d", len(p.Passed), len(p.Denied), historySteps)
	}
	for i, n := range p.Denied {
		if want := uint32(i+historySteps) % 7; n != want {
			t.Fatalf("step %d: %d denied, want %d", i, n, want)
		}
	}
	b.add(Allowed, 1000*historySteps)
	h.sample(at(1_000_000))
	if p := h.Since(nil, 0).Zones["b"]; p.Passed[0] != 1000 || p.Passed[historySteps-1] != 1000 {
		t.Errorf("after a long time: %v", p.Passed)
	}
	if size := unsafe.Sizeof(zoneHistory{}); size > 4320 {
		t.Errorf("a zone's history has %d bytes, want at most 4320", size)
	}
}

// TestHistoryTellsWhereRequestsWent checks the curves that explain why a zone allows and
// denies less than before: they are left out while they are 0.
func TestHistoryTellsWhereRequestsWent(t *testing.T) {
	c, idle := new(Counters), new(Counters)
	h := History{stop: func() {}}
	h.Follow(map[string]*Counters{"a": c, "idle": idle}, new(Counters), at(1000))
	h.sample(at(1001))
	c.add(DeniedElsewhere, 4)
	c.add(Delayed, 2)
	c.add(Skipped, 1)
	c.add(ShadowDenied, 5)
	c.fallbacks.Add(3)
	h.sample(at(1002))
	c.add(Allowed, 1)
	h.sample(at(1003))
	z := h.Changes(0).Zones["a"]
	want := ZoneMinutes{
		Passed: []uint32{0, 2, 1}, Denied: []uint32{0, 0, 0}, Delayed: []uint32{0, 2, 0}, Shadowed: []uint32{0, 5, 0},
		Elsewhere: []uint32{0, 4, 0}, Skipped: []uint32{0, 1, 0}, Fallback: []uint32{0, 3, 0},
	}
	if !reflect.DeepEqual(z, want) {
		t.Errorf("%+v, want %+v", z, want)
	}
	z = h.Changes(1001).Zones["a"]
	if want = (ZoneMinutes{Passed: []uint32{1}, Denied: []uint32{0}}); !reflect.DeepEqual(z, want) {
		t.Errorf("%+v, want %+v", z, want)
	}
	if m := h.Changes(0); len(m.Zones) != 1 || m.Last != 1002 {
		t.Errorf("%+v, want zone a only", m)
	}
	if m := h.Changes(1002); len(m.Zones) != 0 {
		t.Errorf("%+v: nothing happened", m)
	}
}

// TestHistoryOfRequests checks that a request that moves from one outcome to another is no
// negative number.
func TestHistoryOfRequests(t *testing.T) {
	all := new(Counters)
	h := History{stop: func() {}}
	h.Follow(map[string]*Counters{"a": new(Counters)}, all, at(1000))
	h.sample(at(1001))
	all.add(Allowed, 1)
	h.sample(at(1002))
	all.Move(Allowed, Denied, 3)
	h.sample(at(1003))
	if got, want := h.Changes(0).Requests, (ZoneMinutes{Passed: []uint32{0, 1, 0}, Denied: []uint32{0, 0, 1}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := all.Requests(), (Requests{Denied: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// BenchmarkHistory measures sampling a thousand zones, which is done every two
// seconds.
func BenchmarkHistory(b *testing.B) {
	zones := make(map[string]*Counters)
	for i := range 1000 {
		zones[fmt.Sprint(i)] = new(Counters)
	}
	h := History{stop: func() {}}
	h.Follow(zones, new(Counters), at(1000))
	for i := int64(1001); b.Loop(); i++ {
		h.sample(at(i))
	}
}
