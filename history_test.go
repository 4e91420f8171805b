package diana

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// count adds decisions to a tally, in any lanes.
func (t *tally) add(o outcome, n int) {
	z := zoneMetrics{decisions: t}
	for range n {
		z.count(o, rand.Uint32())
	}
}

// at is an instant within a step.
func at(step int64) int64 { return step*historyStep + historyStep/3 }

func wantPast(t *testing.T, h *history, zone string, since int64, passed, denied []uint32) {
	t.Helper()
	p := h.status([]string{zone}, since).Zones[zone]
	if !slices.Equal(p.Passed, passed) || !slices.Equal(p.Denied, denied) {
		t.Errorf("%s since %d: %v and %v, want %v and %v", zone, since, p.Passed, p.Denied, passed, denied)
	}
}

// TestHistory goes through minutes of a zone, step by step.
func TestHistory(t *testing.T) {
	a, b := new(tally), new(tally)
	a.add(allowed, 7) // before anybody looked
	h := history{stop: func() {}}
	h.follow(map[string]*tally{"a": a}, at(1000))
	a.add(denied, 5) // in a step that was not seen from its beginning
	h.sample(at(1001))
	wantPast(t, &h, "a", 0, nil, nil)
	a.add(allowed, 2)
	a.add(delayed, 1)
	a.add(denied, 4)
	a.add(shadowDenied, 2)
	a.add(skipped, 9)
	a.add(refusedElsewhere, 9)
	h.sample(at(1001) + 1)
	wantPast(t, &h, "a", 0, nil, nil) // it has not ended
	h.sample(at(1002))
	wantPast(t, &h, "a", 0, []uint32{3}, []uint32{6})
	h.sample(at(1003))
	a.add(allowed, 10)
	h.sample(at(1007)) // the process was stopped: nobody knows when they came
	wantPast(t, &h, "a", 0, []uint32{3, 0, 2, 3, 2, 3}, []uint32{6, 0, 0, 0, 0, 0})
	wantPast(t, &h, "a", 1004, []uint32{2, 3}, []uint32{0, 0})
	wantPast(t, &h, "a", 1006, nil, nil)
	wantPast(t, &h, "a", 9999, nil, nil)

	// Another configuration: what is known stays.
	h.follow(map[string]*tally{"a": a, "b": b}, at(1007))
	b.add(allowed, 1)
	h.sample(at(1009))
	wantPast(t, &h, "a", 1005, []uint32{3, 0, 0}, []uint32{0, 0, 0})
	wantPast(t, &h, "b", 0, []uint32{1}, []uint32{0})
	if s := h.status(nil, 1007); len(s.Zones) != 2 || s.Last != 1008 || s.Step != 2 {
		t.Errorf("%+v", s)
	}
	h.follow(map[string]*tally{"b": b}, at(1009))
	if s := h.status([]string{"a", "none"}, 0); len(s.Zones) != 0 {
		t.Errorf("zones that are gone: %+v", s)
	}

	// Nothing is kept for longer than it may be, and nothing of a time when
	// nobody could look is made up.
	for i := range int64(2 * historySteps) {
		b.add(denied, int(i%7))
		h.sample(at(1010 + i))
	}
	p := h.status(nil, 0).Zones["b"]
	if len(p.Passed) != historySteps || len(p.Denied) != historySteps {
		t.Errorf("%d and %d steps, want %d", len(p.Passed), len(p.Denied), historySteps)
	}
	for i, n := range p.Denied {
		if want := uint32(i+historySteps) % 7; n != want {
			t.Fatalf("step %d: %d denied, want %d", i, n, want)
		}
	}
	b.add(allowed, 1000*historySteps)
	h.sample(at(1_000_000))
	if p := h.status(nil, 0).Zones["b"]; p.Passed[0] != 1000 || p.Passed[historySteps-1] != 1000 {
		t.Errorf("after a long time: %v", p.Passed)
	}
	if size := unsafe.Sizeof(past{}); size > 1280 {
		t.Errorf("a zone's history has %d bytes", size)
	}
}

// watchers are the goroutines that sample.
func watchers() int {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 2)
	return strings.Count(b.String(), "diana.(*history).run(")
}

// TestHistoryOverReloads: what zones let pass and denied is told also after a
// reload, one goroutine samples, and none when nothing runs any more.
func TestHistoryOverReloads(t *testing.T) {
	s := serve(t, zoneOf(backend{}, "rule 2/100h"))
	seen := func(zone string) (passed, denied uint32) {
		var all statusOfHistory
		if status, text := s.ask("GET", "history?zone="+zone, "", &all); status != 200 {
			t.Fatal(text)
		}
		for i := range all.Zones[zone].Passed {
			passed += all.Zones[zone].Passed[i]
			denied += all.Zones[zone].Denied[i]
		}
		return passed, denied
	}
	watched := func() { // from the beginning of a step on
		theHistory.mu.Lock()
		defer theHistory.mu.Unlock()
		for _, p := range theHistory.zones {
			p.first = 0
		}
	}
	watched()
	s.want(req{}, 200, 200, 429, 429, 429)
	wait := func(passed, denied uint32) {
		t.Helper()
		until(t, fmt.Sprintf("%d and %d requests to be told of", passed, denied), func() bool {
			p, d := seen("z")
			return p == passed && d == denied
		})
	}
	wait(2, 3)
	s.reload(zoneOf(backend{}, "rule 3/100h\nrule 5/1h gcra"))
	s.want(req{ip: "10.0.0.1"}, 200)
	wait(3, 3)
	if n := watchers(); n != 1 {
		t.Errorf("%d goroutines sample, want 1", n)
	}
	if err := s.load(config{site: "rate_limit {client_ip} nonsense"}); err == nil {
		t.Error("it loads")
	}
	s.want(req{ip: "10.0.0.1"}, 200)
	wait(4, 3)
	for query, want := range map[string]int{"?since=x": 400, "?since=-1": 400, "?since=9223372036854775807": 400, "?zone=none": 200, "": 200, "?since=1&zone=z&zone=z": 200} {
		if status, text := s.ask("GET", "history"+query, "", nil); status != want {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
	if status, _ := s.ask("POST", "history", "", nil); status != 405 {
		t.Errorf("POST: %d", status)
	}
	if err := stopCaddy(); err != nil {
		t.Fatal(err)
	}
	if n := watchers(); n != 0 {
		t.Errorf("%d goroutines sample when nothing runs", n)
	}
}

// BenchmarkHistory is what sampling a thousand zones takes, every two seconds.
func BenchmarkHistory(b *testing.B) {
	zones := make(map[string]*tally)
	for i := range 1000 {
		zones[fmt.Sprint(i)] = new(tally)
	}
	h := history{stop: func() {}}
	h.follow(zones, at(1000))
	for i := int64(1001); b.Loop(); i++ {
		h.sample(at(i))
	}
}
