package adaptive

import (
	"math"
	"math/rand/v2"
	"testing"
)

// upstream answers requests that are always there, in steps of a latency, at limits of a Limit: as long as no more than
// workers are in flight in took, beyond it in proportion.
func upstream(l *Limit, r *rand.Rand, now int64, seconds int, workers float64, took float64) int64 {
	for end := now + int64(seconds)*second; now < end; {
		limit := l.at(now)
		latency := took * max(1, float64(limit)/workers)
		var samples []Sample
		for range limit {
			var s Sample
			l.start(now, limit, &s)
			samples = append(samples, s)
		}
		now += int64(latency)
		for i := range samples {
			samples[i].start = now - int64(latency*(0.5+r.Float64()))
			l.answered(now, &samples[i], Good)
			l.ended(now - samples[i].start)
		}
	}
	return now
}

func TestLimitFindsTheWorkers(t *testing.T) {
	r := seeded(t)
	l := newLimit()
	l.bound(1, 1000)
	now := int64(1_700_000_000 * second)
	for _, workers := range []float64{40, 10, 80} {
		now = upstream(&l, r, now, 400, workers, 100*ms)
		if got := l.estimate; got < 0.7*workers || got > 1.6*workers {
			t.Fatalf("limit %.1f before %v workers: want about as many", got, workers)
		}
	}
	if l.moves[Up] == 0 || l.moves[Down] == 0 || l.moves[Brake] != 0 {
		t.Fatalf("moves %v up, down and brake: want some up, some down, no brake", l.moves)
	}
}

// fail has requests with so many in flight end after took.
func fail(l *Limit, now int64, n, inFlight int, took int64, o Outcome) int64 {
	for range n {
		var s Sample
		l.start(now, inFlight, &s)
		now += took
		l.answered(now, &s, o)
	}
	return now
}

func TestBrake(t *testing.T) {
	for _, c := range []struct {
		name string
		took int64
		o    Outcome
		want float64
	}{
		{"slow failures", 300 * ms, Failed, 15},
		{"fast failures", 100 * ms, Failed, 100},
		{"clients that wait and leave", 110 * ms, Left, 15},
		{"clients that leave at once", 5 * ms, Left, 100},
		{"slow successes", 900 * ms, Good, 100},
	} {
		l := newLimit()
		l.bound(1, 1000)
		l.estimate, l.starting = 100, false
		now := fail(&l, 1_700_000_000*second, 64, 1, 100*ms, Good)
		fail(&l, now, 12, 30, c.took, c.o)
		if got := l.estimate; got != c.want {
			t.Errorf("%s: limit %v: want %v", c.name, got, c.want)
		}
		if braked := l.moves[Brake] > 0; braked != (c.want < 100) || braked && (l.move.Move != Brake || l.move.From != 100 || l.move.To != 15) {
			t.Errorf("%s: moves %v, the last %+v", c.name, l.moves, l.move)
		}
	}
}

func TestPhases(t *testing.T) {
	l := newLimit()
	l.bound(1, 1000)
	l.starting, l.step, l.estimate = false, 0.1, 100
	var signs string
	for i := range int64(16) {
		l.at(i * second)
		signs += map[bool]string{true: "+", false: "-"}[l.upper]
		if want := map[bool]int{true: 111, false: 90}[l.upper]; l.limit != want {
			t.Fatalf("limit %d in phase %d: want %d", l.limit, i, want)
		}
		if i == 0 {
			l.length = second // it had no latency yet
		}
		l.first.value, l.hold.value = second/4, 0
	}
	if want := "+--+-++--++-+--+"; signs != want {
		t.Fatalf("phases %s: want %s", signs, want)
	}
	l.ahead = second
	l.phase, l.until = -1, 0
	if l.at(0); l.upper {
		t.Fatal("phase 0 of a clock that is a second behind: want the lower limit, which is in force for the others")
	}
}

// TestTimeStandsStill has everything happen at once: no decision may become no number.
func TestTimeStandsStill(t *testing.T) {
	l := newLimit()
	l.bound(1, 50)
	now := fail(&l, second, 5000, 1000, 0, Good)
	now = fail(&l, now+100*second, 5000, 1000, 0, Good)
	fail(&l, now-50*second, 5000, 1000, 0, Left) // and a clock that goes back
	if x := l.estimate + l.step + l.first.value + l.failing; math.IsNaN(x) || math.IsInf(x, 0) || l.at(now) < 1 || l.at(now) > 50 {
		t.Fatalf("limit %d, %+v", l.at(now), l)
	}
}
