package test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/testdir"
)

// timed sends a request and returns its response and latency.
func (s *site) timed(q req) (*answer, time.Duration) {
	s.Helper()
	begun := time.Now()
	return s.send(q), time.Since(begun)
}

func TestMaxWait(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					rule 2/600ms fixed_window
					max_wait 700ms
				}
				zone other {
					match header X-Other *
					key all
					rule 1/1h name long
				}
			}
			respond {http.rate_limit.z.decision}`})
		for i := 1; ; i++ {
			q := req{ip: fmt.Sprintf("10.0.1.%d", i)}
			begun := time.Now()
			s.want(q, 200, 200)
			a := s.send(q)
			took := time.Since(begun)
			if a.body == "allowed" && took >= 600*time.Millisecond && i < 100 {
				continue // the window ended before the third request
			}
			if a.status != 200 || a.body != "delayed" || took < 600*time.Millisecond {
				t.Errorf("status %d %q after %v, want 200 after the window", a.status, a.body, took)
			}
			s.wantHeader(a, "RateLimit", `"z";r=1;t=1`)
			break
		}
		until(t, "the access log", func() bool {
			for _, line := range s.log.lines(t, "handled request") {
				if d, _ := line["rate_limit"].(map[string]any); d["decision"] == "delayed" && d["zone"] == "z" {
					return true
				}
			}
			return false
		})
		// A request does not wait if another zone denies for longer than, or without, max_wait.
		x := req{ip: "10.0.0.2", header: map[string]string{"X-Other": "x"}}
		s.want(x, 200)
		s.want(x, 429)
		if n := s.metric("decisions_total", "zone", "z", "decision", "denied_elsewhere"); n < 1 {
			t.Errorf("denied_elsewhere rose by %v", n)
		}
	})
}

// TestMaxWaitTooShort checks that a request is denied immediately if max_wait is
// too short to admit it.
func TestMaxWaitTooShort(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					rule 1/1h
					max_wait 30s
				}
				zone cost {
					rule 3/1h
					cost {header.X-Cost}
					max_wait 30s
				}
			}
			respond ok`})
		s.want(req{}, 200)
		a, took := s.timed(req{})
		if a.status != 429 || took > 5*time.Second {
			t.Errorf("status %d after %v, want 429 at once", a.status, took)
		}
		s.between(a, "Retry-After", 3590, 3600)
		a, took = s.timed(req{ip: "10.0.0.2", header: map[string]string{"X-Cost": "4"}})
		if a.status != 429 || took > 5*time.Second {
			t.Errorf("status %d after %v, want 429 at once", a.status, took)
		}
	})
}

