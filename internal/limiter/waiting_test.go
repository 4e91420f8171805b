package limiter

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// TestWaitersForPermitsGoOnAtOnce checks that waiting requests take permits as soon as
// they are released, so that none is unused while a request waits.
func TestWaitersForPermitsGoOnAtOnce(t *testing.T) {
	for _, c := range []struct {
		requests int
		maxWait  time.Duration
		served   int64
		took     time.Duration
	}{
		{8, 10 * time.Second, 8, 1200 * time.Millisecond},
		{40, 5 * time.Second, 34, 5100 * time.Millisecond},
		{8, 700 * time.Millisecond, 6, 900 * time.Millisecond},
		{8, 100 * time.Millisecond, 2, 300 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(c.requests, c.maxWait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTestLimiter(t, nil, &config.Zone{Name: "z", InFlight: 2, MaxWait: caddy.Duration(c.maxWait)})
				served, took := askMany(l, c.requests, takes(300*time.Millisecond))
				t.Logf("%d requests of 300ms, 2 at a time, max_wait %v: %d served in %v", c.requests, c.maxWait, served, took)
				if served != c.served || took != c.took {
					t.Errorf("%d requests, max_wait %v: %d served in %v, want %d in %v", c.requests, c.maxWait, served, took, c.served, c.took)
				}
			})
		})
	}
}

// TestWaitersForPermitsAreServedInOrder checks that requests take permits in the order of
// their arrival, also those that arrive the moment one is released.
func TestWaitersForPermitsAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{Name: "z", InFlight: 1, MaxWait: caddy.Duration(time.Minute)})
		var all sync.WaitGroup
		var order []int // written by one request at a time
		for i := range 30 {
			all.Go(func() {
				status := ask(context.Background(), l, "a", handlerFunc(func(http.ResponseWriter, *http.Request) error {
					order = append(order, i)
					time.Sleep(300 * time.Millisecond)
					return nil
				}))
				if status != http.StatusOK {
					t.Errorf("request %d: status %d", i, status)
				}
			})
			time.Sleep(100 * time.Millisecond) // every third arrives as a permit is released
			synctest.Wait()
		}
		all.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("served in the order %v", order)
			}
		}
	})
}

// TestMaxWaiting checks that one more request of a key is denied at once, that another key
// has a queue of its own, and that a client that goes away frees its place.
func TestMaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{Name: "z", InFlight: 1, MaxWait: caddy.Duration(time.Minute), MaxWaiting: 2})
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		begin := func(ctx context.Context, k string, want int) {
			all.Go(func() {
				if status := ask(ctx, l, k, takes(10*time.Second)); status != want {
					t.Errorf("key %s: status %d, want %d", k, status, want)
				}
			})
			synctest.Wait()
		}
		denied := func() {
			t.Helper()
			begun := time.Now()
			if status := ask(context.Background(), l, "a", takes(0)); status != http.StatusTooManyRequests || time.Since(begun) > 0 {
				t.Errorf("status %d after %v, want 429 at once", status, time.Since(begun))
			}
		}
		begin(context.Background(), "a", 200)
		begin(ctx, "a", 499)
		begin(context.Background(), "a", 200)
		denied()
		begin(context.Background(), "b", 200)
		begin(context.Background(), "b", 200)
		cancel()
		synctest.Wait()
		begin(context.Background(), "a", 200)
		denied()
		all.Wait()
		checkEmpty(t, l)
	})
}

// checkEmpty checks that no request waits in a limiter's zones.
func checkEmpty(t *testing.T, l *Limiter) {
	t.Helper()
	for _, z := range l.zones {
		q := &z.common.queue
		if len(q.keys)+len(q.passing) > 0 || q.slots.Load() != 0 || q.queued.Load() != 0 {
			t.Errorf("zone %s: %d keys, %d slots, %d waiting, %d passing, want none", z.Name, len(q.keys), q.slots.Load(), q.queued.Load(), len(q.passing))
		}
	}
}

// timedStore records when it decides, and takes some time.
type timedStore struct {
	memory.Store
	takes time.Duration
	mu    sync.Mutex
	times map[time.Time]int
}

func (s *timedStore) Decide(ctx context.Context, check *stores.Check) {
	s.mu.Lock()
	if s.times == nil {
		s.times = make(map[time.Time]int)
	}
	s.times[time.Now()]++
	s.mu.Unlock()
	if s.takes > 0 {
		time.Sleep(s.takes)
	}
	s.Store.Decide(ctx, check)
}

