package redis

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// pause delays all writes of other clients, scripts included, until resume is
// called.
func pause(t *testing.T, c *goredis.Client) (resume func()) {
	t.Helper()
	if err := c.Do(context.Background(), "client", "pause", "60000", "write").Err(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := c.Do(context.Background(), "client", "unpause").Err(); err != nil {
			t.Error(err)
		}
	}
}

// calls returns how often Redis has run a script.
func calls(t *testing.T, c *goredis.Client) (n int) {
	t.Helper()
	info, err := c.InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(info["Commandstats"]["cmdstat_evalsha"], "calls="), ",")
	for _, d := range text {
		n = 10*n + int(d-'0')
	}
	return n
}

// waitQueued waits until n calls are in the queue.
func waitQueued(t *testing.T, l *batcher, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		got := len(l.queue)
		l.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d calls are queued, want %d", got, n)
		}
	}
}

// occupy starts as many checks as there may be calls in flight, and returns when
// their calls were sent.
func occupy(t *testing.T, s *Store, start func()) {
	t.Helper()
	d := &s.conn.nodes.first.distance // near, however slow this machine is
	d.next.Store(1)
	d.is.Store(1)
	d.fly.Store(0)
	last := s.lastCall() + callsInFlight
	for range callsInFlight {
		start()
	}
	for end := time.Now().Add(time.Minute); s.lastCall() < last; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d calls were not sent", last-s.lastCall())
		}
	}
}

// TestChecksShareCalls pauses Redis while many checks arrive. The queued ones are
// sent in as few calls as rulesPerCall allows.
func TestChecksShareCalls(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newVirtualShared(t, srv, &virtual{client: srv.Client(), now: storekit.Hour}), srv.Client()
	s.setTime(storekit.Hour + 1)
	s.o.Timeout = time.Minute
	one := kit.NewTestCounter(t, "one", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1}})
	s.Decide(context.Background(), storekit.CheckOf(1, one)) // loads the script
	before := calls(t, client)
	resume := pause(t, client)
	const checks = 2*rulesPerCall + callsInFlight
	var admitted atomic.Int64
	var wg sync.WaitGroup
	start := func() {
		wg.Go(func() {
			check := storekit.CheckOf(1, one)
			if s.Decide(context.Background(), check); check.Mode == stores.ModeShared && check.Admitted {
				admitted.Add(1)
			}
		})
	}
	occupy(t, s, start)
	for range checks - callsInFlight {
		start()
	}
	waitQueued(t, &s.conn.nodes.first.batchers[0], checks-callsInFlight)
	resume()
	wg.Wait()
	if n := admitted.Load(); n != 99 {
		t.Errorf("%d admitted after the first, want 99", n)
	}
	// Both calls in flight may end before either has taken a full batch from the
	// queue.
	if n := calls(t, client) - before; n < callsInFlight+2 || n > callsInFlight+3 {
		t.Errorf("%d checks took %d calls", checks, n)
	}
}

// TestLateCheckJoinsBatch queues a call after the sender of a batch was chosen and
// before it sends.
func TestLateCheckJoinsBatch(t *testing.T) {
	l := &newBatchers(false)[0]
	newTestCall := func(rules int) *call {
		q := newCall(time.Now().Add(time.Minute), stores.Key{})
		q.rules = rules
		return q
	}
	for i := range callsInFlight {
		if sends, idle := l.enter(newTestCall(1), callsInFlight); !sends || idle != (i == 0) {
			t.Fatalf("call %d: sends %v, idle %v", i, sends, idle)
		}
	}
	first, late, large := newTestCall(1), newTestCall(1), newTestCall(rulesPerCall-1)
	l.enter(first, callsInFlight)
	if l.end(l.calls[0], func(*call) {}); l.calls[0] != first {
		t.Fatal("the only queued call does not send")
	}
	l.enter(late, callsInFlight)
	l.enter(large, callsInFlight)
	l.join(first)
	if late.state != batched || large.state != queued || len(l.queue) != 1 {
		t.Fatalf("late call: state %v, call beyond the bound: state %v, %d queued", late.state, large.state, len(l.queue))
	}
	if l.end(first, func(*call) {}); l.calls[0] != large || late.state != answered {
		t.Errorf("late call: state %v, want %v; or the call beyond the bound does not send", late.state, answered)
	}
}

