package test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// queueOf returns a site with in_flight and a queue.
func queueOf(inFlight int, maxWait, more, handler string) string {
	return fmt.Sprintf(`
		rate_limit {
			zone z {
				in_flight %d
				max_wait %s
				%s
			}
		}
		%s`, inFlight, maxWait, more, handler)
}

// TestQueueTakesPermitsAtOnce sends more requests than there are permits, to two handlers
// of one zone. Permits are used again as soon as they are released: the ideal is 1.2 s,
// and with one retry a second it takes 3.3 s.
func TestQueueTakesPermitsAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		site := queueOf(2, "20s", "", handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			time.Sleep(300 * time.Millisecond)
			return g.ServeHTTP(w, r)
		}))
		s := serve(t, setup{app: b.app(), site: site, more: "http://:8002 {\n" + site + "\n}"})
		close(g.goOn)
		to := [2]string{s.url, s.second}
		begun, stood := time.Now(), standstill()
		parallel(8, func(i int) {
			if a, err := s.try(req{to: to[i%2]}); err != nil || a.status != 200 {
				t.Errorf("%v %v, want 200", a, err)
			}
		})
		took, still := time.Since(begun), stood()
		t.Logf("8 requests of 300ms, 2 at a time: %v, of which the machine stood still for %v", took, still)
		if took < 1200*time.Millisecond || took-still > 2500*time.Millisecond {
			t.Errorf("took %v, and the machine stood still for %v: want about 1.2s", took, still)
		}
		if g.most.Load() > 2 {
			t.Errorf("%d at a time, want 2", g.most.Load())
		}
	})
}

// TestQueueSurvivesReload reloads the configuration while a request waits. It goes on when
// the permit of a request from before is released, and a newer one waits behind it.
func TestQueueSurvivesReload(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		handler := handle(t, "*", g.ServeHTTP)
		s := serve(t, setup{app: b.app(), site: queueOf(1, "30s", "", handler)})
		inside := s.open(g, req{})
		ask := func(path string) <-chan int {
			before, done := waiting(), make(chan int, 1)
			go func() {
				a, err := s.try(req{path: path})
				if err != nil {
					t.Error(err)
					a = new(answer)
				}
				done <- a.status
			}()
			until(t, path+" to wait", func() bool { return waiting() == before+1 })
			return done
		}
		old := ask("/old")
		s.reload(setup{app: b.app(), site: queueOf(1, "40s", "max_waiting 5", handler)})
		newer := ask("/new")
		for _, done := range []<-chan int{inside, old, newer} {
			g.goOn <- true
			if status := <-done; status != 200 {
				t.Errorf("status %d", status)
			}
		}
		if first, second := <-g.entered, <-g.entered; first.URL.Path != "/old" || second.URL.Path != "/new" {
			t.Errorf("served %s before %s", first.URL.Path, second.URL.Path)
		}
	})
}

// TestQueueInOutage stops Redis while requests wait, and starts it again. They go on as
// permits are released, never more at a time than may.
func TestQueueInOutage(t *testing.T) {
	srv := redistest.Start(t)
	g := newGate()
	s := serve(t, setup{
		app:  redisStore(srv.Addr, "timeout 10s", "dial_timeout 200ms"),
		site: queueOf(1, "60s", "", handle(t, "*", g.ServeHTTP)),
	})
	inside := s.open(g, req{})
	all := make(chan int, 4)
	for i := range 4 {
		go func() {
			a, err := s.try(req{})
			if err != nil {
				a = new(answer)
			}
			all <- a.status
		}()
		until(t, "the request to wait", func() bool { return waiting() == i+1 })
	}
	pass := func(done <-chan int) {
		t.Helper()
		g.goOn <- true
		if status := <-done; status != 200 {
			t.Errorf("status %d", status)
		}
	}
	srv.Kill()
	pass(inside)
	pass(all)
	srv.Run()
	pass(all)
	pass(all)
	pass(all)
	if g.most.Load() != 1 {
		t.Errorf("%d at a time, want 1", g.most.Load())
	}
	until(t, "no permit in Redis", func() bool { return permitsIn(srv) == 0 })
}

