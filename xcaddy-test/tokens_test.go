package xcaddytest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestTokensAtOnce sends a hundred requests of 1,000 tokens each at once to a limit of 10,000: to
// one instance, and to three that share it through Redis. What each may take is held, so that ten are
// admitted. Counted after the response, which is the same zone without hold, all of them are.
func TestTokensAtOnce(t *testing.T) {
	t.Parallel()
	const requests, tokens, limit = 100, 1000, 10_000
	site := func(upstream, zone string) string {
		return fmt.Sprintf("\trate_limit {\n\t\tzone %s {\n\t\t\tkey one\n\t\t\tsettle {response.body.usage.total_tokens}\n%s\t\t\trule %d/1h\n\t\t}\n\t}\n\treverse_proxy %s",
			strings.Fields(zone)[0], strings.TrimPrefix(zone, strings.Fields(zone)[0]), limit, upstream)
	}
	for name, c := range map[string]struct {
		zone string
		want int
	}{
		"held":    {fmt.Sprintf("held\t\t\tcost %d\n\t\t\thold\n", tokens), limit / tokens},
		"counted": {"counted", requests},
	} {
		for _, instances := range []int{1, 3} {
			t.Run(fmt.Sprint(name, "/", instances), func(t *testing.T) {
				t.Parallel()
				upstream := newWaiting(t, fmt.Sprintf(`{"usage": {"total_tokens": %d}}`, tokens))
				config := harness.Config{Site: site(upstream.address, c.zone)}
				if instances > 1 {
					config.Global = onRedis(harness.StartRedis(t), "timeout 30s")
				}
				addresses := urls(startMany(t, instances, config), "/")
				var answered sync.WaitGroup
				shots := make(chan harness.Shot, requests)
				for i := range requests {
					answered.Go(func() { shots <- harness.Shoot(harness.Client(1), addresses[i%len(addresses)]) })
				}
				// Nobody is answered by the upstream before all others are denied or there too.
				harness.Until(t, harness.Patience, "all requests to be decided", func() bool { return upstream.inside()+len(shots) == requests })
				close(upstream.goOn)
				answered.Wait()
				close(shots)
				var all []harness.Shot
				for s := range shots {
					all = append(all, s)
				}
				harness.OnlyStatuses(t, all, http.StatusOK, http.StatusTooManyRequests)
				if n := len(harness.With(http.StatusOK, all)); n != c.want {
					t.Errorf("%d of %d requests of %d tokens are admitted by a limit of %d, want %d", n, requests, tokens, limit, c.want)
				}
			})
		}
	}
}

// TestTokensOverAnOutage kills Redis while a hundred responses are awaited by three instances, and starts
// it without its memory when all of them have ended. In the end what was used is charged, no more and
// no less.
func TestTokensOverAnOutage(t *testing.T) {
	t.Parallel()
	const requests, tokens, limit = 100, 700, 1_000_000
	upstream, redis := newWaiting(t, fmt.Sprintf(`{"usage": {"total_tokens": %d}}`, tokens)), harness.StartRedis(t)
	instances := startMany(t, 3, harness.Config{
		Global: onRedis(redis, "timeout 5s"),
		Site: fmt.Sprintf("\trate_limit {\n\t\tzone streams {\n\t\t\tkey one\n\t\t\tcost 1000\n\t\t\tsettle {response.body.usage.total_tokens}\n\t\t\thold\n\t\t\trule %d/1h fixed_window\n\t\t}\n\t}\n\treverse_proxy %s",
			limit, upstream.address),
	})
	addresses := urls(instances, "/")
	var answered sync.WaitGroup
	for i := range requests {
		answered.Go(func() {
			if s := harness.Shoot(harness.Client(1), addresses[i%len(addresses)]); s.Status != http.StatusOK {
				t.Errorf("request %d: %+v", i, s)
			}
		})
	}
	harness.Until(t, harness.Patience, "all requests to be admitted", func() bool { return upstream.inside() == requests })
	redis.Kill(t)
	close(upstream.goOn)
	answered.Wait()
	redis.Start(t)
	said := ""
	harness.Until(t, harness.Patience, "all that was used to be charged, and nothing held", func() bool {
		said = harness.Do(t, http.MethodGet, instances[0].Admin+"/rate_limit/zones/streams/key?part=one", "").Body
		return strings.Contains(said, `"mode": "shared"`) && strings.Contains(said, fmt.Sprintf(`"used": %d,`, requests*tokens)) && !strings.Contains(said, `"held"`)
	})
	t.Log(said)
}

// waiting is an upstream that answers all requests when the test says so.
type waiting struct {
	address string
	goOn    chan struct{}

	mu sync.Mutex
	n  int
}

func newWaiting(t *testing.T, body string) *waiting {
	t.Helper()
	w := &waiting{goOn: make(chan struct{})}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.n++
		w.mu.Unlock()
		select {
		case <-w.goOn:
		case <-time.After(harness.Patience): // the test has failed
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(rw, body)
	}))
	t.Cleanup(srv.Close)
	w.address = srv.Listener.Addr().String()
	return w
}

// inside returns how many requests have arrived.
func (w *waiting) inside() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}