// TestCallsExpireAtTheirDeadline has calls with different deadlines wait in the
// queue and for a reply. Each expires at its deadline, with an error that says
// whether it may have been charged.
func TestCallsExpireAtTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := &newBatchers(false)[0], time.Now()
		newTestCall := func(end time.Duration) *call {
			return &call{end: start.Add(end), batching: batching{ready: make(chan struct{}, 1)}}
		}
		for range callsInFlight {
			l.enter(newTestCall(time.Hour), callsInFlight)
		}
		expires := func(end, at time.Duration, want error) {
			q := newTestCall(end)
			l.enter(q, callsInFlight)
			go func() {
				<-q.ready
				if got := time.Since(start); got != at || !errors.Is(q.err, want) {
					t.Errorf("deadline %v: expired after %v with %v, want %v with %v", end, got, q.err, at, want)
				}
			}()
		}
		const ms = time.Millisecond
		expires(30*ms, 30*ms, errUnanswered)
		expires(10*ms, 10*ms, errUnsent)
		expires(20*ms, 20*ms, errUnanswered)
		sender := newTestCall(40 * ms)
		l.enter(sender, callsInFlight)
		time.Sleep(15 * ms)
		if l.end(l.calls[0], func(*call) {}); l.calls[0] != sender || len(sender.batch) != 3 {
			t.Fatal("the last queued call does not send for all")
		}
		<-sender.ready
		expires(60*ms, 60*ms, errUnsent)
		expires(50*ms, 50*ms, errUnsent)
		time.Sleep(50 * ms)
		if l.end(sender, func(*call) {}); l.calls[0] != nil || len(sender.ready) != 0 {
			t.Error("the sender expires")
		}
		for _, o := range sender.batch {
			if o != sender && o.state != expired {
				t.Error("a call that expired is answered")
			}
		}
	})
}

// TestReadyChecksJoinBatch has several goroutines make checks on one processor
// while a call is in flight. Their checks share one call.
func TestReadyChecksJoinBatch(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newTestShared(t, srv, func() int64 { return storekit.Hour }), srv.Client()
	c := kit.NewTestCounter(t, "ready", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10_000, Window: storekit.Hour, Cost: 1}})
	s.Decide(context.Background(), storekit.CheckOf(1, c))
	s.conn.nodes.first.batchers[0].enter(newCall(time.Now(), stores.Key{}), callsInFlight) // without a reply
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for end := time.Now().Add(time.Minute); ; {
		before := calls(t, client)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { s.Decide(context.Background(), storekit.CheckOf(1, c)) })
		}
		wg.Wait()
		n := calls(t, client) - before
		if n == 1 {
			return
		}
		if time.Now().After(end) { // a single time the scheduler may have preempted them
			t.Fatalf("8 checks took %d calls every time", n)
		}
	}
}

