package limiter

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/adaptive"
	"github.com/dianalimiter/diana/internal/lib/clock"
)

// inside returns a handler of a limiter inside of another.
func inside(outer, inner *Limiter, next caddyhttp.Handler) caddyhttp.Handler {
	outer.follows, inner.follows = true, true
	return handlerFunc(func(w http.ResponseWriter, r *http.Request) error { return inner.ServeHTTP(w, r, next) })
}

// fails is a handler whose upstream fails at once.
var fails = handlerFunc(func(http.ResponseWriter, *http.Request) error {
	time.Sleep(time.Millisecond)
	return caddyhttp.Error(http.StatusBadGateway, errors.New("refused"))
})

func wantNoBrake(t *testing.T, z *Zone) {
	t.Helper()
	if n := z.places.State(clock.Now(), z.placing).Moves[adaptive.Brake]; n > 0 {
		t.Errorf("%d brakes: want none, since the upstream is not slow", n)
	}
}

// leaves has clients leave while their requests wait in a handler inside: the upstream has none of them.
func leaves(in context.Context, t *testing.T, n int, outer *Limiter, want int) {
	inner := newTestLimiter(t, nil, &config.Zone{Name: "paced", MaxWait: caddy.Duration(time.Hour), Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: time.Hour}}}})
	next := inside(outer, inner, takes(time.Millisecond))
	ask(in, outer, "a", next)
	for range n {
		ctx, leave := context.WithCancel(in)
		time.AfterFunc(time.Second, leave)
		if status := ask(ctx, outer, "a", next); status != want {
			t.Errorf("status %d: want %d", status, want)
		}
	}
}

// TestLeaversOfAnInnerQueue checks that they are no failures of the upstream.
func TestLeaversOfAnInnerQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := newTestLimiter(t, nil, &config.Zone{Name: "places", InFlightAdaptive: new(config.Adaptive)})
		leaves(context.Background(), t, 40, outer, statusGone)
		wantNoBrake(t, outer.zones[0])
	})
}

// TestLeaversInAnErrorRoute checks that they are no slow successes either, by which the failures that follow would not be
// slow.
func TestLeaversInAnErrorRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := newTestLimiter(t, nil, &config.Zone{Name: "places", InFlightAdaptive: new(config.Adaptive)})
		in := context.WithValue(context.Background(), caddyhttp.ErrorCtxKey, errors.New("an error"))
		leaves(in, t, 40, outer, http.StatusOK) // which is said of any response that was written
		for range 20 {
			ask(in, outer, "a", handlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				time.Sleep(100 * time.Millisecond)
				w.WriteHeader(http.StatusBadGateway)
				return nil
			}))
		}
		if n := outer.zones[0].places.State(clock.Now(), outer.zones[0].placing).Moves[adaptive.Brake]; n == 0 {
			t.Error("no brake: want one, since the upstream is slow")
		}
	})
}

// TestLeaversDoNotLinger checks that they leave their permits and places at once.
func TestLeaversDoNotLinger(t *testing.T) {
	for name, z := range map[string]*config.Zone{
		"permits": {InFlight: 1},
		"places":  {InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z.Name, z.Linger = "z", caddy.Duration(time.Hour)
				leaves(context.Background(), t, 2, newTestLimiter(t, nil, z), statusGone)
			})
		})
	}
}

// TestDelayInside has a handler inside delay requests whose upstream fails at once.
func TestDelayInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := newTestLimiter(t, nil, &config.Zone{Name: "places", InFlightAdaptive: new(config.Adaptive)})
		inner := newTestLimiter(t, nil, &config.Zone{Name: "paced", MaxWait: caddy.Duration(time.Hour), Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: time.Second}}}})
		for range 10 {
			ask(context.Background(), outer, "a", takes(time.Millisecond))
		}
		for range 40 {
			ask(context.Background(), outer, "a", inside(outer, inner, fails))
		}
		wantNoBrake(t, outer.zones[0])
	})
}

// TestWaitForAnotherPlace has requests wait for the place of another zone before their upstream fails at once.
func TestWaitForAnotherPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil,
			keyedBy(config.Zone{Name: "all", InFlightAdaptive: new(config.Adaptive)}, "X-All"),
			keyedBy(config.Zone{Name: "few", InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1}, MaxWait: caddy.Duration(time.Hour)}, "X-Few"))
		for range 10 {
			askWith(l, takes(time.Millisecond), "X-All")
		}
		for range 40 {
			var all sync.WaitGroup
			all.Go(func() { askWith(l, takes(time.Second), "X-Few") })
			synctest.Wait()
			askWith(l, fails, "X-All", "X-Few")
			all.Wait()
		}
		wantNoBrake(t, l.zones[0])
	})
}

// askRouted sends a request whose error an error route answers; nil: a handler around has it.
func askRouted(l *Limiter, next, route caddyhttp.Handler) {
	l.o.ErrorRoutes = true
	ctx, end := context.WithCancel(context.Background())
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "http://example.com/", http.NoBody)
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	if err := l.ServeHTTP(w, r, next); err != nil && route != nil {
		_ = ErrorRoute{}.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), caddyhttp.ErrorCtxKey, err)), route)
	}
	end()
	synctest.Wait()
}

// TestSlowErrorRoute has an error route answer slowly for an upstream that fails at once.
func TestSlowErrorRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{Name: "places", InFlightAdaptive: new(config.Adaptive)})
		for range 10 {
			askRouted(l, takes(time.Millisecond), nil)
		}
		for range 40 {
			askRouted(l, fails, takes(time.Second))
		}
		wantNoBrake(t, l.zones[0])
	})
}

// TestStreamOfAnErrorRoute has an error route stream what the upstream did not find, which is no latency: what takes longer
// than other answers is slow.
func TestStreamOfAnErrorRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{Name: "places", InFlightAdaptive: new(config.Adaptive)})
		missing := handlerFunc(func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(http.StatusNotFound, nil) })
		for range 10 {
			askRouted(l, missing, handlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(http.StatusOK)
				time.Sleep(time.Minute)
				return nil
			}))
		}
		for range 20 {
			askRouted(l, handlerFunc(func(http.ResponseWriter, *http.Request) error {
				time.Sleep(time.Second)
				return caddyhttp.Error(http.StatusGatewayTimeout, nil)
			}), takes(0))
		}
		if n := l.zones[0].places.State(clock.Now(), l.zones[0].placing).Moves[adaptive.Brake]; n == 0 {
			t.Error("no brake: want one, since the upstream is slow")
		}
	})
}

// TestDenialInsideThatNoRouteAnswers has a handler inside deny requests, and one between them take the error: the upstream
// had none of them.
func TestDenialInsideThatNoRouteAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := newTestLimiter(t, nil, &config.Zone{Name: "places", InFlightAdaptive: new(config.Adaptive)})
		inner := newTestLimiter(t, nil, &config.Zone{Name: "few", Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: time.Hour}}}})
		askRouted(inner, takes(0), nil)
		for range 40 {
			askRouted(outer, inside(outer, inner, takes(0)), nil)
		}
		wantNoBrake(t, outer.zones[0])
	})
}