// holdElsewhere adds n permits to those that a key holds, as another instance would.
func holdElsewhere(s *memory.Store, z *Zone, k string, n int64) {
	var encoded key.Encoded
	encoded.Reset()
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("X-Key", k)
	z.Config.Plan.Encode(&encoded, r)
	s.Permits.Add(&stores.ZoneCheck{Counter: &stores.Counter{Terms: stores.Terms{Zone: z.Name}}, Subject: stores.Subject{Key: z.store.Hasher.Hash(encoded.Bytes())}}, n, 0)
}

// TestNewcomersDoNotOvertake has requests arrive after another instance has released a
// permit, and before the one that waits for it has noticed. They queue behind it, and one
// whose time ends there is denied, although the permit is free.
func TestNewcomersDoNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memory.Store{Clock: clock.Now}
		patient := newTestLimiter(t, s, &config.Zone{Name: "z", InFlight: 1, MaxWait: caddy.Duration(time.Minute)})
		hasty := newTestLimiter(t, s, &config.Zone{Name: "z", InFlight: 1, MaxWait: caddy.Duration(time.Millisecond)})
		hasty.zones[0].common = patient.zones[0].common // as their stores are those of one configuration
		hasty.zones[0].store = patient.zones[0].store
		holdElsewhere(s, patient.zones[0], "a", 1)
		var all sync.WaitGroup
		var order []string
		begin := func(name string, l *Limiter, want int) {
			all.Go(func() {
				status := ask(context.Background(), l, "a", handlerFunc(func(http.ResponseWriter, *http.Request) error {
					order = append(order, name)
					time.Sleep(time.Second)
					return nil
				}))
				if status != want {
					t.Errorf("%s: status %d, want %d", name, status, want)
				}
			})
			synctest.Wait()
		}
		begin("first", patient, 200)
		time.Sleep(500 * time.Millisecond)
		holdElsewhere(s, patient.zones[0], "a", -1)
		begin("second", patient, 200)
		begin("hasty", hasty, 429)
		all.Wait()
		if fmt.Sprint(order) != "[first second]" {
			t.Errorf("served in the order %v", order)
		}
		checkEmpty(t, patient)
	})
}

// TestPermitsOfOtherInstances releases permits that another instance holds. A waiting
// request goes on within 100 ms, and those of all keys ask at the same times.
func TestPermitsOfOtherInstances(t *testing.T) {
	for i := range 8 { // there is one poll at least between any two of these times
		held := 1234*time.Millisecond + time.Duration(i)*pollEvery
		t.Run(held.String(), func(t *testing.T) { testPermitsOfOtherInstances(t, held) })
	}
}

func testPermitsOfOtherInstances(t *testing.T, held time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := &timedStore{Store: memory.Store{Clock: clock.Now}}
		l := newTestLimiter(t, s, &config.Zone{Name: "z", InFlight: 1, MaxWait: caddy.Duration(time.Minute)},
			&config.Zone{Name: "other", Key: config.Parts{"all", "{http.request.header.X-Key}"}, KeyMissing: key.MissingShare, InFlight: 1, MaxWait: caddy.Duration(time.Minute)})
		const keys = 40
		hold := func(n int64) {
			for i := range keys {
				holdElsewhere(&s.Store, l.zones[i%2], fmt.Sprint(i), n)
			}
		}
		hold(1)
		var all sync.WaitGroup
		begun := time.Now()
		const apart = 7 * time.Millisecond
		for i := range keys {
			all.Go(func() {
				time.Sleep(time.Duration(i) * apart)
				status := ask(context.Background(), l, fmt.Sprint(i), takes(0))
				if waited := time.Since(begun); status != 200 || waited < held || waited > held+100*time.Millisecond {
					t.Errorf("status %d after %v, want 200 within 100ms of %v", status, waited, held)
				}
			})
		}
		time.Sleep(keys * apart)
		s.mu.Lock()
		s.times = nil // all wait
		s.mu.Unlock()
		time.Sleep(held - keys*apart)
		hold(-1)
		all.Wait()
		asks := 0
		for _, n := range s.times {
			asks += n
		}
		t.Logf("%d asks at %d times", asks, len(s.times))
		if most := int((held-keys*apart)/pollEvery) + 3; len(s.times) > most {
			t.Errorf("asked at %d times, want at most %d", len(s.times), most)
		}
		checkEmpty(t, l)
	})
}

