package limiter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/usage/settle"
	"github.com/dianalimiter/diana/stores"
)

// newTestLimiter returns a limiter of zones in this process, or in the store. Each
// request is counted by the header X-Key.
func newTestLimiter(t testing.TB, s stores.Store, zones ...*config.Zone) *Limiter {
	t.Helper()
	if s == nil {
		s = &memory.Store{Clock: clock.Now}
	}
	store := &Store{Store: s, Name: "local", Hasher: key.NewHasher("")}
	if shared, ok := s.(stores.Shared); ok {
		store = NewShared(shared, "local", key.NewHasher(""))
	}
	for _, z := range zones {
		if len(z.Key) == 0 {
			z.Key, z.KeyMissing = config.Parts{"{http.request.header.X-Key}"}, key.MissingShare
		}
	}
	l, err := New(&Environment{
		Store: func(string) (*Store, error) { return store, nil }, Responses: settle.Responses{}, MaxKeys: 1000,
		Listens: func(string) bool { return false }, Emit: func(string, map[string]any) {}, Wall: clock.Wall,
	}, Options{
		Zones: zones, Headers: DefaultHeaders, DisableMetrics: true, Logger: zap.NewNop(),
		Matchers: func(*config.Zone) (match, exempt caddyhttp.MatcherSets, err error) { return nil, nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// handlerFunc is a handler.
type handlerFunc func(http.ResponseWriter, *http.Request) error

func (f handlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) error { return f(w, r) }

// takes is a handler that takes d for each request.
func takes(d time.Duration) caddyhttp.Handler {
	return handlerFunc(func(http.ResponseWriter, *http.Request) error {
		time.Sleep(d)
		return nil
	})
}

// ask sends a request of a key and returns its status.
func ask(ctx context.Context, l *Limiter, k string, next caddyhttp.Handler) int {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://example.com/", http.NoBody)
	r.Header.Set("X-Key", k)
	w := httptest.NewRecorder()
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	return statusOf(l.ServeHTTP(w, r, next))
}

// askMany sends n requests of a key at once, and returns how many were served and how long
// all took.
func askMany(l *Limiter, n int, next caddyhttp.Handler) (served int64, took time.Duration) {
	var all sync.WaitGroup
	var ok atomic.Int64
	begun := time.Now()
	for range n {
		all.Go(func() {
			if ask(context.Background(), l, "a", next) == http.StatusOK {
				ok.Add(1)
			}
		})
	}
	all.Wait()
	return ok.Load(), time.Since(begun)
}
