package test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// gate is a handler that holds each request until the test releases it.
type gate struct {
	entered chan *http.Request
	goOn    chan bool
	now     atomic.Int64 // requests in the handler
	most    atomic.Int64
	failed  chan struct{} // closed after a failed test
}

// gates are those of the running test.
var gates struct {
	sync.Mutex
	all []*gate
}

func newGate() *gate {
	g := &gate{entered: make(chan *http.Request, 1000), goOn: make(chan bool, 1000), failed: make(chan struct{})}
	gates.Lock()
	defer gates.Unlock()
	gates.all = append(gates.all, g)
	return g
}

// endGates ends the requests that a failed test has not released: the next tests would fail, too.
func endGates(t testing.TB) {
	gates.Lock()
	defer gates.Unlock()
	for _, g := range gates.all {
		if t.Failed() {
			close(g.failed)
		}
	}
	gates.all = nil
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	n := g.now.Add(1)
	defer g.now.Add(-1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
	g.entered <- r
	select {
	case <-g.goOn:
	case <-g.failed:
	}
	_, err := io.WriteString(w, "ok")
	return err
}

// open sends a request, waits until it is in the handler, and returns the channel
// that receives its status.
func (s *site) open(g *gate, q req) (status <-chan int) {
	s.Helper()
	done := make(chan int, 1)
	go func() {
		a, err := s.try(q)
		if err != nil {
			a = new(answer)
		}
		done <- a.status
	}()
	select {
	case <-g.entered:
	case status := <-done:
		s.Fatalf("status %d, want the request in the handler", status)
	}
	return done
}

// permitsIn returns how many permits are held in Redis, -1 if it does not answer.
func permitsIn(srv *redistest.Server) (n int) {
	ctx, client := context.Background(), srv.Client()
	keys, err := client.Keys(ctx, "*:permits*").Result()
	if err != nil {
		return -1
	}
	for _, k := range keys {
		value, err := client.Get(ctx, k).Bytes()
		if err != nil && !errors.Is(err, goredis.Nil) || err == nil && len(value) < 8 {
			return -1
		} else if err == nil { // the first number of the value is their count
			n += int(math.Float64frombits(binary.LittleEndian.Uint64(value)))
		}
	}
	return n
}

func inFlight(limit int, handler string) string {
	return fmt.Sprintf(`
		rate_limit {
			zone z {
				in_flight %d
			}
		}
		%s
		handle_errors {
			respond "{http.rate_limit.exceeded.name} {http.rate_limit.exceeded.rule}"
		}`, limit, handler)
}

func TestInFlight(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: inFlight(2, handle(t, "*", g.ServeHTTP))})
		first, second := s.open(g, req{}), s.open(g, req{})
		a := s.want(req{}, 429)
		s.wantHeader(a, "Retry-After", "1")
		s.wantNoHeader(a, "RateLimit", "RateLimit-Policy")
		if a.body != "z in_flight" {
			t.Errorf("denied by %q", a.body)
		}
		other := s.open(g, req{ip: "10.0.0.2"}) // another key has its own permits
		for range 3 {
			g.goOn <- true
		}
		for _, c := range []<-chan int{first, second, other} {
			if status := <-c; status != 200 {
				t.Errorf("status %d", status)
			}
		}
		// All permits are released after the responses are sent.
		g.goOn <- true
		until(t, "a permit", func() bool { return s.send(req{}).status == 200 })
	})
}

// TestInFlightBound sends many concurrent requests, of which at most the limit may
// be in the handler.
func TestInFlightBound(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		close(g.goOn)
		s := serve(t, setup{app: b.app(), site: inFlight(3, handle(t, "*", g.ServeHTTP))})
		var passed atomic.Int64
		parallel(20, func(int) {
			for range 20 {
				if a, err := s.try(req{}); err != nil {
					t.Error(err)
				} else if a.status == 200 {
					passed.Add(1)
				}
			}
		})
		if most := g.most.Load(); most > 3 || most == 0 {
			t.Errorf("%d in flight, want at most 3", most)
		}
		t.Logf("%d passed", passed.Load())
		until(t, "three permits", func() bool { return s.send(req{}).status == 200 })
	})
}

// TestPermitIsReleased checks that a permit is released when the handler chain
// ends without a response.
func TestPermitIsReleased(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: inFlight(1, `
			error /error 500
			`+handle(t, "*", func(_ http.ResponseWriter, r *http.Request) error {
			switch r.URL.Path {
			case "/abort":
				panic(http.ErrAbortHandler)
			case "/panic":
				panic("on purpose")
			}
			return nil
		}))})
		for range 3 {
			for _, path := range []string{"/abort", "/panic", "/error", "/"} {
				until(t, "a permit for "+path, func() bool {
					a, err := s.try(req{path: path})
					return err != nil || a.status != 429
				})
			}
		}
		if b.redis != nil {
			until(t, "no permit in Redis", func() bool { return permitsIn(b.redis) == 0 })
		}
	})
}

