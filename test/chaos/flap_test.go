package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// flapping repeatedly kills and restarts Redis.
func flapping(t *testing.T, out *result) {
	const flaps, pool = 10, 8
	srv := redistest.Start(t)
	p := startProxy(t, srv.Addr)
	s := begin(t, fmt.Sprintf("%s {\n\t\t\tpool_size %d\n\t\t}", p.Addr, pool))
	r := s.play(play{
		calm: 2 * time.Second, after: 4 * time.Second,
		begin: func() {
			for range flaps {
				srv.Kill()
				time.Sleep(1500 * time.Millisecond)
				srv.Run()
				time.Sleep(1500 * time.Millisecond)
			}
		},
	})
	s.checkAll(r, out, promise{wait: timeout + 10*time.Millisecond, losses: flaps})
	checkRecovery(t, r, out, r.ended, soonBack)
	passed := make(map[string]int)
	for _, shot := range harness.With(http.StatusOK, r.shots) {
		passed[pathOf(shot)]++
	}
	for i := range longKeys {
		n, bound := passed[fmt.Sprintf("/long?k=%d", i)], zones[2].bound
		out.report("limit %d per hour: %d passed", bound, n)
		if n > (1+flaps)*bound {
			t.Errorf("%d passed, want at most one additional limit per flap", n)
		}
	}
	out.report("at most %d connections, %d concurrent probes", p.mostOpen.Load(), p.mostProbes.Load())
	// Pub/Sub uses two connections beside the pool.
	if n := p.mostOpen.Load(); n > instances*(pool+2) {
		t.Errorf("%d connections, want at most %d per instance", n, pool+2)
	}
	if n := p.mostProbes.Load(); n > instances {
		t.Errorf("%d concurrent probes, want one per instance", n)
	}
}

// tightPool runs many clients over a pool of two connections to a slow Redis.
func tightPool(t *testing.T, out *result) {
	const pool, clients = 2, 200
	srv := redistest.Start(t)
	p := startProxy(t, srv.Addr)
	s := begin(t, fmt.Sprintf("%s {\n\t\t\tpool_size %d\n\t\t}", p.Addr, pool))
	goroutines := s.goroutines()
	p.delay.Store(int64(5 * time.Millisecond))
	r := &record{start: time.Now(), gone: time.Now()}
	for _, c := range s.caddys {
		r.marks = append(r.marks, len(c.Log()))
	}
	control := make(chan []harness.Shot)
	over := make(chan struct{})
	go func() {
		control <- harness.Pace(controlRate, func() bool {
			select {
			case <-over:
				return false
			default:
				return true
			}
		}, s.urls("/free")...)
	}()
	more := harness.During(pick(5*time.Second, 2*time.Second))
	r.shots = harness.Saturate(clients, 0, func() bool {
		time.Sleep(rand.N(600 * time.Millisecond)) // a small machine cannot start all at once
		return more()
	}, s.rotated(paths())...)
	close(over)
	r.control, r.ended, r.over = <-control, time.Now(), time.Now()
	harness.OnlyStatuses(t, r.shots, http.StatusOK, http.StatusTooManyRequests)
	out.report("%d requests, no 5xx", len(r.shots))
	checkWaits(t, r, out, timeout+10*time.Millisecond)
	checkBounds(t, r, out, promise{})
	p.delay.Store(0)
	harness.Until(t, 5*time.Second, "nothing is stuck", func() bool { return s.goroutines() <= goroutines+10*instances })
	again := s.play(play{calm: time.Second, after: 3 * time.Second, begin: func() {}})
	checkRecovery(t, again, out, again.ended, soonBack)
	if n := p.mostOpen.Load(); n > instances*(pool+2) {
		t.Errorf("%d connections, want at most %d per instance", n, pool+2)
	}
	out.report("at most %d connections", p.mostOpen.Load())
}

// goroutines returns the number of goroutines of all instances.
func (s *scene) goroutines() (n int) {
	for _, c := range s.caddys {
		n += c.Goroutines(s.t)
	}
	return n
}