// TestWaitersAreServedInOrder checks that waiting requests are admitted in order of
// arrival, one per window. No place is reserved: who arrives once a window has begun may be
// admitted in it, so only requests that lined up before are compared.
func TestWaitersAreServedInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		const n = 5
		var (
			came   [n]time.Time
			passed atomic.Int64
		)
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					key all
					rule 1/300ms
					max_wait 20s
				}
			}
			` + handle(t, "/waits", func(_ http.ResponseWriter, r *http.Request) error {
			i, _ := strconv.Atoi(r.URL.RawQuery)
			came[i] = time.Now()
			passed.Add(1)
			return nil
		})})
		until(t, "three requests to line up within a window", func() bool {
			passed.Store(0)
			s.want(req{}, 200)
			var all sync.WaitGroup
			lined, stood := 0, standstill()
			for i := range n {
				all.Go(func() {
					a, err := s.try(req{path: "/waits?" + strconv.Itoa(i)})
					if err != nil || a.status != 200 {
						t.Errorf("%v %v", a, err)
					}
				})
				until(t, "the request to line up", func() bool { return waiting()+int(passed.Load()) > i })
				if passed.Load() == 0 {
					lined++
				}
			}
			all.Wait()
			// One that is served before another is served a window before it. Requests overtake each
			// other on their way to the next handler where the machine stands still.
			still := stood()
			for i := 1; i < lined; i++ {
				if early := came[i-1].Sub(came[i]); early > still+150*time.Millisecond {
					t.Errorf("request %d was admitted %v before request %d, and the machine stood still for %v", i, early, i-1, still)
				}
			}
			return lined >= 3
		})
		if waiting() != 0 {
			t.Errorf("%d requests wait, want none", waiting())
		}
	})
}

// TestWaitersFollowRules changes the rules while a request waits: it is decided by those that are
// in force when its turn comes.
func TestWaitersFollowRules(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, c := range []struct {
			name, zone, document string
			status               int
			decision             string
		}{
			{"the key is blocked", "in_flight 1", `{"overrides": [{"key": ["127.0.0.1"], "rules": [{"limit": 0, "window": "1h"}]}]}`, 429, "denied"},
			{"the limit is used up", "in_flight 1\nrule 9/1h", `{"rules": [{"limit": 1, "window": "1h"}]}`, 429, "denied"},
			{"the zone is off", "in_flight 1", `{"enabled": false}`, 200, "skipped"},
			{"nothing that matters", "in_flight 1", `{"rules": [{"limit": 9, "window": "1h"}]}`, 200, "delayed"},
		} {
			t.Run(c.name, func(t *testing.T) {
				hold, held := make(chan struct{}), make(chan struct{})
				s := serveRuled(t, setup{app: b.app(), site: "rate_limit {\nzone z {\n" + c.zone + "\nmax_wait 10m\n}\n}\n" +
					handle(t, "/held", func(http.ResponseWriter, *http.Request) error {
						close(held)
						<-hold
						return nil
					}) + "\nrespond {http.rate_limit.z.decision}"})
				var all sync.WaitGroup
				defer all.Wait()
				all.Go(func() { _, _ = s.try(req{path: "/held"}) })
				<-held
				all.Go(func() {
					a, err := s.try(req{})
					if err != nil || a.status != c.status || a.status == 200 && a.body != c.decision {
						t.Errorf("%+v %v, want %d %s", a, err, c.status, c.decision)
					}
				})
				until(t, "the request to wait", func() bool { return waiting() == 1 })
				s.apply(zoneDocument(c.document))
				close(hold)
			})
		}
	})
}

// TestWaitersAskAgain has requests wait for an hour's window while what they wait for changes: the
// rules, a list of keys, or a reset. All that may pass do so at once, and others go on waiting.
func TestWaitersAskAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		list := filepath.Join(testdir.New(t), "list")
		writeList(t, list, "10.0.0.9")
		s := serveRuled(t, zoneOf(b, "rule 1/59m fixed_window\nmax_wait 1h\noverride {\nfile "+list+"\nunlimited\n}"))
		for i, c := range []struct {
			name   string
			change func(ip string)
			pass   int // of the two that wait
		}{
			{"an exception", func(ip string) {
				s.apply(zoneDocument(`{"exceptions": [{"key": ["` + ip + `"], "unlimited": true}]}`))
			}, 2},
			{"a greater limit", func(string) {
				s.apply(zoneDocument(`{"rules": [{"limit": 2, "window": "59m", "algorithm": {"name": "fixed_window"}}]}`))
			}, 1},
			{"in shadow", func(string) { s.apply(zoneDocument(`{"shadow": true}`)) }, 2},
			{"off", func(string) { s.apply(zoneDocument(`{"enabled": false}`)) }, 2},
			{"a list", func(ip string) { writeList(t, list, "10.0.0.9", ip) }, 2},
			{"a reset", func(ip string) { s.key(http.MethodDelete, "z", ip) }, 1},
		} {
			s.apply(zoneDocument(`{}`))
			ip := fmt.Sprintf("10.0.1.%d", i)
			ctx, leave := context.WithCancel(t.Context())
			s.want(req{ip: ip}, 200)
			var all sync.WaitGroup
			passed := make(chan int, 2)
			for range 2 {
				all.Go(func() {
					if a, err := s.try(req{ip: ip, ctx: ctx}); err == nil && a.status == 200 {
						passed <- a.status
					}
				})
			}
			until(t, "two requests to wait", func() bool { return waiting() == 2 })
			c.change(ip)
			until(t, "those to pass that may after "+c.name, func() bool { return len(passed) == c.pass && waiting() == 2-c.pass })
			leave()
			all.Wait()
			until(t, "nobody to wait", func() bool { return waiting() == 0 })
		}
	})
}

// maxWaiting is the maximum number of waiting requests in a zone.
const maxWaiting = 1000

// waiting returns the number of waiting requests, each of which has a goroutine in
// this process.
func waiting() int { return len(goroutinesIn("limiter.(*waiter).wait(")) }

// TestWaitQueueLimit fills the queue of a zone that two handlers share, checks that
// further requests are denied immediately, cancels all and checks that the queue is empty.
func TestWaitQueueLimit(t *testing.T) {
	const site = `
		rate_limit {
			zone z {
				rule 1/30m
				max_wait 1h
			}
		}
		respond ok`
	s := serve(t, setup{site: site, more: "http://:8002 {\n" + site + "\n}"})
	servers := [2]string{s.url, s.second}
	begun := time.Now()
	s.want(req{}, 200)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answered := make(chan int, maxWaiting)
	for i := range maxWaiting {
		go func() {
			q := req{ctx: ctx, to: servers[i/2%2]}
			if i%20 == 1 { // another key, whose first request is admitted
				q.ip = fmt.Sprintf("10.1.0.%d", i/20)
				_, _ = s.try(q)
			}
			a, err := s.try(q)
			if err != nil {
				a = new(answer)
			}
			answered <- a.status
		}()
	}
	until(t, "a full queue", func() bool { return waiting() == maxWaiting })
	for i := range 4 {
		a := s.want(req{to: servers[i%2]}, 429)
		s.between(a, "Retry-After", 1799-int(time.Since(begun).Seconds()), 1800)
	}
	s.want(req{ip: "10.0.0.2"}, 200) // an admitted request does not queue
	cancel()
	for range maxWaiting {
		if status := <-answered; status != 0 {
			t.Fatalf("status %d, want no response to a canceled request", status)
		}
	}
	until(t, "an empty queue", func() bool { return waiting() == 0 })
}

// TestCanceledWaitIsNotCharged cancels requests that wait for a window.
func TestCanceledWaitIsNotCharged(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 1/2s\nmax_wait 20s"))
		s.want(req{}, 200)
		for range 2 {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			if a, err := s.try(req{ctx: ctx}); err == nil {
				t.Errorf("status %d, want none", a.status)
			}
			cancel()
		}
		// If they were charged, this request would wait for three windows.
		stood := standstill()
		a, took := s.timed(req{})
		if still := stood(); a.status != 200 || took-still > 4*time.Second {
			t.Errorf("status %d %q after %v, and the machine stood still for %v", a.status, a.body, took, still)
		}
	})
}

// TestDuplicateDoesNotWait checks that max_wait does not apply to duplicates.
func TestDuplicateDoesNotWait(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				rule 10/1h
				max_wait 30s
				prevent_duplicates 20s
			}
		}
		respond ok`})
	s.want(req{method: "POST"}, 200)
	if a, took := s.timed(req{method: "POST"}); a.status != 429 || took > 10*time.Second {
		t.Errorf("status %d after %v, want 429 at once", a.status, took)
	}
}

