package xcaddytest

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const (
	outageRate  = 500
	controlRate = 100 // requests per second without a limit
	outageLimit = 100
	outageBound = 2 * outageLimit // gcra with its default burst
)

// fallbackBegins is what is left out when the instances go on alone.
const fallbackBegins = 100 * time.Millisecond

// outageTimeout is the option of the store. A machine that is shared with other work stands
// still for longer than the default, which is no outage.
var outageTimeout = pick(25*time.Millisecond, time.Second)

// TestOutageIsSurvived kills or suspends Redis under load and brings it back: every
// request is answered in time, the limits hold throughout, and counts are soon
// shared again.
func TestOutageIsSurvived(t *testing.T) {
	t.Parallel()
	t.Run("killed", func(t *testing.T) { outage(t, (*harness.Redis).Kill, (*harness.Redis).Start) })
	t.Run("stalled", func(t *testing.T) { outage(t, (*harness.Redis).Stall, (*harness.Redis).Resume) })
}

func outage(t *testing.T, begin, end func(*harness.Redis, testing.TB)) {
	redis := harness.StartRedis(t)
	instances := startMany(t, 2, harness.Config{
		Global: onRedis(redis, fmt.Sprint("timeout ", outageTimeout)),
		Site: fmt.Sprintf("\trate_limit /rate {\n\t\tzone rate {\n\t\t\tkey one\n\t\t\trule %d/s gcra\n\t\t}\n\t}\n", outageLimit) +
			"\trate_limit /count {\n\t\tzone count {\n\t\t\tkey {query.k}\n\t\t\trule 10/1h sliding_log\n\t\t}\n\t}\n\trespond ok",
	})
	shared(t, instances, harness.Patience)

	var shots, control harness.Record
	var loads sync.WaitGroup
	more, stop := untilStopped(t)
	loads.Go(func() { shots.Pace(outageRate, more, urls(instances, "/rate")...) })
	loads.Go(func() { control.Pace(controlRate, more, urls(instances, "/free")...) })
	m := goThrough(t, redis, instances, &shots, begin, end)
	stop()
	loads.Wait()
	checkOutage(t, shots.All(), control.All(), m)
}

// goThrough puts the instances through an outage. Its sleeps are part of the scenario. A
// phase takes longer where the machine sends so few requests that none is denied.
func goThrough(t *testing.T, redis *harness.Redis, instances []*harness.Caddy, load *harness.Record, begin, end func(*harness.Redis, testing.TB)) (m moments) {
	t.Helper()
	m.healthy, m.before = time.Now(), fallbacks(t, instances)
	time.Sleep(2 * time.Second)
	untilLimited(t, load, m.healthy)
	m.gone = time.Now()
	m.before = fallbacks(t, instances) - m.before
	begin(redis, t)
	wantFallback(t, instances)
	untilLimited(t, load, m.gone)
	m.fallback = m.gone.Add(time.Second + outageTimeout)
	if late := time.Now().Add(outageTimeout); late.After(m.fallback) { // a loaded machine detects it later
		m.fallback = late
	}
	time.Sleep(3 * time.Second)
	untilLimited(t, load, m.fallback.Add(fallbackBegins))
	end(redis, t)
	m.back = time.Now()
	for _, c := range instances {
		harness.Until(t, harness.Patience, "the store is up again", func() bool {
			up, _ := c.Metric(t, "caddy_rate_limit_store_up")
			return up == 1
		})
	}
	m.rejoined = time.Now()
	t.Logf("store up again on both instances %v after Redis", m.rejoined.Sub(m.back))
	shared(t, instances, harness.Patience)
	if took := time.Since(m.back); took > 2*time.Second {
		late(t, "counts are shared %v after Redis was back, want at most 2s", took)
	}
	time.Sleep(time.Until(m.rejoined.Add(time.Second)))
	untilLimited(t, load, m.back)
	m.settled, m.after = time.Now(), fallbacks(t, instances)
	time.Sleep(1500 * time.Millisecond)
	untilLimited(t, load, m.settled)
	m.end = time.Now()
	m.after = fallbacks(t, instances) - m.after
	return m
}

// untilLimited waits until some of the requests that were sent since then have passed, and
// some were denied: what the phase admits is then what the limit admits.
func untilLimited(t *testing.T, load *harness.Record, since time.Time) {
	t.Helper()
	harness.Until(t, harness.Patience, "some but not all requests of a phase pass", func() bool {
		time.Sleep(50 * time.Millisecond) // the load needs the processor, too
		all := harness.Between(load.All(), since, time.Now())
		passed := harness.With(http.StatusOK, all)
		return 0 < len(passed) && len(passed) < len(all)
	})
}

