package redis

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
	"github.com/dianalimiter/diana/scripts"
)

// quiet is a Watcher that fails the test on what should not happen.
type quiet struct{ tb testing.TB }

func (quiet) StoreUp(string) {}

func (q quiet) StoreDown(_ string, f Failure, err error) {
	q.tb.Errorf("store down: %s: %v", f, err)
}

func (q quiet) StoreError(_ string, f Failure, err error) { q.tb.Errorf("store error %s: %v", f, err) }
func (quiet) ClockSteps(string)                           {}
func (quiet) Live(string, int)                            {}
func (quiet) StoreWarning(string, string, string)         {}

func newTestShared(tb testing.TB, r *redistest.Server, clock func() int64) *Store {
	tb.Helper()
	s := New(Options{
		Name: "redis", Clock: clock,
		ConnOptions: ConnOptions{
			Addresses: []string{r.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: time.Second,
		},
	}, quiet{tb})
	s.decider.denials = nil // the tests' clocks stand still
	s.Start(0)
	tb.Cleanup(func() { _ = s.Destruct() })
	return s
}

// virtual is a clock that the trace sets, for this process and for Redis: the
// script is the product's, but that it takes the call's number for the time.
type virtual struct {
	now    int64
	client *goredis.Client
	conn   *conn
}

func (v *virtual) clock() int64 { return v.now }

// tick gives the next call the present time.
func (v *virtual) tick() { v.conn.seq.Store(uint64(v.now) - 1) }

// forget empties Redis between traces: their keys outlive them, and a server
// that holds a million of them is slow.
func (v *virtual) forget(tb testing.TB) {
	tb.Helper()
	if err := v.client.FlushDB(context.Background()).Err(); err != nil {
		tb.Fatal(err)
	}
}

// newVirtualShared is a shared store on a virtual clock. Nothing but the trace
// calls its script: a heartbeat in between would take the trace's time.
func newVirtualShared(tb testing.TB, r *redistest.Server, v *virtual) *Store {
	tb.Helper()
	s := New(Options{Name: "redis", Clock: v.clock, ConnOptions: ConnOptions{
		Addresses: []string{r.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: time.Second, Script: virtualScript(tb),
	}}, quiet{tb})
	s.decider.denials = nil // every ask is to come to Redis
	s.start.Do(s.conn.connect)
	tb.Cleanup(func() { _ = s.conn.client.Close() })
	v.conn = s.conn
	return s
}

// newTestConn is a connection without a store, whose clock stands still.
func newTestConn(o ConnOptions) *conn {
	to := &observer{name: "redis"}
	to.set(noObserver{})
	c := newConn(&o, &clock{local: func() int64 { return storestest.Hour }}, newBreaker(func(bool, error) {}), to)
	c.connect()
	return c
}

func virtualScript(tb testing.TB) string {
	tb.Helper()
	return redistest.VirtualTime(tb, scripts.Decide().Text, "unpack('<d', ARGV[1], 1)")
}

// compareAsks fails the test where Redis and the local store differ.
func compareAsks(t *testing.T, what string, check, b *stores.Check) {
	t.Helper()
	if check.Mode != stores.ModeShared {
		t.Fatalf("%s: mode %v", what, check.Mode)
	}
	if check.Admitted != b.Admitted || check.Admitted && check.Turn != b.Turn {
		t.Errorf("%s: redis admitted %v turn %d, local %v turn %d", what, check.Admitted, check.Turn, b.Admitted, b.Turn)
	}
	for i := range check.Zones {
		x, y := &check.Zones[i], &b.Zones[i]
		if x.Admits != y.Admits || x.Charged != y.Charged || x.Full != y.Full {
			t.Errorf("%s: zone %d: redis admits %v charged %v full %v, local %v %v %v", what, i, x.Admits, x.Charged, x.Full, y.Admits, y.Charged, y.Full)
		}
		for k := range x.Results {
			p, q := x.Results[k], y.Results[k]
			if p.Verdict != q.Verdict || p.Remaining != q.Remaining || p.Reset != q.Reset {
				t.Errorf("%s: zone %d rule %d (%T): redis %+v %d %d, local %+v %d %d", what, i, k, x.Rules[k],
					p.Verdict, p.Remaining, p.Reset, q.Verdict, q.Remaining, q.Reset)
			}
		}
	}
}

// compareStates compares the words that Redis keeps for an item with those of
// the local table. They are equal but for where a log's ring lies.
func compareStates(t *testing.T, what string, v *virtual, prefix string, z *stores.ZoneCheck) {
	t.Helper()
	value, err := v.client.Get(context.Background(), namesOf(prefix, z)[0]).Result()
	if err != nil && err != goredis.Nil { //nolint:errorlint // go-redis returns it as it is
		t.Fatal(err)
	}
	states := memory.States(z)
	if value == "" { // never charged; a place alone is kept elsewhere
		for _, s := range states {
			if slices.ContainsFunc(s, func(w int64) bool { return w != 0 }) {
				t.Errorf("%s: redis has no state, the local table %v", what, s)
			}
		}
		return
	}
	if states == nil {
		t.Errorf("%s: redis has a state, the local table none", what)
		return
	}
	r := &reply{b: value}
	r.take(header)
	if prepare(z.Counter).packed.logs {
		r.take(headerLogs - header)
	}
	for i, rule := range z.Counter.Rules {
		local := states[i]
		got := redisState(r, value, rule, v.now)
		want := fmt.Sprint([]int64(local))
		if _, ok := rule.(algorithms.Growing); ok {
			want = fmt.Sprint(liveStamps(local, rule, v.now))
		}
		if got != want {
			t.Errorf("%s: rule %d (%T): redis keeps %s, the local table %s", what, i, rule, got, want)
		}
	}
	if r.err != nil {
		t.Errorf("%s: %v", what, r.err)
	}
}

func redisState(r *reply, value string, rule algorithms.Rule, now int64) string {
	g, ok := rule.(algorithms.Growing)
	if !ok {
		words := make([]int64, rule.Words())
		for i := range words {
			words[i] = r.number()
		}
		return fmt.Sprint(words)
	}
	head := make([]int64, g.View().Words())
	for i := range head {
		head[i] = r.number()
	}
	count, size, offset := head[0], head[1], head[2]
	log := algorithms.State{count}
	for i := range size {
		if ring := (&reply{b: value}); ring.take(int(offset+8*i)) != "" && len(ring.b) >= 8 {
			log = append(log, ring.number())
		} else {
			log = append(log, 0)
		}
	}
	return fmt.Sprint(liveStamps(log, rule, now))
}

// liveStamps are the count and the stamps of a log that are in the window,
// oldest first: what is older may be forgotten or not.
func liveStamps(s algorithms.State, rule algorithms.Rule, now int64) []int64 {
	stamps := []int64{s[0]}
	size := int64(len(s) - 1)
	for i := max(0, s[0]-min(size, rule.Limit())); i < s[0]; i++ {
		if at := s[1+i%size]; at > now-rule.Window() {
			stamps = append(stamps, at)
		}
	}
	return stamps
}

// decideAsk is the ask to decide all items, and the names of its keys.
func decideAsk(prefix string, check *stores.Check) (keys []string, ask []byte) {
	q := newCall(time.Time{}, stores.Key{})
	q.decide(prefix, check)
	for _, n := range q.names {
		keys = append(keys, string(n.b))
	}
	return keys, q.ops[0].b
}