// TestUpgradedConnectionHoldsPermit checks that a request that upgrades its
// connection holds its permit until the connection is closed.
func TestUpgradedConnectionHoldsPermit(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(echo))
	defer up.Close()
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: inFlight(1, "reverse_proxy "+up.Listener.Addr().String())})
		conn, resp := s.upgrade(req{})
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("status %d", resp.StatusCode)
		}
		s.want(req{}, 429, 429)
		conn.Close()
		until(t, "the permit", func() bool {
			conn, resp := s.upgrade(req{})
			defer conn.Close()
			return resp.StatusCode == http.StatusSwitchingProtocols
		})
	})
}

// TestStreamHoldsPermit checks that an event stream holds its permit until the
// client disconnects.
func TestStreamHoldsPermit(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: inFlight(1, handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return nil
		}))})
		stream := func() (status int, leave func()) {
			ctx, cancel := context.WithCancel(context.Background())
			resp, err := s.client.Do(req{ctx: ctx}.http(s))
			if err != nil {
				cancel()
				t.Fatal(err)
			}
			return resp.StatusCode, func() { cancel(); _ = resp.Body.Close() }
		}
		_, leave := stream()
		s.want(req{}, 429)
		leave()
		until(t, "the permit", func() bool {
			status, leave := stream()
			leave()
			return status == 200
		})
	})
}

// TestPermitSurvivesReload reloads the configuration while a request holds a
// permit.
func TestPermitSurvivesReload(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		handler := handle(t, "*", g.ServeHTTP)
		s := serve(t, setup{app: b.app(), site: inFlight(1, handler)})
		first := s.open(g, req{})
		s.reload(setup{app: b.app(), site: inFlight(2, handler) + "\nheader X-New yes"})
		second := s.open(g, req{})
		s.want(req{}, 429) // both permits are held
		g.goOn <- true
		g.goOn <- true
		if a, b := <-first, <-second; a != 200 || b != 200 {
			t.Errorf("statuses %d and %d", a, b)
		}
		// Both permits are released.
		until(t, "two permits", func() bool {
			g.most.Store(0)
			for range 2 {
				g.goOn <- true
			}
			one, two := make(chan int), make(chan int)
			for _, c := range []chan int{one, two} {
				go func() { a, _ := s.try(req{}); c <- a.status }()
			}
			return <-one == 200 && <-two == 200
		})
	})
}

// TestDeniedRequestTakesNoPermit checks that a request denied by a rule takes no
// permit and that one denied for lack of permits charges no rule.
func TestDeniedRequestTakesNoPermit(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone permits {
					key all
					in_flight 1
				}
				zone rule {
					rule 2/1h
				}
			}
			` + handle(t, "*", g.ServeHTTP)})
		inside := s.open(g, req{})
		s.want(req{}, 429, 429, 429)
		g.goOn <- true
		<-inside
		g.goOn <- true
		until(t, "the permit", func() bool { return s.send(req{}).status == 200 })
		s.between(s.want(req{}, 429, 429), "Retry-After", 3590, 3600) // denied by the rule
		g.goOn <- true
		until(t, "the permit", func() bool { return s.send(req{ip: "10.0.0.2"}).status == 200 })
	})
}

// TestCanceledPacedRequestReleasesPermit cancels a request that a leaky bucket
// delays: it releases its permit and stays charged.
func TestCanceledPacedRequestReleasesPermit(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 2/2h leaky_bucket\nmax_wait 1h\nin_flight 1"))
		s.want(req{}, 200)
		until(t, "the permit", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			a, err := s.try(req{ctx: ctx})
			return err != nil || a.get("RateLimit") == `"z";r=0;t=7200`
		})
		until(t, "the released permit", func() bool {
			a := s.want(req{}, 429)
			return a.get("Retry-After") != "1"
		})
		s.between(s.want(req{}, 429), "Retry-After", 3590, 3600)
		var gone map[string]any
		until(t, "the log line of the canceled request", func() bool {
			for _, line := range s.log.lines(t, "handled request") {
				if line["status"] == 499.0 {
					gone = line
				}
			}
			return gone != nil
		})
		if d, _ := gone["rate_limit"].(map[string]any); d["decision"] != "left" {
			t.Errorf("access log line %v", gone)
		}
	})
}
