package xcaddytest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const (
	reloads     = 100
	reloadFails = 20 // failing reloads, evenly distributed
	reloadGap   = 50 * time.Millisecond
	reloadRate  = 300
	reloadPool  = 5 // maximum number of connections to Redis
	reloadExact = 250
	reloadLimit = 40
)

// TestReloadsUnderLoadChangeNothing checks that after a hundred reloads under load,
// of which a fifth fail, the limits have held and no goroutine or connection is
// leaked.
func TestReloadsUnderLoadChangeNothing(t *testing.T) {
	redis := harness.StartRedis(t)
	caddy := harness.StartCaddy(t, reloadConfig(redis))
	config := caddy.Running(t)

	// The baseline is taken after some load and one reload.
	harness.Pace(reloadRate, harness.During(time.Second), caddy.URL+"/warm")
	mustLoad(t, caddy, config)
	goroutines, connections := steady(t, caddy), len(redis.Connections(t))

	paths := []string{"/exact-redis", "/exact-local", "/paced-redis", "/paced-local"}
	shots := make([][]harness.Shot, len(paths))
	var loads sync.WaitGroup
	more, stop := untilStopped(t)
	for i, path := range paths {
		loads.Go(func() {
			shots[i] = harness.Pace(reloadRate/len(paths), more, caddy.URL+path)
		})
	}
	started := time.Now()
	reloadManyTimes(t, caddy, config)
	took := time.Since(started)
	stop()
	loads.Wait()

	t.Logf("%d reloads in %v", reloads, took)
	for i, path := range paths {
		if strings.HasPrefix(path, "/exact") {
			checkExact(t, path, shots[i])
		} else {
			checkPaced(t, path, shots[i], took)
		}
	}
	wantNoFallback(t, []*harness.Caddy{caddy})
	harness.Until(t, harness.Patience, fmt.Sprintf("as many goroutines as before, %d", goroutines), func() bool {
		return caddy.Goroutines(t) <= goroutines
	})
	// Under contention the client may dial one or two connections more than its pool
	// keeps; one leaked by each reload would be a hundred.
	if now := redis.Connections(t); len(now) < 1 || len(now) > max(connections, reloadPool)+2 {
		t.Errorf("%d connections to Redis before, %d after: %q", connections, len(now), now)
	}
}

// reloadConfig has, in both stores, a limit whose window does not end during the
// test and one that refills continuously.
func reloadConfig(redis *harness.Redis) harness.Config {
	var site strings.Builder
	for _, store := range []string{"redis", "local"} {
		for name, rule := range map[string]string{
			"exact": fmt.Sprintf("%d/1h sliding_log", reloadExact),
			"paced": fmt.Sprintf("%d/s gcra", reloadLimit),
		} {
			fmt.Fprintf(&site, "\trate_limit /%[1]s-%[2]s {\n\t\tzone %[1]s-%[2]s {\n\t\t\tkey one\n\t\t\trule %[3]s\n\t\t\tstore %[2]s\n\t\t}\n\t}\n",
				name, store, rule)
		}
	}
	site.WriteString("\trate_limit /warm {\n\t\tzone warm {\n\t\t\tkey one\n\t\t\trule 1000/s\n\t\t}\n\t}\n\trespond ok")
	return harness.Config{
		Global: onRedis(redis, "timeout 10s", fmt.Sprintf("pool_size %d", reloadPool)), Site: site.String(),
	}
}

// steady waits until Caddy has released what the last reload replaced and returns
// the number of goroutines.
func steady(t *testing.T, caddy *harness.Caddy) int {
	t.Helper()
	last, same := caddy.Goroutines(t), 0
	harness.Until(t, harness.Patience, "the number of goroutines is steady", func() bool {
		n := caddy.Goroutines(t)
		if n == last {
			same++
		} else {
			last, same = n, 0
		}
		return same >= 50
	})
	return last
}

// reloadManyTimes reloads Caddy. Every fifth configuration fails to provision, before
// or after Diana's modules are provisioned.
func reloadManyTimes(t *testing.T, caddy *harness.Caddy, config string) {
	t.Helper()
	broken := []string{
		withRoute(t, config, `{"handle":[{"handler":"rate_limit","zones":[{"name":"bad","rules":[{"limit":0,"window":"1s"}]}]}]}`),
		withRoute(t, config, `{"handle":[{"handler":"templates","delimiters":["one"]}]}`),
	}
	started := time.Now()
	for i := range reloads {
		// The reloads are evenly distributed over the load.
		time.Sleep(time.Until(started.Add(time.Duration(i) * reloadGap)))
		if every := reloads / reloadFails; i%every != every-1 {
			mustLoad(t, caddy, config)
		} else if answer := caddy.Load(t, broken[i/every%len(broken)]); answer.Status != http.StatusBadRequest {
			t.Errorf("status %d for an invalid configuration, want 400: %s", answer.Status, answer.Body)
		}
	}
}

func mustLoad(t *testing.T, caddy *harness.Caddy, config string) {
	t.Helper()
	if answer := caddy.Load(t, config); answer.Status != http.StatusOK {
		t.Fatalf("load: %d %s", answer.Status, answer.Body)
	}
}

// withRoute appends a route to those of config's server.
func withRoute(t *testing.T, config, route string) string {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal([]byte(config), &tree); err != nil {
		t.Fatal(err)
	}
	server := tree["apps"].(map[string]any)["http"].(map[string]any)["servers"].(map[string]any)["srv0"].(map[string]any)
	server["routes"] = append(server["routes"].([]any), json.RawMessage(route))
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// answered separates the shots without a response: when Caddy reloads, with or
// without Diana, it may close a connection on which a request is arriving.
func answered(t *testing.T, path string, shots []harness.Shot) (passed []harness.Shot, unanswered int) {
	t.Helper()
	var all []harness.Shot
	for _, s := range shots {
		if s.Err == nil {
			all = append(all, s)
		}
	}
	unanswered = len(shots) - len(all)
	if unanswered > len(shots)/2 { // how many a reload leaves without one depends on how long the machine stands still
		t.Errorf("%s: results %v, want most with a response", path, harness.ByStatus(shots))
	}
	harness.OnlyStatuses(t, all, http.StatusOK, http.StatusTooManyRequests)
	passed = harness.With(http.StatusOK, all)
	t.Logf("%s: %d of %d passed, %d without a response", path, len(passed), len(shots), unanswered)
	return passed, unanswered
}

// checkExact checks that exactly the limit passed of a window that does not end
// meanwhile. A request without a response may or may not be charged.
func checkExact(t *testing.T, path string, shots []harness.Shot) {
	t.Helper()
	passed, unanswered := answered(t, path, shots)
	if len(passed) > reloadExact || len(passed)+unanswered < reloadExact {
		t.Errorf("%s: %d passed, want exactly the limit, %d", path, len(passed), reloadExact)
	}
	if len(passed)+unanswered == len(shots) {
		t.Errorf("%s: nothing was denied: the limit was not reached", path)
	}
}

// checkPaced checks that a limit that refills kept its bound and admitted nearly its
// rate.
func checkPaced(t *testing.T, path string, shots []harness.Shot, took time.Duration) {
	t.Helper()
	passed, _ := answered(t, path, shots)
	if most := harness.MostWithin(passed, time.Second); most > 2*reloadLimit {
		t.Errorf("%s: %d passed within a second, bound %d", path, most, 2*reloadLimit)
	}
	allowed := reloadLimit * (1 + took.Seconds())
	if float64(len(passed)) < 0.9*allowed {
		late(t, "%s: %d passed in %v, want nearly %.0f", path, len(passed), took, allowed)
	}
}
