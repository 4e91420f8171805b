package chaos

import (
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// soakTime returns the duration of the last row: DIANA_SOAK if set, such as 20m.
func soakTime() time.Duration {
	if text := os.Getenv("DIANA_SOAK"); text != "" {
		if d, err := time.ParseDuration(text); err == nil && d >= 10*time.Second {
			return d
		}
		panic("DIANA_SOAK " + text + ": want a duration of at least 10s, such as 20m")
	}
	return pick(time.Minute, 10*time.Second)
}

// level is the resource usage of a process.
type level struct {
	goroutines, connections int
	heap                    float64 // MB in use
}

// soak loads the instances for a long time with reloads and outages of Redis. Their
// resource usage at the end must be that after the first quarter.
func soak(t *testing.T, out *result) {
	srv := redistest.Start(t)
	p := startProxy(t, srv.Addr)
	s := begin(t, p.Addr)
	running := s.caddys[0].Running(t)
	lasts := soakTime()
	requests := s.mixed(srv, lasts/4)
	first := s.level(p)
	for round := 1; round < 4; round++ {
		requests += s.mixed(srv, lasts/4)
	}
	last := s.level(p)
	if s.caddys[0].Running(t) != running {
		t.Error("the configuration has changed")
	}
	out.report("%d requests, no 5xx, goroutines %d then %d, connections to Redis %d then %d, heap %.1f MB then %.1f MB",
		requests, first.goroutines, last.goroutines, first.connections, last.connections, first.heap, last.heap)
	if last.goroutines > first.goroutines*11/10+30 {
		t.Errorf("%d goroutines, then %d", first.goroutines, last.goroutines)
	}
	if last.connections > first.connections+3*instances {
		t.Errorf("%d connections, then %d", first.connections, last.connections)
	}
	if last.heap > first.heap*1.1+6 {
		t.Errorf("%.1f MB in use, then %.1f MB", first.heap, last.heap)
	}
}

// reload is when an instance was reloaded.
type reload struct {
	url      string
	from, to time.Time
}

// lost reports whether a reload closed a connection before its request was read: the kernel resets
// what a listener with SO_REUSEPORT has not accepted, and net/http closes what it has accepted
// while it shuts down. Caddy does that in the background when the reload is answered.
func (r reload) lost(shot harness.Shot) bool {
	return (errors.Is(shot.Err, syscall.ECONNRESET) || errors.Is(shot.Err, io.EOF)) &&
		strings.HasPrefix(shot.URL, r.url) && shot.Sent.Before(r.to.Add(5*time.Second)) && shot.Got.After(r.from)
}

// mixed runs load with faults: for a quarter of it Redis is stalled or killed, and
// the instances are reloaded in turn.
func (s *scene) mixed(srv *redistest.Server, lasts time.Duration) (requests int) {
	s.t.Helper()
	var (
		wg      sync.WaitGroup
		failed  []harness.Shot
		reloads []reload
	)
	more := harness.During(lasts)
	wg.Go(func() {
		for i := 0; more(); i++ {
			for _, shot := range harness.Pace(rate/2, harness.During(min(lasts, 5*time.Second)), s.rotated(paths())...) {
				if shot.Err != nil || shot.Status != http.StatusOK && shot.Status != http.StatusTooManyRequests {
					failed = append(failed, shot)
				}
				requests++
			}
		}
	})
	wg.Go(func() {
		for more() {
			vanish(s.t, 20, 50*time.Millisecond, s.caddys[0].URL+"/keys?k=vanish", false)
			time.Sleep(time.Second)
		}
	})
	for i := 0; more(); i++ {
		time.Sleep(lasts / 16)
		switch i % 3 {
		case 0:
			srv.Kill()
			time.Sleep(lasts / 16)
			srv.Run()
		case 1:
			srv.Stall()
			time.Sleep(lasts / 16)
			srv.Resume()
		case 2:
			c := s.caddys[i/3%len(s.caddys)]
			begun := time.Now()
			if a := c.Load(s.t, c.Running(s.t)); a.Status != http.StatusOK {
				s.t.Errorf("reload: %d %s", a.Status, a.Body)
			}
			reloads = append(reloads, reload{c.URL, begun, time.Now()})
		}
	}
	wg.Wait()
	for _, shot := range failed {
		if !slices.ContainsFunc(reloads, func(r reload) bool { return r.lost(shot) }) {
			s.t.Errorf("%s: status %d, %v", shot.URL, shot.Status, shot.Err)
		}
	}
	return requests
}

var heapInUse = regexp.MustCompile(`# HeapInuse = (\d+)`)

// level measures the resource usage after the load has settled.
func (s *scene) level(p *proxy) (l level) {
	s.t.Helper()
	time.Sleep(3 * time.Second) // let earlier connections and requests end
	l.goroutines, l.connections = s.goroutines(), int(p.open.Load())
	for _, c := range s.caddys {
		profile := harness.Do(s.t, http.MethodGet, c.Admin+"/debug/pprof/heap?gc=1&debug=1", "").Body
		match := heapInUse.FindStringSubmatch(profile)
		if match == nil {
			s.t.Fatal("no HeapInuse in the profile")
		}
		n, _ := strconv.ParseFloat(match[1], 64)
		l.heap += n / 1e6
	}
	return l
}
