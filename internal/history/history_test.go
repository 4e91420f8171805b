package history

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/internal/metrics"
)

// add counts decisions in random shards.
func add(c *metrics.Counters, o metrics.Outcome, n int) {
	z := metrics.Zone{Counters: c}
	for range n {
		z.Count(o, rand.Uint32())
	}
}

// fiveMinutes is the number of steps of the first range.
var fiveMinutes = Ranges[0].steps()

// at is an instant within a step.
func at(step int64) int64 { return step*historyStep + historyStep/3 }

func wantPast(t *testing.T, h *History, zone string, since int64, passed, denied []uint32) {
	t.Helper()
	p := h.Since(0, []string{zone}, since).Zones[zone]
	if !slices.Equal(p.Passed, passed) || !slices.Equal(p.Denied, denied) {
		t.Errorf("%s since %d: %v and %v, want %v and %v", zone, since, p.Passed, p.Denied, passed, denied)
	}
}

// TestHistory samples minutes of a zone, step by step.
func TestHistory(t *testing.T) {
	a, b := new(metrics.Counters), new(metrics.Counters)
	add(a, metrics.Allowed, 7) // before the first sample
	h := History{stop: func() {}}
	h.Follow(map[string]metrics.Sampled{"a": {Counters: a}}, new(metrics.Counters), at(1000))
	add(a, metrics.Denied, 5) // in a step that was followed in part
	h.sample(at(1001))
	wantPast(t, &h, "a", 0, []uint32{0}, []uint32{5})
	add(a, metrics.Allowed, 2)
	add(a, metrics.Delayed, 1)
	add(a, metrics.Denied, 4)
	add(a, metrics.ShadowDenied, 2)
	add(a, metrics.Skipped, 9)
	add(a, metrics.DeniedElsewhere, 9)
	h.sample(at(1001) + 1)
	wantPast(t, &h, "a", 0, []uint32{0}, []uint32{5}) // the step has not ended
	h.sample(at(1002))
	wantPast(t, &h, "a", 0, []uint32{0, 3}, []uint32{5, 4})
	h.sample(at(1003))
	add(a, metrics.Allowed, 10)
	h.sample(at(1007)) // the process was suspended: the decisions are distributed over the steps
	wantPast(t, &h, "a", 0, []uint32{0, 3, 0, 2, 3, 2, 3}, []uint32{5, 4, 0, 0, 0, 0, 0})
	wantPast(t, &h, "a", 1004, []uint32{2, 3}, []uint32{0, 0})
	wantPast(t, &h, "a", 1006, nil, nil)
	wantPast(t, &h, "a", 9999, nil, nil)

	// The history survives another configuration.
	h.Follow(map[string]metrics.Sampled{"a": {Counters: a}, "b": {Counters: b}}, new(metrics.Counters), at(1007))
	add(b, metrics.Allowed, 1)
	h.sample(at(1009))
	wantPast(t, &h, "a", 1005, []uint32{3, 0, 0}, []uint32{0, 0, 0})
	wantPast(t, &h, "b", 0, []uint32{0, 1}, []uint32{0, 0})
	if s := h.Since(0, nil, 1007); len(s.Zones) != 2 || s.Last != 1008 || s.Step != 2 {
		t.Errorf("%+v", s)
	}
	h.Follow(map[string]metrics.Sampled{"b": {Counters: b}}, new(metrics.Counters), at(1009))
	if s := h.Since(0, []string{"a", "none"}, 0); len(s.Zones) != 0 {
		t.Errorf("zones that are no longer followed: %+v", s)
	}

	// Only the last fiveMinutes steps are kept. The decisions of steps without
	// samples are distributed over them.
	for i := range 2 * fiveMinutes {
		add(b, metrics.Denied, int(i%7))
		h.sample(at(1010 + i))
	}
	p := h.Since(0, nil, 0).Zones["b"]
	if int64(len(p.Passed)) != fiveMinutes || int64(len(p.Denied)) != fiveMinutes {
		t.Errorf("%d and %d steps, want %d", len(p.Passed), len(p.Denied), fiveMinutes)
	}
	for i, n := range p.Denied {
		if want := uint32(int64(i)+fiveMinutes) % 7; n != want {
			t.Fatalf("step %d: %d denied, want %d", i, n, want)
		}
	}
	add(b, metrics.Allowed, int(1000*fiveMinutes))
	h.sample(at(1_000_000))
	if p := h.Since(0, nil, 0).Zones["b"]; p.Passed[0] != 1000 || p.Passed[fiveMinutes-1] != 1000 {
		t.Errorf("after a long time: %v", p.Passed)
	}
}