// moments are the phases of one outage.
type moments struct {
	healthy, gone, fallback, back, rejoined, settled, end time.Time

	// Decisions made without Redis before and after the outage: on a loaded machine
	// that exceeds the timeout.
	before, after float64
}

// fallbacks counts the decisions of the loaded zone that were made without Redis.
func fallbacks(t *testing.T, instances []*harness.Caddy) (sum float64) {
	t.Helper()
	for _, c := range instances {
		n, ok := c.Metric(t, "caddy_rate_limit_fallback_total", `zone="rate"`)
		if !ok {
			t.Error("no metric caddy_rate_limit_fallback_total")
		}
		sum += n
	}
	return sum
}

// shared fails the test unless, in time, requests admitted by the first instance
// count on the second. Each attempt uses a new key: on a loaded machine a reply of
// Redis may be late, and an instance then decides locally.
func shared(t *testing.T, instances []*harness.Caddy, within time.Duration) {
	t.Helper()
	harness.Until(t, within, "counts are shared", func() bool {
		path := fmt.Sprintf("/count?k=%d", time.Now().UnixNano())
		return slices.Equal(instances[0].Statuses(t, path, 11), slices.Concat(times(10, 200), times(1, 429))) &&
			instances[1].Get(t, path).Status == http.StatusTooManyRequests
	})
}

// wantFallback fails the test unless both instances report the store down and each enforces
// half of the limit.
func wantFallback(t *testing.T, instances []*harness.Caddy) {
	t.Helper()
	passed := 0
	for _, c := range instances {
		harness.Until(t, harness.Patience, "the store is down", func() bool {
			up, ok := c.Metric(t, "caddy_rate_limit_store_up")
			return ok && up == 0
		})
		for _, status := range c.Statuses(t, "/count?k=meanwhile", 12) {
			if status == http.StatusOK {
				passed++
			}
		}
	}
	if passed != 10 {
		t.Errorf("without Redis both instances admitted %d, want half of 10 each", passed)
	}
}

// checkOutage checks the requests recorded throughout an outage.
func checkOutage(t *testing.T, shots, control []harness.Shot, m moments) {
	t.Helper()
	harness.OnlyStatuses(t, shots, http.StatusOK, http.StatusTooManyRequests)
	calm := func(fallbacks float64) int {
		if fallbacks > 0 {
			t.Logf("%v decisions were made without Redis because the machine was loaded: twice the bound may pass", fallbacks)
			return 2 * outageBound
		}
		return outageBound
	}
	phases := []struct {
		name     string
		from, to time.Time
		bound    int // in any second of it
	}{
		{"healthy", m.healthy, m.gone, calm(m.before)},
		{"outage, first second", m.gone, m.fallback, 2 * outageBound},
		{"fallback", m.fallback.Add(fallbackBegins), m.back, outageBound},
		{"recovery, first two seconds", m.back, m.settled, 2 * outageBound},
		{"shared again", m.settled, m.end, calm(m.after)},
	}
	for _, phase := range phases {
		all := harness.Between(shots, phase.from, phase.to)
		passed := harness.With(http.StatusOK, all)
		most := harness.MostWithin(passed, time.Second)
		t.Logf("%-28s %5d requests, %4d passed, at most %3d per second", phase.name, len(all), len(passed), most)
		if len(passed) == 0 || len(passed) == len(all) {
			t.Errorf("%s: %d of %d passed, want some but not all", phase.name, len(passed), len(all))
		}
		if most > phase.bound {
			t.Errorf("%s: %d passed within a second, bound %d", phase.name, most, phase.bound)
		}
		checkWaits(t, phase.name, all, harness.Between(control, phase.from, phase.to))
	}
	if most := harness.MostWithin(harness.With(http.StatusOK, shots), time.Second); most > 2*outageBound {
		t.Errorf("%d passed within a second, want at most twice the bound of %d", most, outageBound)
	}
}

// checkWaits compares the latency with that of simultaneous requests that did not
// use Redis, so that the load of the machine does not count.
func checkWaits(t *testing.T, phase string, shots, control []harness.Shot) {
	t.Helper()
	p50, p99, slowest := harness.Quantiles(shots)
	free50, free99, freeSlowest := harness.Quantiles(control)
	t.Logf("%-28s p50 %v, p99 %v, slowest %v; without a limit p50 %v, p99 %v, slowest %v",
		phase, p50, p99, slowest, free50, free99, freeSlowest)
	if allowed := outageTimeout + 10*time.Millisecond + 2*free99; p99 > allowed {
		late(t, "%s: p99 %v, want at most %v", phase, p99, allowed)
	}
	// The slowest request depends mostly on the machine, but a wait of two seconds
	// for a connection would show here.
	if allowed := time.Second + freeSlowest; slowest > allowed {
		late(t, "%s: slowest %v, want at most %v", phase, slowest, allowed)
	}
}
