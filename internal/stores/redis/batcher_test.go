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
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// pause keeps a Redis from answering any other client until the function that it
// returns is called.
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

// calls is how often a Redis has run a script.
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

// waiting waits until so many questions are in the queue.
func waiting(t *testing.T, l *batcher, n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		got := len(l.queue)
		l.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d questions wait, want %d", got, n)
		}
	}
}

// occupy has as many ask as may at once, and returns when their calls have left.
func occupy(t *testing.T, s *Store, ask func()) {
	t.Helper()
	last := s.conn.seq.Load() + callsInFlight
	for range callsInFlight {
		ask()
	}
	for end := time.Now().Add(20 * time.Second); s.conn.seq.Load() < last; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d calls have not left", last-s.conn.seq.Load())
		}
	}
}

// TestChecksShareCalls pauses Redis while many requests arrive. Those that wait
// are sent in as few calls as the bound on rules allows.
func TestChecksShareCalls(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newVirtualShared(t, srv, &virtual{client: srv.Client(), now: storestest.Hour}), srv.Client()
	s.conn.seq.Store(storestest.Hour)
	s.o.Timeout = time.Minute
	one := storestest.NewTestCounter(t, "one", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 100, Window: storestest.Hour, Cost: 1}})
	s.Decide(context.Background(), storestest.Items(1, one)) // loads the script
	before := calls(t, client)
	resume := pause(t, client)
	const asks = 2*rulesPerCall + callsInFlight
	var admitted atomic.Int64
	var wg sync.WaitGroup
	ask := func() {
		wg.Go(func() {
			check := storestest.Items(1, one)
			if s.Decide(context.Background(), check); check.Mode == stores.ModeShared && check.Admitted {
				admitted.Add(1)
			}
		})
	}
	occupy(t, s, ask)
	for range asks - callsInFlight {
		ask()
	}
	waiting(t, &s.conn.batchers[0], asks-callsInFlight)
	resume()
	wg.Wait()
	if n := admitted.Load(); n != 99 {
		t.Errorf("%d were admitted after the first, want 99", n)
	}
	// Both calls that were under way may end before the other has taken as much
	// as it may.
	if n := calls(t, client) - before; n < callsInFlight+2 || n > callsInFlight+3 {
		t.Errorf("%d asks took %d calls", asks, n)
	}
}

// TestLateCheckJoinsBatch adds a call after the sender of a batch was chosen,
// but before it sends.
func TestLateCheckJoinsBatch(t *testing.T) {
	l := &newBatchers(false)[0]
	question := func(rules int) *call {
		q := newCall(time.Now().Add(time.Minute), stores.Key{})
		q.rules = rules
		return q
	}
	for i := range callsInFlight {
		if asks, alone := l.enter(question(1)); !asks || alone != (i == 0) {
			t.Fatalf("question %d: asks %v, alone %v", i, asks, alone)
		}
	}
	first, late, large := question(1), question(1), question(rulesPerCall-1)
	l.enter(first)
	if l.end(l.calls[0]) != first {
		t.Fatal("who waits alone does not ask")
	}
	l.enter(late)
	l.enter(large)
	l.join(first)
	if late.state != batched || large.state != queued || len(l.queue) != 1 {
		t.Fatalf("late is %v, what would be too much is %v, %d wait", late.state, large.state, len(l.queue))
	}
	if l.end(first) != large || late.state != answered {
		t.Errorf("who came along is %v, want %v; what was too much does not ask", late.state, answered)
	}
}

// TestCallsExpireAtTheirDeadline has calls with different deadlines wait, in
// the queue and for a reply. Each expires at its deadline, with an error that
// says whether it may have been charged.
func TestCallsExpireAtTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := &newBatchers(false)[0], time.Now()
		question := func(end time.Duration) *call {
			return &call{end: start.Add(end), batching: batching{ready: make(chan struct{}, 1)}}
		}
		for range callsInFlight {
			l.enter(question(time.Hour))
		}
		waits := func(end, leaves time.Duration, want error) {
			q := question(end)
			l.enter(q)
			go func() {
				<-q.ready
				if at := time.Since(start); at != leaves || q.err != want { //nolint:errorlint // they are never wrapped
					t.Errorf("until %v: left after %v with %v, want %v with %v", end, at, q.err, leaves, want)
				}
			}()
		}
		const ms = time.Millisecond
		waits(30*ms, 30*ms, errUnanswered)
		waits(10*ms, 10*ms, errUnsent)
		waits(20*ms, 20*ms, errUnanswered)
		asks := question(40 * ms)
		l.enter(asks)
		time.Sleep(15 * ms)
		if next := l.end(l.calls[0]); next != asks || len(next.batch) != 3 {
			t.Fatal("who came last does not ask for all that wait")
		}
		waits(60*ms, 60*ms, errUnsent)
		waits(50*ms, 50*ms, errUnsent)
		time.Sleep(50 * ms)
		if l.end(asks) != nil || len(asks.ready) != 0 {
			t.Error("who asks is let go by the clock")
		}
		for _, o := range asks.batch {
			if o != nil {
				t.Error("who has left is answered")
			}
		}
	})
}