// TestHistoryOfADay compares the steps of all ranges of a zone with its decisions, over more
// than a day, in which the process was suspended for a while.
func TestHistoryOfADay(t *testing.T) {
	c := new(metrics.Counters)
	h := History{stop: func() {}}
	const begin = int64(777_777) // within a step of each range
	h.Follow(map[string]metrics.Sampled{"a": {Counters: c}}, new(metrics.Counters), at(begin))
	count := make(map[int64]uint32) // by step of the first range
	end := begin + 30*3600/2
	for now := begin; now < end; now++ {
		if now > end-9000 && now < end-8898 { // suspended: nothing is counted, and nothing sampled
			continue
		}
		count[now] = uint32(now % 3)
		add(c, metrics.Allowed, int(count[now]))
		h.sample(at(now + 1))
	}
	for i, want := range []struct {
		step  float64
		steps int
	}{{2, 150}, {10, 360}, {120, 720}} {
		p := h.Since(i, nil, 0)
		list := p.Zones["a"].Passed
		if p.Step != want.step || len(list) != want.steps {
			t.Errorf("%s: %d steps of %v s, want %d of %v s", Ranges[i].Name, len(list), p.Step, want.steps, want.step)
		}
		if last := end/Ranges[i].step - 1; p.Last != last {
			t.Errorf("%s: the last step is %d, want %d", Ranges[i].Name, p.Last, last)
		}
		for k, got := range list {
			var want uint32
			step := p.Last - int64(len(list)) + 1 + int64(k)
			for j := range Ranges[i].step {
				want += count[step*Ranges[i].step+j]
			}
			if got != want {
				t.Fatalf("%s: %d passed in step %d, want %d", Ranges[i].Name, got, step, want)
			}
		}
	}
	add(c, metrics.Denied, 300)
	h.sample(at(end + 3603)) // suspended for two hours: the decisions are in the last five minutes
	var hour uint32
	for _, n := range h.Since(1, nil, 0).Zones["a"].Denied {
		hour += n
	}
	if hour != 300 {
		t.Errorf("%d denied in the last hour, want 300", hour)
	}
	if p := h.Since(1, nil, 0).Zones["a"].Passed; slices.Max(p) != 0 {
		t.Errorf("the hour before the suspension is shown as the last: %v", p)
	}
}

// TestHistoryOfADayIsSmall checks what a history of a day takes: at most 64 KiB for a zone, and
// next to nothing for one that never decides.
func TestHistoryOfADayIsSmall(t *testing.T) {
	size := func(decides bool) uint64 {
		const zones = 64
		all := make(map[string]metrics.Sampled)
		for i := range zones {
			all[fmt.Sprint(i)] = metrics.Sampled{Counters: new(metrics.Counters)}
		}
		h := History{stop: func() {}}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		h.Follow(all, new(metrics.Counters), at(1000))
		for i := int64(1001); i < 1400; i++ {
			if decides {
				add(all[fmt.Sprint(i%zones)].Counters, metrics.Allowed, 1)
			}
			h.sample(at(i))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(&h)
		return (after.HeapAlloc - before.HeapAlloc) / zones
	}
	busy, idle := size(true), size(false)
	t.Logf("a zone's history takes %d bytes, that of a zone which never decides %d", busy, idle)
	if busy > 64<<10 || busy < 30<<10 {
		t.Errorf("a zone's history takes %d bytes, want at most 64 KiB", busy)
	}
	if idle > 512 {
		t.Errorf("the history of a zone which never decides takes %d bytes, want at most 512", idle)
	}
}

// TestHistoryTellsWhereRequestsWent checks the curves that explain why a zone allows and
// denies less than before: they are left out while they are 0.
func TestHistoryTellsWhereRequestsWent(t *testing.T) {
	c, idle := new(metrics.Counters), new(metrics.Counters)
	h := History{stop: func() {}}
	h.Follow(map[string]metrics.Sampled{"a": {Counters: c}, "idle": {Counters: idle}}, new(metrics.Counters), at(1000))
	h.sample(at(1001))
	add(c, metrics.DeniedElsewhere, 4)
	add(c, metrics.Delayed, 3)
	add(c, metrics.ShadowDelayed, 1)
	add(c, metrics.ShadowDenied, 7)
	add(c, metrics.Skipped, 1)
	c.Move(metrics.Delayed, metrics.Left, 0)
	add(c, metrics.Fallback, 3)
	h.sample(at(1002))
	add(c, metrics.Allowed, 1)
	h.sample(at(1003))
	z := h.Changes(0).Zones["a"]
	want := ZonePast{
		Passed: []uint32{0, 3, 1}, Denied: []uint32{0, 0, 0}, Delayed: []uint32{0, 2, 0},
		ShadowDenied: []uint32{0, 7, 0}, ShadowDelayed: []uint32{0, 1, 0},
		Elsewhere: []uint32{0, 4, 0}, Left: []uint32{0, 1, 0}, Skipped: []uint32{0, 1, 0}, Fallback: []uint32{0, 3, 0},
	}
	if !reflect.DeepEqual(z, want) {
		t.Errorf("%+v, want %+v", z, want)
	}
	z = h.Changes(1001).Zones["a"]
	if want = (ZonePast{Passed: []uint32{1}, Denied: []uint32{0}}); !reflect.DeepEqual(z, want) {
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
// negative number, and that the sum is that of the requests after those that follow.
func TestHistoryOfRequests(t *testing.T) {
	all := new(metrics.Counters)
	h := History{stop: func() {}}
	h.Follow(map[string]metrics.Sampled{"a": {Counters: new(metrics.Counters)}}, all, at(1000))
	h.sample(at(1001))
	add(all, metrics.Allowed, 1)
	h.sample(at(1002))
	all.Move(metrics.Allowed, metrics.Denied, 3)
	h.sample(at(1003))
	add(all, metrics.Allowed, 3)
	h.sample(at(1004))
	if got, want := h.Changes(0).Requests, (ZonePast{Passed: []uint32{0, 1, 0, 2}, Denied: []uint32{0, 0, 1, 0}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := all.Requests(), (metrics.Requests{Allowed: 3, Denied: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// BenchmarkHistory measures sampling a thousand zones, which is done every two
// seconds.
func BenchmarkHistory(b *testing.B) {
	zones := make(map[string]metrics.Sampled)
	for i := range 1000 {
		zones[fmt.Sprint(i)] = metrics.Sampled{Counters: new(metrics.Counters)}
	}
	h := History{stop: func() {}}
	h.Follow(zones, new(metrics.Counters), at(1000))
	for _, z := range zones {
		add(z.Counters, metrics.Allowed, 1)
	}
	for i := int64(1001); b.Loop(); i++ {
		h.sample(at(i))
	}
}