// TestNewcomerThatNeedNotWait checks that a request behind others is denied at once if it
// would be denied anyway, and that nothing is charged for it.
func TestNewcomerThatNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{Name: "z", InFlight: 1, MaxWait: caddy.Duration(10 * time.Second)},
			&config.Zone{Name: "rule", Rules: []*config.Rule{{Limit: 2, Window: config.Window{Duration: time.Hour}}}})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if status := ask(context.Background(), l, "a", takes(5*time.Second)); status != 200 {
					t.Errorf("status %d, want 200", status)
				}
			})
			synctest.Wait()
		}
		// One has passed, the second waits, and may use up the rule.
		all.Go(func() {
			begun := time.Now()
			if status := ask(context.Background(), l, "a", takes(0)); status != 429 || time.Since(begun) != 5*time.Second {
				t.Errorf("status %d after %v, want 429 once the one before is admitted", status, time.Since(begun))
			}
		})
		time.Sleep(6 * time.Second)
		begun := time.Now()
		if status := ask(context.Background(), l, "a", takes(0)); status != 429 || time.Since(begun) > 0 {
			t.Errorf("status %d after %v, want 429 at once", status, time.Since(begun))
		}
		all.Wait()
		checkEmpty(t, l)
	})
}

// TestWaiterWhoseTimeEnds checks that a request that only peeked is denied when its time
// has passed behind others.
func TestWaiterWhoseTimeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{Name: "z", InFlight: 1, MaxWait: caddy.Duration(time.Second)})
		served, took := askMany(l, 4, takes(10*time.Second))
		if served != 1 || took != 10*time.Second {
			t.Errorf("%d served in %v, want one", served, took)
		}
		checkEmpty(t, l)
	})
}

// TestWaiterMovesToTheQueueOfAnotherZone checks that a request that another zone denies
// once it has waited for the first goes on as soon as that one has a permit.
func TestWaiterMovesToTheQueueOfAnotherZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone := func(name string) *config.Zone {
			return &config.Zone{Name: name, InFlight: 1, MaxWait: caddy.Duration(time.Minute)}
		}
		both := newTestLimiter(t, nil, zone("one"), zone("two"))
		var all sync.WaitGroup
		for i, d := range []time.Duration{time.Second, 2500 * time.Millisecond} {
			l := newTestLimiter(t, nil, zone(both.zones[i].Name))
			l.zones[0].store, l.zones[0].common = both.zones[i].store, both.zones[i].common // as in one configuration
			all.Go(func() { ask(context.Background(), l, "a", takes(d)) })
		}
		synctest.Wait()
		begun := time.Now()
		if status := ask(context.Background(), both, "a", takes(0)); status != 200 || time.Since(begun) != 2500*time.Millisecond {
			t.Errorf("status %d after %v, want 200 after 2.5s", status, time.Since(begun))
		}
		all.Wait()
		checkEmpty(t, both)
	})
}

// TestDelayedRequestsAreBounded fills a zone with requests that a leaky_bucket delays.
// One more is denied and not charged; one that need not wait is served.
func TestDelayedRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &timedStore{Store: memory.Store{Clock: clock.Now}}
		l := newTestLimiter(t, s, &config.Zone{
			Name: "z", Algorithm: "leaky_bucket", MaxWait: caddy.Duration(time.Hour),
			Rules: []*config.Rule{{Limit: 60, Window: config.Window{Duration: time.Hour}}},
		})
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for i := range zoneWaiting + zoneWaiting/50 {
			all.Go(func() { ask(ctx, l, fmt.Sprint(i%(zoneWaiting/50)), takes(0)) })
		}
		synctest.Wait()
		if n := l.zones[0].common.queue.slots.Load(); n != zoneWaiting {
			t.Errorf("%d wait, want %d", n, zoneWaiting)
		}
		for range 3 { // a denied request is not charged, so that the next wait is the same
			begun := time.Now()
			if status := ask(context.Background(), l, "0", takes(0)); status != 429 || time.Since(begun) > 0 {
				t.Errorf("status %d after %v, want 429 at once", status, time.Since(begun))
			}
		}
		s.takes = time.Millisecond // they are decided at the same time
		var passed, denied atomic.Int64
		for range 5 { // of a key that nobody waits for: one need not wait
			all.Go(func() {
				switch ask(context.Background(), l, "new", takes(0)) {
				case 200:
					passed.Add(1)
				case 429:
					denied.Add(1)
				}
			})
		}
		time.Sleep(time.Second)
		if p, d := passed.Load(), denied.Load(); p != 1 || d != 4 {
			t.Errorf("%d of a new key passed and %d were denied, want 1 and 4", p, d)
		}
		if q := &l.zones[0].common.queue; q.slots.Load() != zoneWaiting || len(q.passing) != 0 {
			t.Errorf("%d wait, %d beside, want %d", q.slots.Load(), len(q.passing), zoneWaiting)
		}
		cancel()
		all.Wait()
		checkEmpty(t, l)
	})
}