// TestWaitForPermit checks that a request waits for the permit of another one.
func TestWaitForPermit(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					in_flight 1
					max_wait 20s
				}
			}
			` + handle(t, "*", g.ServeHTTP)})
		first := s.open(g, req{})
		second := make(chan int)
		go func() { a, _ := s.try(req{}); second <- a.status }()
		until(t, "the second to wait", func() bool { return waiting() == 1 })
		g.goOn <- true
		g.goOn <- true
		if a, b := <-first, <-second; a != 200 || b != 200 {
			t.Errorf("statuses %d and %d", a, b)
		}
	})
}

// TestLeakyBucketPacing checks that admitted requests are evenly spaced and that
// requests beyond the queue are denied.
func TestLeakyBucketPacing(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					rule 5/1s leaky_bucket burst 3
				}
				zone light {
					rule 100/1s leaky_bucket burst 100
				}
			}
			respond {http.rate_limit.z.decision}`})
		begun := time.Now()
		var left [6]time.Duration
		var answers [6]*answer
		parallel(len(left), func(i int) {
			answers[i] = s.send(req{})
			left[i] = time.Since(begun)
		})
		const gap = 200 * time.Millisecond
		admitted, delayed, denied := 0, 0, time.Duration(0)
		for i, d := range left {
			if answers[i].status != 200 {
				denied = max(denied, d)
				continue
			}
			admitted++
			if answers[i].body == "delayed" {
				delayed++
			}
			earlier := 0 // requests that left so far, including this one
			for k, other := range left {
				if answers[k].status == 200 && other <= d {
					earlier++
				}
			}
			if least := time.Duration(earlier-1) * gap; d < least-time.Millisecond {
				t.Errorf("request %d left after %v, want at least %v: %v", earlier, d, least, left)
			}
		}
		// While the requests arrive the queue drains a little.
		if most := 4 + int(denied/gap); admitted < 3 || admitted > most || delayed == 0 {
			t.Errorf("%d of 6 were admitted, %d of them delayed: want 3 to %d, most of them delayed", admitted, delayed, most)
		}
	})
}