// TestReadyChecksJoinBatch has several goroutines check at the same time on one
// processor during a call. They share one call.
func TestReadyChecksJoinBatch(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newTestShared(t, srv, func() int64 { return storestest.Hour }), srv.Client()
	c := storestest.NewTestCounter(t, "ready", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10_000, Window: storestest.Hour, Cost: 1}})
	s.Decide(context.Background(), storestest.Items(1, c))
	s.conn.batchers[0].enter(newCall(time.Now(), stores.Key{})) // which is never answered
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for end := time.Now().Add(20 * time.Second); ; {
		before := calls(t, client)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { s.Decide(context.Background(), storestest.Items(1, c)) })
		}
		wg.Wait()
		n := calls(t, client) - before
		if n == 1 {
			return
		}
		if time.Now().After(end) { // the runtime may have had other plans once
			t.Fatalf("8 asks took %d calls every time", n)
		}
	}
}

// TestCallsThatFailCountOnce has many requests wait for a Redis that then
// refuses. Each call counts once, and opens the breaker for those that wait.
func TestCallsThatFailCountOnce(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newVirtualShared(t, srv, &virtual{client: srv.Client(), now: storestest.Hour}), srv.Client()
	w := new(failures)
	s.Observe(w)
	s.conn.seq.Store(storestest.Hour)
	s.o.Timeout = time.Minute
	one := storestest.TenAnHour(t, "refused", false)
	s.Decide(context.Background(), storestest.Items(1, one))
	resume := pause(t, client)
	var wg sync.WaitGroup
	ask := func() {
		wg.Go(func() {
			check := storestest.Items(1, one)
			if s.Decide(context.Background(), check); check.Mode != stores.ModeFallback {
				t.Errorf("mode %v", check.Mode)
			}
		})
	}
	occupy(t, s, ask)
	for range 20 - callsInFlight {
		ask()
	}
	waiting(t, &s.conn.batchers[0], 20-callsInFlight)
	if err := client.ConfigSet(context.Background(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	resume()
	wg.Wait()
	if errs, downs := w.errors.Load(), w.downs.Load(); errs != callsInFlight || downs != 1 {
		t.Errorf("%d errors and %d times down, want %d and once", errs, downs, callsInFlight)
	}
}

// TestReplyWithExcessBytes has the script return more than the replies.
func TestReplyWithExcessBytes(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storestest.Hour}
	s := newVirtualShared(t, srv, v)
	s.Observe(ignoring{})
	v.runChanged(t, s, "flags .. seen .. (views or '') end", "flags .. seen .. 'x' end")
	v.tick()
	check := storestest.Items(1, storestest.TenAnHour(t, "more", false))
	if s.Decide(context.Background(), check); check.Mode != stores.ModeFallback {
		t.Errorf("an answer with a byte to spare is taken: mode %v", check.Mode)
	}
}

// TestManyTogetherKeepTheBound has many goroutines of several instances check
// few keys. Exactly what the rules allow is admitted for every key.
func TestManyTogetherKeepTheBound(t *testing.T) {
	srv := redistest.Start(t)
	instances := []*Store{newTestShared(t, srv, func() int64 { return storestest.Hour }), newTestShared(t, srv, func() int64 { return storestest.Hour })}
	sp := algorithms.Spec{Limit: 150, Window: 24 * storestest.Hour, Cost: 1}
	for name, specs := range map[string][]storestest.RuleSpec{
		"gcra":           {{Alg: &algorithms.GCRA{}, Spec: sp}},
		"sliding_window": {{Alg: &algorithms.SlidingWindow{}, Spec: sp}},
		"sliding_log":    {{Alg: &algorithms.SlidingLog{}, Spec: sp}},
		"three":          {{Alg: &algorithms.TokenBucket{}, Spec: sp}, {Alg: &algorithms.FixedWindow{}, Spec: sp}, {Alg: &algorithms.SlidingWindow{}, Spec: sp}},
	} {
		c := storestest.NewTestCounter(t, name, 0, false, nil, specs...)
		const keys, workers, each = 3, 48, 30
		var admitted [keys]atomic.Int64
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range each {
					k := (w + i) % keys
					check := storestest.LocalAsk(c, 1)
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
				t.Errorf("%s: %d of key %d were admitted, want %d", name, n, k, sp.Limit)
			}
		}
	}
	srv.CheckTTLs()
}

