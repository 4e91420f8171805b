package stores

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
)

// TestDenialTellsOfAllStores denies in the first of two stores. The second is
// looked at: it says what it would have, and is left as it was.
func TestDenialTellsOfAllStores(t *testing.T) {
	srv := redistest.Start(t)
	shared := newTestShared(t, srv, func() int64 { return hour })
	for name, second := range map[string]Store{"local": &Local{func() int64 { return hour }}, "redis": shared} {
		for _, inFlight := range []int64{0, 2} {
			full := tenAnHour(t, "full", false)
			open := newTestCounter(t, fmt.Sprintf("open-%s-%d", name, inFlight), inFlight, false, nil,
				ruleSpec{&algorithms.GCRA{}, algorithms.Spec{Limit: 20, Window: hour, Cost: 1}})
			of := []Store{&Local{func() int64 { return hour }}, second}
			a := items(4, full, open)
			Across(context.Background(), a, of)
			second.Finish(context.Background(), &a.Items[1], 0) // an answered request's place
			for range 2 {
				a := items(7, full, open)
				Across(context.Background(), a, of)
				first, looked := a.Items[0], a.Items[1]
				if a.Admitted || first.Admits || first.Charged || first.Results[0].Remaining != 6 {
					t.Errorf("%s, in flight %d: %+v; want a denial that says 6 are left", name, inFlight, first)
				}
				if !looked.Admits || looked.Charged || len(looked.Results) != 1 || looked.Results[0].Remaining != 16 {
					t.Errorf("%s, in flight %d: %+v; want that it would admit, and that 16 are left", name, inFlight, looked)
				}
			}
			b := items(16, open)
			if second.Decide(context.Background(), b); !b.Admitted {
				t.Errorf("%s, in flight %d: what was only looked at was charged, or its place taken", name, inFlight)
			}
		}
	}
}

// TestShareAlone takes Redis away. The instance admits its share of the limit:
// of as many as were last seen, or as many as it was told of.
func TestShareAlone(t *testing.T) {
	for _, c := range []struct{ live, told, want int64 }{{0, 0, 10}, {5, 0, 2}, {5, 2e6, 5}} {
		s := NewShared(SharedOptions{Name: "away", Clock: func() int64 { return hour }, ShareOf: c.told}, deaf{})
		s.start.Do(func() {}) // it has no connection
		s.live.Store(c.live)
		counter, passed := tenAnHour(t, "share", false), int64(0)
		for a := items(1, counter); ; a = items(1, counter) {
			s.Decide(context.Background(), a)
			if a.Mode != ModeAlone {
				t.Fatalf("mode %v", a.Mode)
			}
			if !a.Admitted {
				break
			}
			passed++
		}
		if passed != c.want {
			t.Errorf("of %d instances, told of %d millionths, it admits %d of 10, want %d", c.live, c.told, passed, c.want)
		}
	}
}

// TestPlaceAlone takes a place while Redis is away and gives it back after it
// has come again: here, where it was taken.
func TestPlaceAlone(t *testing.T) {
	s := newTestShared(t, redistest.Start(t), func() int64 { return hour })
	s.Watch(deaf{})
	counter := newTestCounter(t, "alone", 1, false, nil, ruleSpec{&algorithms.GCRA{}, algorithms.Spec{Limit: 10, Window: hour, Cost: 1}})
	first, second := items(1, counter), items(1, counter)
	s.alone(first, false)
	s.Finish(context.Background(), &first.Items[0], 0)
	if s.alone(second, false); !second.Admitted {
		t.Error("the place of an answered request is not free")
	}
}

// verdictWatcher counts the verdicts that differ.
type verdictWatcher struct {
	deaf
	wrong int
}

func (w *verdictWatcher) StoreError(_ string, f Failure, _ error) {
	if f == FailWrong {
		w.wrong++
	}
}

// runChanged has the store run the script with a change wherever a text stands in it.
func (v *virtual) runChanged(t *testing.T, s *Shared, from, to string) {
	t.Helper()
	o := s.o.RedisOptions
	if !strings.Contains(o.Script, from) {
		t.Fatalf("the script does not hold %q", from)
	}
	o.Script = strings.ReplaceAll(o.Script, from, to)
	s.conn = newConn(&o, s.time)
	v.conn = s.conn
}

// TestRedisVerdictStands runs a script that denies what the rules admit. What
// Redis says stands, because it has charged by it, and the difference is told.
func TestRedisVerdictStands(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{now: hour, client: srv.Client()}
	s := newVirtualShared(t, srv, v)
	v.runChanged(t, s, "if ok_ then", "ok_ = false if ok_ then")
	w := new(verdictWatcher)
	s.Watch(w)
	a := items(1, tenAnHour(t, "differ", false))
	v.tick()
	if s.Decide(context.Background(), a); a.Admitted || a.Mode != ModeShared || w.wrong != 1 {
		t.Errorf("admitted %v, mode %v, told %d times; want Redis' denial, told once", a.Admitted, a.Mode, w.wrong)
	}
}
