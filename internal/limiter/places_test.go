package limiter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// keyedBy returns the options of a zone that counts the requests with a header by it, and no others.
func keyedBy(z config.Zone, header string) *config.Zone {
	z.Key, z.KeyMissing = config.Parts{"{http.request.header." + header + "}"}, key.MissingSkip
	return &z
}

// askWith sends a request with headers, each of the value x, and returns its status.
func askWith(l *Limiter, next caddyhttp.Handler, headers ...string) int {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "http://example.com/", http.NoBody)
	for _, name := range headers {
		r.Header.Set(name, "x")
	}
	w := httptest.NewRecorder()
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	return statusOf(l.ServeHTTP(w, r, next))
}

// TestOneMaxWait has a request wait for a rule and then for a place: max_wait is for both together.
func TestOneMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{
			Name: "z", InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1}, MaxWait: caddy.Duration(500 * time.Millisecond),
			Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: 400 * time.Millisecond}}},
		})
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() { ask(context.Background(), l, "a", takes(time.Minute)) })
		synctest.Wait()
		begun := time.Now()
		status := ask(context.Background(), l, "a", takes(0))
		if took := time.Since(begun); status != http.StatusServiceUnavailable || took != 500*time.Millisecond {
			t.Errorf("status %d after %v: want 503 after max_wait", status, took)
		}
	})
}

// farStore answers a millisecond later, as one over a network.
type farStore struct {
	memory.Store
	answered func(*stores.Check) // is called before it answers; nil: nothing is
}

func (s *farStore) Decide(ctx context.Context, c *stores.Check) {
	s.Store.Decide(ctx, c)
	if s.answered != nil {
		s.answered(c)
	}
	time.Sleep(time.Millisecond)
}

// TestRuleAdmitsBetweenPeekAndBlock has the window of a rule with a block end between the peek of a request that would
// wait for a place and the call that would start the block. The request is charged then, so that it must be served and
// its permit released, also if rules change before the answer.
func TestRuleAdmitsBetweenPeekAndBlock(t *testing.T) {
	t.Run("same rules", func(t *testing.T) { admitBetweenPeekAndBlock(t, false) })
	t.Run("changed rules", func(t *testing.T) { admitBetweenPeekAndBlock(t, true) })
}

func admitBetweenPeekAndBlock(t *testing.T, changes bool) {
	synctest.Test(t, func(t *testing.T) {
		far := &farStore{Store: memory.Store{Clock: clock.Now}}
		l := newTestLimiter(t, far,
			keyedBy(config.Zone{Name: "places", InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1}, MaxWait: caddy.Duration(time.Minute)}, "X-Place"),
			keyedBy(config.Zone{Name: "permits", InFlight: 1}, "X-Permit"),
			keyedBy(config.Zone{Name: "blocks", Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: time.Second}, Block: config.Block{caddy.Duration(time.Minute)}}}}, "X-Block"))
		if changes {
			far.answered = func(c *stores.Check) {
				if z := l.zones[2]; len(c.Zones) > 1 && !c.Peek && c.Admitted {
					again := *z.active.Load()
					z.active.Store(&again)
				}
			}
		}
		begun := time.Now()
		askWith(l, takes(0), "X-Block")
		var all sync.WaitGroup
		all.Go(func() { askWith(l, takes(10*time.Second), "X-Place") })
		time.Sleep(time.Second - 500*time.Microsecond - time.Since(begun))
		if status := askWith(l, takes(0), "X-Place", "X-Permit", "X-Block"); status != http.StatusOK {
			t.Errorf("status %d: want the request served that was charged", status)
		}
		all.Wait()
		if status := askWith(l, takes(0), "X-Permit"); status != http.StatusOK {
			t.Errorf("status %d: want the permit released", status)
		}
	})
}

// panickyStore panics when it is asked while asked says so.
type panickyStore struct {
	memory.Store
	panics bool
}

func (s *panickyStore) Decide(ctx context.Context, c *stores.Check) {
	if s.panics {
		panic(http.ErrAbortHandler)
	}
	s.Store.Decide(ctx, c)
}

// TestPanicBeforeAPlace has a store panic while it is asked about a request that joins the queue for a place: the place
// that it would get is another's.
func TestPanicBeforeAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &panickyStore{Store: memory.Store{Clock: clock.Now}}
		l := newTestLimiter(t, s, &config.Zone{
			Name: "z", InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1}, MaxWait: caddy.Duration(time.Minute),
			Rules: []*config.Rule{{Limit: 100, Window: config.Window{Duration: time.Hour}}},
		})
		var all sync.WaitGroup
		all.Go(func() { ask(context.Background(), l, "a", takes(10*time.Second)) })
		synctest.Wait()
		func() {
			defer func() { _ = recover() }()
			s.panics = true
			ask(context.Background(), l, "a", takes(0))
		}()
		s.panics = false
		all.Wait()
		if status := ask(context.Background(), l, "a", takes(0)); status != http.StatusOK {
			t.Errorf("status %d after the panic of another request: want 200", status)
		}
	})
}

// TestRecordTakesNoPlace decides requests of a log, which hold no places: none of them ends.
func TestRecordTakesNoPlace(t *testing.T) {
	l := newTestLimiter(t, nil, &config.Zone{Name: "z", InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1}})
	for range 3 {
		d := l.Record(httptest.NewRequest(http.MethodGet, "/", http.NoBody), 0)
		if d.Denied || d.Err != nil || d.Later() {
			t.Errorf("denied %t, %v, ends later %t: want it admitted", d.Denied, d.Err, d.Later())
		}
	}
	if s := l.zones[0].places.State(clock.Now(), l.zones[0].placing); s.InFlight != 0 {
		t.Errorf("%d in flight: want none", s.InFlight)
	}
}

// TestRecordDoesNotLinger decides requests of a log: the permit of one whose client left is free at its end.
func TestRecordDoesNotLinger(t *testing.T) {
	l := newTestLimiter(t, nil, &config.Zone{Name: "z", InFlight: 1, Linger: caddy.Duration(time.Hour)})
	for range 2 {
		d := l.Record(httptest.NewRequest(http.MethodGet, "/", http.NoBody), 0)
		if d.Denied {
			t.Error("denied: want the permit of the request before")
		}
		d.Finish(statusGone)
	}
}

// awayStore decides as one that is unavailable, with on_failure deny.
type awayStore struct{ memory.Store }

func (*awayStore) Decide(_ context.Context, c *stores.Check) { c.Skip(stores.ModeDeny, clock.Now()) }

// TestExplainWithoutAStore explains the error that requests get while the store is unavailable.
func TestExplainWithoutAStore(t *testing.T) {
	l := newTestLimiter(t, &awayStore{}, &config.Zone{Name: "z", Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: time.Hour}}}})
	want := ask(context.Background(), l, "a", takes(0))
	_, _, denies, err := l.Explain(context.Background(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if got := statusOf(err); denies == nil || got != want || want != http.StatusServiceUnavailable {
		t.Errorf("denied by %v with status %d, a request with %d: want 503", denies, got, want)
	}
}
