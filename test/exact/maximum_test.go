package exact_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
)

// TestMaximum charges two states of one rule at random. At any later time their maximum
// admits what both of them admit, and nothing else; of two fixed windows until the
// earlier one ends.
func TestMaximum(t *testing.T) {
	const window = 60 * second
	for name, alg := range undelaying {
		if name == "sliding_log" {
			continue // its snapshot is a bound: see TestLogSnapshotIsABound
		}
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			limit := rapid.Int64Range(1, 30).Draw(t, "limit")
			r, err := alg.Compile(algorithms.Spec{Limit: limit, Window: window, Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			h := r.(algorithms.Handover)
			now := paidAt
			var states [2]algorithms.State
			for i := range states {
				s, at := make(algorithms.State, r.Words()), now-rapid.Int64Range(0, 2*window).Draw(t, "since")
				for range rapid.IntRange(0, 12).Draw(t, "charges") {
					if cost := rapid.Int64Range(1, limit).Draw(t, "cost"); r.Judge(s, at, cost, 0).Admit {
						r.Charge(s, at, cost, 0)
					}
					at += rapid.Int64Range(0, now-at).Draw(t, "pause")
				}
				states[i] = s
			}
			a, b := states[0], states[1]
			greater, most := slices.Clone(a), window*3
			raised := h.Raise(greater, b, now)
			if isFixed(alg) {
				for _, s := range states {
					if _, reset := r.Numbers(s, now); reset > 0 {
						most = min(most, reset)
					}
				}
			}
			for range 10 {
				later := now + rapid.Int64Range(0, most-1).Draw(t, "later")
				cost := rapid.Int64Range(1, limit).Draw(t, "of")
				both := r.Judge(a, later, cost, 0).Admit && r.Judge(b, later, cost, 0).Admit
				got := r.Judge(greater, later, cost, 0).Admit
				if alone := r.Judge(a, later, cost, 0).Admit; !raised && got != alone {
					t.Fatalf("%v says that it was not raised by %v, and admits %d after %d: %v, before %v", greater, b, cost, later-now, got, alone)
				}
				if got != both {
					t.Fatalf("%v and %v: their maximum %v admits %d after %d: %v, want %v", a, b, greater, cost, later-now, got, both)
				}
			}
			// A snapshot that is moved says the same on the other clock.
			by := rapid.SampledFrom([]int64{-window, 7 * window, second}).Draw(t, "by")
			moved := slices.Clone(greater)
			h.Shift(moved, by, now+by)
			if _, aligned := alg.(*algorithms.FixedWindow); !aligned && by%window == 0 {
				if x, y := r.Judge(moved, now+by, 1, 0), r.Judge(greater, now, 1, 0); x != y {
					t.Fatalf("%v moved by %d: %+v, want %+v", greater, by, x, y)
				}
			}
		}))
	}
}

func isFixed(a algorithms.Algorithm) bool {
	_, is := a.(*algorithms.FixedWindow)
	return is
}

// TestSnapshotOfACharge charges a rule once. The snapshot of that counts for as long as what
// was charged does.
func TestSnapshotOfACharge(t *testing.T) {
	const window = 60 * second
	for name, alg := range undelaying {
		r := compiled(t, alg, algorithms.Spec{Limit: 30, Window: window, Cost: 1})
		h, on := r.(algorithms.Handover), r
		if g, grows := r.(algorithms.Growing); grows {
			on = g.View()
		}
		for cost := int64(1); cost <= 30; cost++ {
			s, snap := make(algorithms.State, on.Words()), make([]int64, h.SnapshotWords())
			on.Charge(s, paidAt, cost, 0)
			h.Snapshot(snap, s, paidAt)
			_, reset := on.Numbers(s, paidAt)
			if !h.Live(snap, paidAt+reset-1) || h.Live(snap, paidAt+reset) {
				t.Errorf("%s: a charge of %d counts for %d, its snapshot %v does not", name, cost, reset, snap)
			}
		}
	}
}

// TestLogSnapshotIsABound charges one log by several instances, some of which may lease, and
// of which one gets some of the replies, in any order, and keeps a snapshot. The i-th newest
// timestamp of its snapshot is never later than that of the log.
func TestLogSnapshotIsABound(t *testing.T) {
	const window = 60 * second
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 40).Draw(t, "limit")
		lease := rapid.SampledFrom([]int64{0, window / 20}).Draw(t, "lease")
		alg := new(algorithms.SlidingLog)
		r, err := alg.Compile(algorithms.Spec{Limit: limit, Window: window, Cost: 1, Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		h, view := r.(algorithms.Handover), r.(algorithms.Growing).View()
		var stamps []int64 // of the log, the oldest first
		var late []algorithms.State
		var times []int64
		snap, now := make([]int64, h.SnapshotWords()), paidAt
		learn := func(v algorithms.State, at int64) {
			told := make([]int64, h.SnapshotWords())
			h.Snapshot(told, v, at)
			h.Raise(told, snap, max(at, now))
			copy(snap, told)
		}
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += rapid.Int64Range(min(lease, 1), window/10).Draw(t, "pause") // two calls have two times
			cost := rapid.Int64Range(1, min(limit, 5)).Draw(t, "cost")
			inWindow := after(stamps, now-window)
			v := reported(stamps, limit, now-window, view.Words())
			if int64(len(inWindow))+cost <= limit {
				charge, at := func() { view.Charge(v, now, cost, 0) }, now
				if lease > 0 && rapid.Bool().Draw(t, "leases") {
					charge, at = func() { view.Overdraw(v, now, cost) }, now+lease
				}
				if n := len(stamps); n > 0 {
					at = max(at, stamps[n-1])
				}
				for range cost {
					stamps = append(stamps, at)
				}
				charge()
			}
			switch rapid.IntRange(0, 3).Draw(t, "reply") {
			case 0: // to another instance
			case 1: // overtaken by later ones
				late, times = append(late, v), append(times, now)
			default:
				learn(v, now)
			}
			if len(late) > 0 && rapid.Bool().Draw(t, "arrives") {
				learn(late[0], times[0])
				late, times = late[1:], times[1:]
			}
			i := len(stamps)
			for runs := snap[5:]; len(runs) > 0 && runs[0] > 0 && runs[1] > now-window; runs = runs[2:] {
				for range runs[0] {
					if i--; i < 0 || stamps[i] < runs[1] {
						t.Fatalf("snapshot %v at %d of the log %v: timestamp %d from the newest", snap, now, stamps, len(stamps)-1-i)
					}
				}
			}
		}
	})
}

// after returns the timestamps after edge.
func after(stamps []int64, edge int64) []int64 {
	i, _ := slices.BinarySearch(stamps, edge+1)
	return stamps[i:]
}

// reported returns what Redis reports of a log.
func reported(stamps []int64, limit, edge int64, words int) algorithms.State {
	v := make(algorithms.State, words)
	live := after(stamps, edge)
	v[0] = limit - int64(len(live))
	if len(stamps) > 0 {
		v[2], v[3] = stamps[len(stamps)-1], int64(len(stamps))
	}
	newest := v[5:]
	live = live[max(0, len(live)-len(newest)):]
	copy(newest[len(newest)-len(live):], live)
	return v
}
