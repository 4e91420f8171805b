package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/stores"
)

// TestAloneEnds has most checks decided without a Redis that answers heartbeats. That ends with checks that it
// decides and, if nothing is checked any more, when it is near enough.
func TestAloneEnds(t *testing.T) {
	const timeout = 25 * time.Millisecond
	for _, test := range []struct {
		name            string
		way             time.Duration
		decided, failed uint64
		want            bool
	}{
		{"still late", 40 * time.Millisecond, 5, 6, true},
		{"in time", 40 * time.Millisecond, 6, 5, false},
		{"unused and far", 40 * time.Millisecond, 0, 0, true},
		{"unused and at the limit", timeout, 0, 0, true},
		{"unused and near", 20 * time.Millisecond, 0, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, now := newNodes(&ConnOptions{Timeout: timeout}, func() int64 { return 0 }, func(*node, bool, error) {}).first, time.Now()
			period := func(decided, failed uint64, way time.Duration) bool {
				n.distance.is.Store(int64(way))
				n.alone.decided.Add(decided)
				n.failures.Add(failed)
				now = now.Add(aloneFor)
				return n.isAlone(now, timeout) != nil
			}
			_ = n.isAlone(now, timeout) // the first period begins
			if !period(0, aloneLeast, 40*time.Millisecond) {
				t.Fatal("not alone after a period in which all was decided without Redis")
			}
			if got := period(test.decided, test.failed, test.way); got != test.want {
				t.Errorf("alone: %v, want %v", got, test.want)
			}
		})
	}
}

// TestAloneWithFewRequests has a node late for requests that are too few in five seconds to say something. It
// is told as away when enough were late, unless it is near by then: what was late in a stall adds up to nothing.
func TestAloneWithFewRequests(t *testing.T) {
	const timeout = 25 * time.Millisecond
	for _, way := range []time.Duration{time.Millisecond, 40 * time.Millisecond} {
		n, now := newNodes(&ConnOptions{Timeout: timeout}, func() int64 { return 0 }, func(*node, bool, error) {}).first, time.Now()
		n.distance.is.Store(int64(way))
		_ = n.isAlone(now, timeout) // the first period begins
		for checks := 3; checks <= 2*aloneLeast; checks += 3 {
			n.failures.Add(3)
			now = now.Add(aloneFor)
			if got, want := n.isAlone(now, timeout) != nil, way > timeout && checks >= aloneLeast; got != want {
				t.Errorf("%v away: alone after %d checks without Redis: %v, want %v", way, checks, got, want)
			}
		}
	}
}

// down notes what is told of a store's state.
type down struct {
	farTold
	causes chan string // empty: it is used
}

func (d *down) StoreDown(_, _ string, f stores.Failure, cause error) {
	d.causes <- fmt.Sprintf("%s: %v; %s", f, cause, stores.Advice(cause))
}
func (d *down) StoreUp(string, string) { d.causes <- "" }

// TestMostChecksAlone has a Redis that answers heartbeats, and checks only after their timeout. It is
// told as away, with how far it is, until it is nearer. On a busy machine it may be away for another reason first.
func TestMostChecksAlone(t *testing.T) {
	t.Parallel()
	tries(t, 0, func() (failed, may int64) {
		f := startFar(t, 1, 40*time.Millisecond)
		s, told := f.all[0], &down{farTold: farTold{errors: make(map[string]int)}, causes: make(chan string, 100)}
		f.connected(t)
		s.Observe(told)
		counters := f.counter(t, "alone", 1e6)
		until := func(up bool) {
			t.Helper()
			for end := time.Now().Add(time.Minute); s.Status().Up != up; {
				if f.checks(counters, 50, 50, oneKey); time.Now().After(end) {
					t.Fatalf("up: %v, want %v", !up, up)
				}
			}
		}
		until(false)
		cause := <-told.causes
		if !strings.HasPrefix(cause, "timeout: "+aloneThough+": 4") || !strings.HasSuffix(cause, " to Redis of 25ms allowed; "+raise) {
			t.Logf("told %q", cause)
			failed++
		}
		if nodes := s.Status().Down; len(nodes) != 1 || time.Since(nodes[0].Since) > 5*time.Second {
			t.Logf("down: %v", nodes)
			failed++
		}
		f.Set(2*time.Millisecond, false)
		until(true)
		if cause := <-told.causes; cause != "" || len(told.causes) > 0 {
			t.Logf("told %q, and %d more", cause, len(told.causes))
			failed++
		}
		return failed, 0
	})
}
