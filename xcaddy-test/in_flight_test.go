package xcaddytest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// upstream holds each request until the test lets it go on.
type upstream struct {
	*httptest.Server
	entered chan string // the path of a request
	goOn    chan bool
}

func startUpstream(t *testing.T) *upstream {
	u := &upstream{entered: make(chan string, 100), goOn: make(chan bool)}
	u.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		u.entered <- r.URL.Path
		select {
		case <-u.goOn:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(u.Close)
	return u
}

// enters waits for the next request.
func (u *upstream) enters(t *testing.T, within time.Duration) string {
	t.Helper()
	select {
	case path := <-u.entered:
		return path
	case <-time.After(within):
		t.Fatalf("no request within %v", within)
		return ""
	}
}

// TestPermitOfAnotherInstance has requests of many keys wait on one instance for the permits that
// another one's requests hold. While they wait, their polls are batched, and they go on long
// before max_wait ends when the other instance releases the permits.
func TestPermitOfAnotherInstance(t *testing.T) {
	const keys, poll, maxWait = 30, 75 * time.Millisecond, 120 * time.Second
	redis, up := harness.StartRedis(t), startUpstream(t)
	instances := startMany(t, 2, harness.Config{Global: onRedis(redis, "timeout 10s"), Site: fmt.Sprintf(`
	rate_limit {
		zone z {
			key {query.key}
			in_flight 1
			max_wait %v
		}
	}
	reverse_proxy %s`, maxWait, up.Listener.Addr())})
	holder, waiter := instances[0], instances[1]
	client := harness.Client(4 * keys)
	var all sync.WaitGroup
	defer all.Wait()
	ask := func(c *harness.Caddy, path string, key int) {
		all.Go(func() {
			resp, err := client.Get(fmt.Sprintf("%s%s?key=%d", c.URL, path, key))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s of key %d: status %d", path, key, resp.StatusCode)
			}
		})
	}
	for k := range keys {
		ask(holder, "/held", k)
		up.enters(t, 30*time.Second)
	}
	before := redis.Calls(t)
	for k := range keys {
		ask(waiter, "/waits", k)
	}
	harness.Until(t, harness.Patience, "all wait", func() bool { return redis.Calls(t)-before >= 10 })
	before, begun := redis.Calls(t), time.Now()
	time.Sleep(20 * poll)
	calls, polls := redis.Calls(t)-before, float64(time.Since(begun))/float64(poll)
	t.Logf("%d keys wait, %.0f polls: %d calls", keys, polls, calls)
	if calls == 0 || float64(calls) > polls*keys/4 {
		t.Errorf("%d calls in %.0f polls of %d keys, want them batched", calls, polls, keys)
	}
	select {
	case path := <-up.entered:
		t.Fatalf("%s goes on though its permit is held", path)
	default:
	}

	begun = time.Now()
	for range keys {
		up.goOn <- true
	}
	for range keys {
		if path := up.enters(t, maxWait/2); path != "/waits" {
			t.Errorf("%s went on, want /waits", path)
		}
	}
	took := time.Since(begun)
	t.Logf("all went on %v after the other instance released their permits", took)
	if took > 2*poll {
		late(t, "all went on after %v, want about %v", took, poll)
	}
	for range keys {
		up.goOn <- true
	}
}