// TestQueueBesideAnOutage fills the queue of a zone while the store of another, which then limits nothing, is away: the
// queue has no more room for that.
func TestQueueBesideAnOutage(t *testing.T) {
	s := serve(t, setup{
		app: redisStore(unusedAddr(t), "timeout 100ms", "dial_timeout 100ms", "on_failure allow"),
		site: `rate_limit {
			zone paced {
				store local
				rule 100/1h leaky_bucket burst 2000
			}
			zone shared {
				rule 1/1h
			}
		}
		respond ok`,
	})
	s.want(req{}, 200)
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range maxWaiting {
		all.Go(func() { _, _ = s.try(req{ctx: ctx}) })
	}
	until(t, "a full queue", func() bool { return len(goroutinesIn("limiter.sleep(")) == maxWaiting })
	s.want(req{}, 429)
	leave()
	all.Wait()
}

// TestPollsAreBatched has a request of each of many keys wait for a permit that another
// one of its key holds. Their polls leave together.
func TestPollsAreBatched(t *testing.T) {
	const keys = 60
	srv := redistest.Start(t)
	g := newGate()
	s := serve(t, setup{app: backend{srv}.app(), site: queueOf(1, "60s", "", handle(t, "*", g.ServeHTTP))})
	ctx, cancel := context.WithCancel(context.Background())
	for i := range keys {
		s.open(g, req{ip: fmt.Sprintf("10.0.0.%d", i)})
		go func() { _, _ = s.try(req{ctx: ctx, ip: fmt.Sprintf("10.0.0.%d", i)}) }()
	}
	until(t, "all to wait", func() bool { return waiting() == keys })
	client := srv.Client()
	calls := func() int {
		_, line, _ := strings.Cut(client.Info(context.Background(), "commandstats").Val(), "cmdstat_evalsha:calls=")
		n, err := strconv.Atoi(line[:strings.IndexByte(line, ',')])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, begun := calls(), time.Now()
	time.Sleep(1500 * time.Millisecond)
	n, polls := calls()-before, float64(time.Since(begun))/float64(75*time.Millisecond)
	t.Logf("%d keys, %.0f polls: %d calls", keys, polls, n)
	if n == 0 || float64(n) > polls*keys/4 {
		t.Errorf("%d calls in %.0f polls of %d keys, want them batched", n, polls, keys)
	}
	cancel()
	// A request that asks again at this moment does not wait, and would get a permit.
	until(t, "only those with a permit to be there", func() bool { return len(goroutinesIn("limiter.(*Limiter).ServeHTTP(")) == keys })
	for range keys {
		g.goOn <- true
	}
}

// TestMaxWaitBelowASecond checks that a request waits for a permit with a max_wait that is
// shorter than the Retry-After of in_flight.
func TestMaxWaitBelowASecond(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: queueOf(1, "950ms", "max_waiting 1", handle(t, "*", g.ServeHTTP))})
		inside := s.open(g, req{})
		a, took := s.timed(req{})
		if a.status != 429 || took < 900*time.Millisecond {
			t.Errorf("status %d after %v, want 429 after 950ms", a.status, took)
		}
		s.wantHeader(a, "Retry-After", "1")
		for range 10 { // unless the machine takes a second
			second := make(chan int, 1)
			go func() { a, _ := s.try(req{}); second <- a.status }()
			until(t, "the second to wait", func() bool { return waiting() == 1 || len(second) > 0 })
			s.want(req{}, 429) // the queue is full
			g.goOn <- true
			g.goOn <- true
			<-inside
			if <-second == 200 {
				return
			}
			<-g.goOn
			inside = s.open(g, req{})
		}
		t.Error("no request was admitted after waiting")
	})
}
