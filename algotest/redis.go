package algotest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// observer records the errors of a store that are the algorithm's.
type observer struct {
	mu    sync.Mutex
	wrong []error // also every difference between Go and Lua
	other []error // expected while Redis is away
}

// StoreError implements stores.Observer.
func (o *observer) StoreError(_ string, f stores.Failure, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f == stores.FailWrong {
		o.wrong = append(o.wrong, err)
	} else {
		o.other = append(o.other, err)
	}
}

func (*observer) StoreUp(string, string)                          {}
func (*observer) StoreDown(string, string, stores.Failure, error) {}
func (*observer) ClockSteps(string)                               {}
func (*observer) Live(string, int)                                {}
func (*observer) StoreWarning(string, string, string)             {}
func (*observer) Uncharged(string, stores.Uncharged, int64)       {}
func (o *observer) errors() (wrong, other []error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrong, o.other
}

func (o *observer) check(t testing.TB) {
	t.Helper()
	if wrong, _ := o.errors(); len(wrong) > 0 {
		t.Errorf("%d errors, the first: %v", len(wrong), wrong[0])
	}
}

// storeTimeout is how long a decision waits for Redis: long for a loaded machine.
const storeTimeout = 5 * time.Second

// newStore returns a store as a zone with this algorithm would have.
func newStore(t testing.TB, addr string, timeout time.Duration) (*redis.Store, *observer) {
	o := new(observer)
	s := redis.New(redis.Options{
		Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() },
		ConnOptions: redis.ConnOptions{Addresses: []string{addr}, Prefix: "diana", Timeout: timeout, DialTimeout: storeTimeout},
	}, o)
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	return s, o
}

// shared decides concurrent requests in Redis, with the whole script. Go recomputes each
// decision from the state that Redis returned, so that a difference is an error.
func shared(t testing.TB, c *Config) {
	server := redistest.Start(t)
	s, o := newStore(t, server.Addr, storeTimeout)
	var mu sync.Mutex
	for i, sp := range c.specs() {
		if sp.Window < 2000 {
			sp.Window *= 1000 // real time: more than one request in a window
		}
		counter := c.counter(t, fmt.Sprint("z", i), sp)
		var charges []storekit.Charge
		var all sync.WaitGroup
		for w := range 8 {
			all.Go(func() {
				for n := range 150 {
					check := storekit.CheckOfKey(counter, 1)
					check.Zones[0].Cost = sp.Cost
					s.Decide(t.Context(), check)
					if check.Mode != stores.ModeShared || len(check.Zones[0].Results) != 1 {
						t.Errorf("%+v, worker %d, request %d: decided %v", sp, w, n, check.Mode)
						return
					}
					if check.Admitted {
						mu.Lock()
						charges = append(charges, storekit.Charge{At: check.Now, Cost: sp.Cost})
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		if worst, bound := worstWindow(charges, sp.Window), c.Bound(sp); worst > bound || len(charges) == 0 {
			t.Errorf("%+v: %d requests admitted, %d of their cost in one window: want at most %d", sp, len(charges), worst, bound)
		}
	}
	o.check(t)
	server.CheckTTLs()
}

// faults decides while the script is forgotten, Redis is killed, starts again without its
// memory, and stalls. Requests are decided in time by whoever can, and the bound holds for
// each of them.
func faults(t testing.TB, c *Config) {
	server := redistest.Start(t)
	const timeout = 500 * time.Millisecond
	s, o := newStore(t, server.Addr, timeout)
	sp := c.specs()[len(c.specs())-1]
	sp.Window = storekit.Hour
	counter := c.counter(t, "faults", sp)
	_, handsOver := counter.Rules[0].(algorithms.Handover)
	bound := c.Bound(sp)
	decide := func(n int64) (admitted int64, mode stores.Mode) {
		for range n {
			check := storekit.CheckOfKey(counter, 1)
			began := time.Now()
			s.Decide(t.Context(), check)
			if took := time.Since(began); took > 20*timeout {
				t.Errorf("a decision took %v, want %v at most", took, timeout)
			}
			if mode = check.Mode; check.Admitted {
				admitted++
			}
		}
		return admitted, mode
	}
	until := func(want stores.Mode, what string) (admitted int64) {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			n, mode := decide(1)
			if admitted += n; mode == want {
				return admitted
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: decided %v, want %v", what, mode, want)
			}
		}
	}
	total := until(stores.ModeShared, "at the start")
	n, _ := decide(bound)
	total += n
	if err := server.Client().ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	n, mode := decide(5)
	if total += n; mode != stores.ModeShared || total > bound {
		t.Errorf("after SCRIPT FLUSH: decided %v, %d admitted, want at most %d", mode, total, bound)
	}
	server.Kill()
	fallback := until(stores.ModeFallback, "without Redis")
	n, _ = decide(2 * bound)
	if fallback += n; fallback > bound {
		t.Errorf("without Redis %d were admitted, want at most %d", fallback, bound)
	}
	server.Run()
	again := until(stores.ModeShared, "after Redis is back")
	n, _ = decide(2 * bound)
	if again += n; again > 2*bound || handsOver && total+fallback+again > 2*bound {
		t.Errorf("%d were admitted before Redis lost its memory, %d without it, %d after it: too many", total, fallback, again)
	}
	server.Stall()
	until(stores.ModeFallback, "while Redis stalls")
	server.Resume()
	until(stores.ModeShared, "after Redis goes on")
	o.check(t)
	server.CheckTTLs()
}