// TestForeignKeyInBatch has one of the checks of a call find a list at its key.
// Only that check is decided without Redis.
func TestForeignKeyInBatch(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newTestShared(t, srv, func() int64 { return storestest.Hour }), srv.Client()
	s.Observe(ignoring{})
	c := storestest.NewTestCounter(t, "beside", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: storestest.Hour, Cost: 1}})
	s.Decide(context.Background(), storestest.Items(1, c))
	strange := storestest.Items(1, c)
	strange.Zones[0].Key, strange.Zones[0].Tag = stores.Key{Hi: 7, Lo: 7}, stores.Key{Hi: 7, Lo: 7}
	client.RPush(context.Background(), namesOf("diana", &strange.Zones[0])[0], "a list")
	resume := pause(t, client)
	var shared atomic.Int64
	var wg sync.WaitGroup
	next := storestest.Items(1, c)
	ask := func() {
		check := next
		next = storestest.Items(1, c)
		wg.Go(func() {
			if s.Decide(context.Background(), check); check.Mode == stores.ModeShared {
				shared.Add(1)
			}
		})
	}
	occupy(t, s, ask)
	for i := range 22 - callsInFlight {
		if i == 11 {
			next = strange
		}
		ask()
	}
	waiting(t, &s.conn.batchers[0], 22-callsInFlight)
	resume()
	wg.Wait()
	if shared.Load() != 21 || strange.Mode != stores.ModeFallback {
		t.Errorf("%d of 21 were decided by Redis, the strange one in mode %v", shared.Load(), strange.Mode)
	}
	if up, _ := s.State(); !up {
		t.Error("the store is taken for down")
	}
}

// failures counts what a Watcher is told.
type failures struct {
	ignoring
	errors, downs atomic.Int64
}

func (f *failures) StoreError(string, Failure, error) { f.errors.Add(1) }
func (f *failures) StoreDown(string, Failure, error)  { f.downs.Add(1) }

// TestQueueWhenRedisStalls lets all deadlines pass. What was not sent is
// reported as not charged, and at most a few calls may have been sent. A failed
// call counts once, however many checks it carries.
func TestQueueWhenRedisStalls(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storestest.Hour}
	s := newVirtualShared(t, srv, v)
	w := new(failures)
	s.Observe(w)
	client := srv.Client()
	c := storestest.NewTestCounter(t, "stall", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 1000, Window: storestest.Hour, Cost: 1}})
	s.o.Timeout = 20 * time.Second
	s.conn.seq.Store(storestest.Hour)
	s.Decide(context.Background(), storestest.Items(1, c))
	resume := pause(t, client)
	var unsent, unknown atomic.Int64
	var wg sync.WaitGroup
	ask := func(patience time.Duration) {
		wg.Go(func() {
			check := storestest.Items(1, c)
			check.Zones[0].Rules = c.Rules
			check.ResetResults()
			q := newCall(time.Now().Add(patience), stores.Key{Hi: 1, Lo: 1})
			q.decide("diana", check)
			switch _, _, err := s.conn.send(q); {
			case err == nil:
				t.Error("an answer while Redis is paused")
			case mayHaveRun(err):
				unknown.Add(1)
			case errors.Is(err, errUnsent), errors.Is(err, errOpen):
				unsent.Add(1)
			default:
				t.Errorf("%v is neither unsent nor unknown", err)
			}
		})
	}
	occupy(t, s, func() { ask(3 * time.Second) })
	const impatient, patient = 40, 30
	for range impatient {
		ask(300 * time.Millisecond) // gone before the first calls fail
	}
	for end := time.Now().Add(20 * time.Second); unsent.Load()+unknown.Load() < impatient && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if unsent.Load() != impatient || unknown.Load() != 0 {
		t.Errorf("%d left the queue unsent and %d unknown, want %d and 0", unsent.Load(), unknown.Load(), impatient)
	}
	for range patient {
		ask(4 * time.Second) // sent when the first calls have failed
	}
	wg.Wait()
	resume()
	if n := w.downs.Load(); n != 1 {
		t.Errorf("the store went down %d times, want once", n)
	}
	if got := unsent.Load() + unknown.Load(); got != callsInFlight+impatient+patient {
		t.Errorf("%d of %d have an outcome", got, callsInFlight+impatient+patient)
	}
	// Redis may carry out what it was sent, and nothing else.
	s.breaker.close(s.breaker.opened.Load())
	s.fallback.back.Store(0)
	check := storestest.Items(1, c)
	s.conn.seq.Store(storestest.Hour)
	if s.Decide(context.Background(), check); check.Mode != stores.ModeShared {
		t.Fatalf("mode %v", check.Mode)
	}
	if charged := 1000 - 2 - check.Zones[0].Results[0].Remaining; charged < 0 || charged > unknown.Load() {
		t.Errorf("%d were charged that nobody knows of, and %d asks may have been", charged, unknown.Load())
	}
}