// TestOneSlotForDelayAndWait has requests wait for a rule in a zone whose leaky_bucket may delay them, too: each takes one
// slot.
func TestOneSlotForDelayAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{
			Name: "z", MaxWait: caddy.Duration(time.Minute), Rules: []*config.Rule{
				{Limit: 100, Window: config.Window{Duration: time.Second}, AlgorithmRaw: []byte(`{"name": "leaky_bucket"}`)},
				{Limit: 1, Window: config.Window{Duration: time.Second}},
			},
		})
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				if status := ask(context.Background(), l, "a", takes(0)); status != 200 {
					t.Errorf("status %d", status)
				}
			})
		}
		synctest.Wait()
		if n := l.zones[0].common.queue.slots.Load(); n != 5 {
			t.Errorf("%d slots of 5 requests that wait", n)
		}
		all.Wait()
		checkEmpty(t, l)
	})
}

// TestMaxWaitingOfLeakyBucket checks that max_waiting bounds the queue of a leaky_bucket
// exactly, beside the request that leaves at once.
func TestMaxWaitingOfLeakyBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{
			Name: "z", Algorithm: "leaky_bucket", MaxWait: caddy.Duration(time.Hour), MaxWaiting: 3,
			Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: time.Second}}},
		})
		if served, took := askMany(l, 20, takes(0)); served != 4 || took != 3*time.Second {
			t.Errorf("%d served in %v, want 4 in 3s", served, took)
		}
		checkEmpty(t, l)
	})
}

// TestHeldCostIsWaitedFor checks that a request that count_status denies because of
// requests in flight goes on when they are answered.
func TestHeldCostIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{
			Name: "z", MaxWait: caddy.Duration(700 * time.Millisecond), CountStatus: []config.Value{"5xx"},
			Rules: []*config.Rule{{Limit: 2, Window: config.Window{Duration: time.Hour}}},
		})
		if served, took := askMany(l, 6, takes(300*time.Millisecond)); served != 6 || took != 900*time.Millisecond {
			t.Errorf("%d served in %v, want 6 in 900ms", served, took)
		}
		checkEmpty(t, l)
	})
}

// contrary is a store whose rules admit, and which denies all the same, as an algorithm of
// another module may whose answers disagree.
type contrary struct {
	memory.Store
	asks int
}

func (s *contrary) Decide(ctx context.Context, check *stores.Check) {
	s.Store.Decide(ctx, check)
	if s.asks++; s.asks <= 1000 { // otherwise the test fails, and ends
		check.Admitted, check.Zones[0].Admits = false, false
	}
}

// TestDenialWithoutTimeIsNotAskedForContinually checks that a request whose denial does not say
// when it ends pauses before it asks again.
func TestDenialWithoutTimeIsNotAskedForContinually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &contrary{Store: memory.Store{Clock: clock.Now}}
		l := newTestLimiter(t, s, &config.Zone{
			Name: "z", MaxWait: caddy.Duration(time.Second),
			Rules: []*config.Rule{{Limit: 1000, Window: config.Window{Duration: time.Hour}}},
		})
		begun := time.Now()
		status := ask(context.Background(), l, "a", takes(0))
		if most := int(time.Second/pollEvery) + 3; status != 429 || time.Since(begun) != time.Second || s.asks > most {
			t.Errorf("status %d after %v, asked %d times; want 429 after 1s, asked %d times at most", status, time.Since(begun), s.asks, most)
		}
		checkEmpty(t, l)
	})
}

// TestSlotsAfterAChangeOfRules has requests wait under rules of which one delays, and then under rules of which none
// does, and the other way around: each that waits has one slot.
func TestSlotsAfterAChangeOfRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{
			Name: "z", MaxWait: caddy.Duration(time.Minute), Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: 10 * time.Second}}},
		})
		delays := []*config.Rule{
			{Limit: 100, Window: config.Window{Duration: time.Second}, AlgorithmRaw: []byte(`{"name": "leaky_bucket"}`)},
			{Limit: 1, Window: config.Window{Duration: 10 * time.Second}},
		}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() { ask(context.Background(), l, "a", takes(0)) })
		}
		synctest.Wait()
		for _, rules := range [][]*config.Rule{delays, l.zones[0].Rules, delays} {
			if err := l.apply(&config.Document{Zones: map[string]*config.Changes{"z": {Rules: rules}}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if q := &l.zones[0].common.queue; q.queued.Load() == 0 || q.slots.Load() != q.queued.Load() {
				t.Errorf("%d slots of %d requests that wait", q.slots.Load(), q.queued.Load())
			}
		}
		all.Wait()
		checkEmpty(t, l)
	})
}