// TestFailedCallCountsOnce has many checks queued when Redis starts to reply with
// errors. Each failed call counts once, and opens the breaker for the queued ones.
func TestFailedCallCountsOnce(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newVirtualShared(t, srv, &virtual{client: srv.Client(), now: storekit.Hour}), srv.Client()
	w := new(failures)
	s.Observe(w)
	s.setTime(storekit.Hour + 1)
	s.o.Timeout = time.Minute
	one := kit.TenPerHour(t, "refused", false)
	s.Decide(context.Background(), storekit.CheckOf(1, one))
	resume := pause(t, client)
	var wg sync.WaitGroup
	start := func() {
		wg.Go(func() {
			check := storekit.CheckOf(1, one)
			if s.Decide(context.Background(), check); check.Mode != stores.ModeFallback {
				t.Errorf("mode %v", check.Mode)
			}
		})
	}
	occupy(t, s, start)
	for range 20 - callsInFlight {
		start()
	}
	waitQueued(t, &s.conn.nodes.first.batchers[0], 20-callsInFlight)
	if err := client.ConfigSet(context.Background(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	resume()
	wg.Wait()
	if errs, downs := w.errors.Load(), w.downs.Load(); errs != callsInFlight || downs != 1 {
		t.Errorf("%d errors and %d times down, want %d and 1", errs, downs, callsInFlight)
	}
}

// TestReplyWithExcessBytes changes the script to append a byte to the replies. The
// fallback decides instead.
func TestReplyWithExcessBytes(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storekit.Hour}
	s := newVirtualShared(t, srv, v)
	s.Observe(silent{})
	changeScript(t, s, "flags .. (s or '') end", "flags .. 'x' end")
	v.tick()
	check := storekit.CheckOf(1, kit.TenPerHour(t, "more", false))
	if s.Decide(context.Background(), check); check.Mode != stores.ModeFallback {
		t.Errorf("a reply with an excess byte: mode %v, want the fallback", check.Mode)
	}
}

// TestConcurrentChecksKeepBound has many goroutines of several instances check few
// keys. Exactly what the rules allow is admitted for every key.
func TestConcurrentChecksKeepBound(t *testing.T) {
	srv := redistest.Start(t)
	instances := []*Store{newTestShared(t, srv, func() int64 { return storekit.Hour }), newTestShared(t, srv, func() int64 { return storekit.Hour })}
	sp := algorithms.Spec{Limit: 150, Window: 24 * storekit.Hour, Cost: 1}
	for name, specs := range map[string][]storekit.RuleSpec{
		"gcra":           {{Alg: &algorithms.GCRA{}, Spec: sp}},
		"sliding_window": {{Alg: &algorithms.SlidingWindow{}, Spec: sp}},
		"sliding_log":    {{Alg: &algorithms.SlidingLog{}, Spec: sp}},
		"three":          {{Alg: &algorithms.TokenBucket{}, Spec: sp}, {Alg: &algorithms.FixedWindow{}, Spec: sp}, {Alg: &algorithms.SlidingWindow{}, Spec: sp}},
	} {
		c := kit.NewTestCounter(t, name, 0, false, nil, specs...)
		const keys, workers, each = 3, 48, 30
		var admitted [keys]atomic.Int64
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range each {
					k := (w + i) % keys
					check := storekit.CheckOfKey(c, 1)
					check.Zones[0].Key, check.Zones[0].Tag = stores.Key{Hi: uint64(k), Lo: 9}, stores.Key{Hi: uint64(k), Lo: 9}
					if instances[w%2].Decide(context.Background(), check); check.Mode != stores.ModeShared {
						t.Errorf("mode %v", check.Mode)
					}
					if check.Admitted {
						admitted[k].Add(1)
					}
				}
			})
		}
		wg.Wait()
		for k := range admitted {
			if n := admitted[k].Load(); n != sp.Limit {
				t.Errorf("%s: %d admitted for key %d, want %d", name, n, k, sp.Limit)
			}
		}
	}
	srv.CheckTTLs()
}

// TestForeignKeyInBatch batches a check whose key holds a list of another program.
// Only that check is decided by the fallback.
func TestForeignKeyInBatch(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newTestShared(t, srv, func() int64 { return storekit.Hour }), srv.Client()
	s.Observe(silent{})
	c := kit.NewTestCounter(t, "beside", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1}})
	s.Decide(context.Background(), storekit.CheckOf(1, c))
	foreign := storekit.CheckOf(1, c)
	foreign.Zones[0].Key, foreign.Zones[0].Tag = stores.Key{Hi: 7, Lo: 7}, stores.Key{Hi: 7, Lo: 7}
	client.RPush(context.Background(), namesOf("diana", &foreign.Zones[0])[0], "a list")
	resume := pause(t, client)
	var shared atomic.Int64
	var wg sync.WaitGroup
	next := storekit.CheckOf(1, c)
	start := func() {
		check := next
		next = storekit.CheckOf(1, c)
		wg.Go(func() {
			if s.Decide(context.Background(), check); check.Mode == stores.ModeShared {
				shared.Add(1)
			}
		})
	}
	occupy(t, s, start)
	for i := range 22 - callsInFlight {
		if i == 11 {
			next = foreign
		}
		start()
	}
	waitQueued(t, &s.conn.nodes.first.batchers[0], 22-callsInFlight)
	resume()
	wg.Wait()
	if shared.Load() != 21 || foreign.Mode != stores.ModeFallback {
		t.Errorf("Redis decided %d of 21 checks, mode of the other: %v", shared.Load(), foreign.Mode)
	}
	if up, _, _ := s.State(); !up {
		t.Error("the breaker is open")
	}
}

