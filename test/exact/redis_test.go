package exact_test

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/scripts"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// TestRedisAgainstTheOracle runs random traces on the oracle and, as the handler does,
// on both stores: the local table, and the script on a real Redis with virtual time.
// All three must agree.
func TestRedisAgainstTheOracle(t *testing.T) {
	all := newSites(t)
	var sum totals
	for want := operations(t) / 4; sum.verdicts < want; {
		rapid.Check(t, func(t *rapid.T) {
			rules := drawMixed(t)
			compiled, err := compile(rules)
			if err != nil {
				t.Fatalf("%v", err)
			}
			deciders := all.begin(rules, compiled)
			want := oracle.New(rules...)
			tr := newTrace(rapid.Int64Range(1_700_000_000*second, 1<<51).Draw(t, "beginning"), rules, compiled)
			kinds, sizes := requests(t)
			for i := range kinds {
				if kinds[i] == 0 {
					continue
				}
				e := tr.next(kinds[i], sizes[i])
				admit, verdicts := apply(want.Decide, want.Peek, e)
				tr.done(e, admit, verdicts)
				for name, decide := range deciders {
					gotAdmit, got := decide(t, e)
					if gotAdmit != admit || !slices.Equal(got, verdicts) {
						t.Fatalf("%s and oracle differ on the last request:\n%s %v %+v\noracle %v %+v%v", name, name, gotAdmit, got, admit, verdicts, tr)
					}
				}
				sum.add(e, admit, len(rules))
			}
		})
	}
	t.Logf("compared %d verdicts of oracle, local store and Redis on %d requests, of which %d were admitted and %d were peeks",
		sum.verdicts, sum.requests, sum.admitted, sum.peeks)
}

// sites are both stores, with a virtual clock.
type sites struct {
	now    atomic.Int64
	set    func(now int64) error // sets Redis' clock
	local  *memory.Store
	shared *redis.Store
	zones  int
}

func newSites(t *testing.T) *sites {
	srv := redistest.Start(t)
	client, ctx := srv.Client(), context.Background()
	s := &sites{set: func(now int64) error { return client.Set(ctx, "clock", strconv.FormatInt(now, 10), 0).Err() }}
	s.local = &memory.Store{Clock: s.now.Load}
	if err := s.set(0); err != nil { // before the first heartbeat
		t.Fatal(err)
	}
	s.shared = redis.New(redis.Options{
		Name: "redis", Clock: s.now.Load,
		ConnOptions: redis.ConnOptions{
			Addresses: []string{srv.Addr}, Prefix: "exact", Timeout: time.Minute, DialTimeout: time.Minute,
			Script: redistest.VirtualTime(t, scripts.Decide().Text, "tonumber(call('GET', 'clock'))"),
		},
	}, watcher{t})
	t.Cleanup(func() { _ = s.shared.Destruct() })
	return s
}

// begin returns, for each store, a function that decides by the rules for a new key.
func (s *sites) begin(rules []oracle.Rule, compiled []algorithms.Rule) map[string]func(*rapid.T, event) (bool, []oracle.Verdict) {
	s.zones++
	c := counterOf("z"+strconv.Itoa(s.zones), rules, compiled)
	c.Table = memory.NewTable(compiled, 100)
	return map[string]func(*rapid.T, event) (bool, []oracle.Verdict){
		"redis": func(t *rapid.T, e event) (bool, []oracle.Verdict) {
			s.now.Store(e.now)
			if err := s.set(e.now); err != nil {
				t.Fatalf("%v", err)
			}
			s.shared.ResetLocal(nil, stores.Key{}) // every check reaches Redis
			return decideIn(t, s.shared, stores.ModeShared, c, e)
		},
		"local": func(t *rapid.T, e event) (bool, []oracle.Verdict) {
			s.now.Store(e.now)
			return decideIn(t, s.local, stores.ModeLocal, c, e)
		},
	}
}

// decideIn decides in a store as the handler does.
func decideIn(t *rapid.T, s stores.Store, mode stores.Mode, c *stores.Counter, e event) (bool, []oracle.Verdict) {
	k := stores.Key{Hi: 1, Lo: 2}
	a := &stores.Check{Peek: e.peek, Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: e.cost}}}
	s.Decide(context.Background(), a)
	it := &a.Zones[0]
	if a.Mode != mode || a.Now != e.now || it.Charged != (a.Admitted && !e.peek) {
		t.Fatalf("at %d: decided in mode %v at %d, admitted %v and charged %v", e.now, a.Mode, a.Now, a.Admitted, it.Charged)
	}
	var verdicts []oracle.Verdict
	for _, r := range it.Results {
		verdicts = append(verdicts, oracle.Verdict{Admit: r.Admit, Remaining: r.Remaining, RetryAfter: r.Retry, ResetAfter: r.Reset, Delay: r.Delay})
	}
	return a.Admitted && !e.peek, verdicts
}

// watcher fails the test on unexpected events of the store.
type watcher struct{ t *testing.T }

func (watcher) StoreUp(string, string)                    {}
func (watcher) Live(string, int)                          {}
func (watcher) StoreWarning(string, string, string)       {}
func (watcher) Uncharged(string, stores.Uncharged, int64) {}
func (w watcher) ClockSteps(string)                       { w.t.Error("a state was repaired without a clock step") }

func (w watcher) StoreDown(_, _ string, f stores.Failure, err error) {
	w.t.Errorf("store down: %s: %v", f, err)
}

func (w watcher) StoreError(_ string, f stores.Failure, err error) {
	w.t.Errorf("store error: %s: %v", f, err)
}