// failures counts the failures that are reported.
type failures struct {
	noObserver
	errors, downs atomic.Int64
}

func (f *failures) StoreError(string, stores.Failure, error)        { f.errors.Add(1) }
func (f *failures) StoreDown(string, string, stores.Failure, error) { f.downs.Add(1) }

// TestQueueWhenRedisStalls pauses Redis until all deadlines have passed. Calls that
// were not sent are reported as not charged, and only the calls in flight have an
// unknown outcome. A failed call counts once, however many checks it batches.
func TestQueueWhenRedisStalls(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storekit.Hour}
	s := newVirtualShared(t, srv, v)
	w := new(failures)
	s.Observe(w)
	client := srv.Client()
	c := kit.NewTestCounter(t, "stall", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 1000, Window: storekit.Hour, Cost: 1}})
	s.o.Timeout = 20 * time.Second
	s.conn.nodes.first.breaker.patience = time.Second // the calls' deadlines are earlier than the store's timeout
	s.setTime(storekit.Hour + 1)
	s.Decide(context.Background(), storekit.CheckOf(1, c))
	resume := pause(t, client)
	var unsent, unknown atomic.Int64
	var wg sync.WaitGroup
	send := func(timeout time.Duration) {
		wg.Go(func() {
			check := storekit.CheckOf(1, c)
			check.Zones[0].Rules = c.Rules
			check.ResetResults()
			q := newCall(time.Now().Add(timeout), stores.Key{Hi: 1, Lo: 1})
			q.decide("diana", check, nil)
			switch _, _, err := s.conn.send(q); {
			case err == nil:
				t.Error("a reply while Redis is paused")
			case mayHaveRun(err):
				unknown.Add(1)
			case errors.Is(err, errUnsent), errors.Is(err, errOpen):
				unsent.Add(1)
			default:
				t.Errorf("%v is neither unsent nor unknown", err)
			}
		})
	}
	occupy(t, s, func() { send(3 * time.Second) })
	const early, late = 40, 30
	for range early {
		send(300 * time.Millisecond) // expire before the first calls fail
	}
	for end := time.Now().Add(time.Minute); unsent.Load()+unknown.Load() < early && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if unsent.Load() != early || unknown.Load() != 0 {
		t.Errorf("%d unsent and %d unknown, want %d and 0", unsent.Load(), unknown.Load(), early)
	}
	for range late {
		send(4 * time.Second) // sent when the first calls have failed
	}
	wg.Wait()
	resume()
	if n := w.downs.Load(); n != 1 {
		t.Errorf("the store went down %d times, want once", n)
	}
	if got := unsent.Load() + unknown.Load(); got != callsInFlight+early+late {
		t.Errorf("%d of %d calls have an outcome", got, callsInFlight+early+late)
	}
	// Redis may have charged the calls that were sent, and no others.
	s.markUp()
	s.skipRamp()
	check := storekit.CheckOf(1, c)
	s.setTime(storekit.Hour + 1)
	if s.Decide(context.Background(), check); check.Mode != stores.ModeShared {
		t.Fatalf("mode %v", check.Mode)
	}
	if charged := 1000 - 2 - check.Zones[0].Results[0].Remaining; charged < 0 || charged > unknown.Load() {
		t.Errorf("%d charged, want 0 to the %d calls with an unknown outcome", charged, unknown.Load())
	}
}
