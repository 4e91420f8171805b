package redis

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/scripts"
	"github.com/dianalimiter/diana/stores"
)

// strictObserver fails the test on failures.
type strictObserver struct{ tb testing.TB }

func (strictObserver) StoreUp(string, string) {}

func (q strictObserver) StoreDown(_, _ string, f stores.Failure, err error) {
	q.tb.Errorf("store down: %s: %v", f, err)
}

func (q strictObserver) StoreError(_ string, f stores.Failure, err error) {
	q.tb.Errorf("store error %s: %v", f, err)
}
func (strictObserver) ClockSteps(string)                         {}
func (strictObserver) Live(string, int)                          {}
func (strictObserver) StoreWarning(string, string, string)       {}
func (strictObserver) Uncharged(string, stores.Uncharged, int64) {}

func newTestShared(tb testing.TB, r *redistest.Server, clock func() int64) *Store {
	tb.Helper()
	s := New(Options{
		Name: "redis", Clock: clock,
		ConnOptions: ConnOptions{
			Addresses: []string{r.Addr}, Prefix: "diana", Timeout: 30 * time.Second, DialTimeout: 30 * time.Second,
		},
	}, strictObserver{tb})
	s.askAlways() // with a constant clock a denial would never expire
	s.Start(0)
	tb.Cleanup(func() { _ = s.Destruct() })
	return s
}

// virtual is a clock that the test sets, for this process and for Redis. The
// script is the product's, except that it reads the time from the call's number.
type virtual struct {
	now    int64
	client *goredis.Client
	conn   *conn
}

func (v *virtual) clock() int64 { return atomic.LoadInt64(&v.now) }

// tick makes the present time the number of the next call.
func (v *virtual) tick() { v.conn.seq.Store(uint64(v.now) - 1) }

// flush deletes all keys between traces, whose virtual time does not expire them:
// a server with a million keys is slow.
func (v *virtual) flush(tb testing.TB) {
	tb.Helper()
	if err := v.client.FlushDB(context.Background()).Err(); err != nil {
		tb.Fatal(err)
	}
}

// newVirtualShared returns a store on a virtual clock, without the background
// maintenance: a heartbeat would use up the number that is the next call's time.
func newVirtualShared(tb testing.TB, r *redistest.Server, v *virtual, changes ...func(*Options)) *Store {
	tb.Helper()
	o := Options{Name: "redis", Clock: v.clock, ConnOptions: ConnOptions{
		Addresses: []string{r.Addr}, Prefix: "diana", Timeout: 30 * time.Second, DialTimeout: 30 * time.Second, Script: virtualScript(tb),
		Lazy: true, // a connection that is opened in the background would drop denials at any time
	}}
	for _, change := range changes {
		change(&o)
	}
	s := New(o, strictObserver{tb})
	s.askAlways() // Redis decides every check
	s.connectOnly()
	tb.Cleanup(s.closeClient)
	v.conn = s.conn
	return s
}

// namesOf returns the names of a zone's keys.
func namesOf(prefix string, z *stores.ZoneCheck) []string {
	names := []string{string(appendName(nil, prefix, z))}
	if readsPermits(z) {
		names = append(names, string(appendPermits(nil, prefix, z)))
	}
	return names
}

// crash forgets what the instance holds, as a process that ends and starts again.
func (s *virtualStore) crash() {
	p := newPermits(s.o.Prefix, new(memory.Permits), s.v.clock)
	s.permits, s.conn.permits, s.renewals.permits, s.decider.permits, s.outages.permits, s.fallback.Held = p, p, p, p, p, p.held
}

// newTestConn returns a conn without a store, on a constant clock.
func newTestConn(o ConnOptions) *conn {
	to := &observer{name: "redis"}
	to.set(silent{})
	clock := func() int64 { return storekit.Hour }
	c := newConn(&o, clock, to, newPermits(o.Prefix, new(memory.Permits), clock))
	c.connect()
	return c
}

// forgetSnapshots makes the store forget the snapshots of a check's keys, so that it puts
// nothing back: its own clock is the same as that of Redis, whose steps it would notice.
func forgetSnapshots(check *stores.Check) {
	for i := range check.Zones {
		if n := memory.TableOf(check.Zones[i].Counter).Snapshots(); n != nil {
			n.Forget(check.Zones[i].Key)
		}
		if blocked := check.Zones[i].Counter.Blocked; blocked != nil {
			blocked.Reset(check.Zones[i].Key)
		}
	}
}

// callOnce calls the script at the first node, whatever the state of its breaker, and
// does not report a failure.
func (c *conn) callOnce(ctx context.Context, keys []string, ops ...[]byte) (reply, error) {
	q := newCall(time.Time{}, stores.Key{})
	q.add(keys, nil)
	q.ops = q.ops[:0]
	for _, op := range ops {
		q.ops = append(q.ops, argument{b: op, zones: 1})
	}
	r, err := c.callAt(ctx, &once{node: &c.nodes.first.server, beat: true}, q)
	if err == nil {
		err = r.failed()
	}
	return r, err
}

func virtualScript(tb testing.TB) string {
	tb.Helper()
	return redistest.VirtualTime(tb, scripts.Decide().Text, "unpack('<d', ARGV[1], 1)")
}

// compareChecks fails the test where the results of Redis and of the local store
// differ.
func compareChecks(t *testing.T, what string, check, local *stores.Check) {
	t.Helper()
	if check.Mode != stores.ModeShared {
		t.Fatalf("%s: mode %v", what, check.Mode)
	}
	if check.Admitted != local.Admitted || check.Admitted && check.Turn != local.Turn {
		t.Errorf("%s: redis admitted %v turn %d, local %v turn %d", what, check.Admitted, check.Turn, local.Admitted, local.Turn)
	}
	for i := range check.Zones {
		x, y := &check.Zones[i], &local.Zones[i]
		if x.Admits != y.Admits || x.Charged != y.Charged || x.Full != y.Full {
			t.Errorf("%s: zone %d: redis admits %v charged %v full %v, local %v %v %v", what, i, x.Admits, x.Charged, x.Full, y.Admits, y.Charged, y.Full)
		}
		if x.Block != y.Block {
			t.Errorf("%s: zone %d: redis has the block %+v, local %+v", what, i, x.Block, y.Block)
		}
		for k := range x.Results {
			p, q := x.Results[k], y.Results[k]
			if p.Verdict != q.Verdict || p.Remaining != q.Remaining || p.Reset != q.Reset || y.WantsMore && p.More != q.More {
				t.Errorf("%s: zone %d rule %d (%T): redis %+v %d %d %d, local %+v %d %d %d", what, i, k, x.Rules[k],
					p.Verdict, p.Remaining, p.Reset, p.More, q.Verdict, q.Remaining, q.Reset, q.More)
			}
		}
	}
}

// compareStates compares the state of a key in Redis with that in the ledger. They are equal except for the offsets of a log's ring.
func compareStates(t *testing.T, what string, v *virtual, l *storekit.Ledger, z *stores.ZoneCheck) {
	t.Helper()
	value, err := v.client.Get(context.Background(), namesOf("diana", z)[0]).Result()
	if err != nil && err != goredis.Nil { //nolint:errorlint // go-redis returns it as it is
		t.Fatal(err)
	}
	states := l.States(z)
	if value == "" { // never charged; permits have a key of their own
		for i, s := range states {
			if _, reset := z.Counter.Rules[i].Numbers(s, v.now); reset > 0 {
				t.Errorf("%s: redis has no state, the ledger %v", what, s)
			}
		}
		return
	}
	if states == nil {
		t.Errorf("%s: redis has a state, the ledger none", what)
		return
	}
	r := &reply{b: value}
	r.next(header)
	if prepare(z.Counter).packed.logs {
		r.next(headerLogs - header)
	}
	for i, rule := range z.Counter.Rules {
		local := states[i]
		got := redisState(r, value, rule, v.now)
		want := fmt.Sprint([]int64(local))
		if _, ok := rule.(algorithms.Growing); ok {
			want = fmt.Sprint(liveStamps(local, rule, v.now))
		}
		if got != want {
			t.Errorf("%s: rule %d (%T): redis has %s, the ledger %s", what, i, rule, got, want)
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
	head := make([]int64, g.Header())
	for i := range head {
		head[i] = r.number()
	}
	count, size, offset := head[0], head[1], head[2]
	log := algorithms.State{count}
	for i := range size {
		if ring := (&reply{b: value}); ring.next(int(offset+8*i)) != "" && len(ring.b) >= 8 {
			log = append(log, ring.number())
		} else {
			log = append(log, 0)
		}
	}
	return fmt.Sprint(liveStamps(log, rule, now))
}

// liveStamps returns the stamps of a log that are in the window, oldest first. Older
// stamps may remain in one ring and not in the other.
func liveStamps(s algorithms.State, rule algorithms.Rule, now int64) []int64 {
	return lastStamps(s, rule.Limit(), now-rule.Window())
}

// lastStamps returns the last stamps of a log that are after edge, at most n.
func lastStamps(s algorithms.State, n, edge int64) (stamps []int64) {
	size := int64(len(s) - 1)
	for i := max(0, s[0]-min(size, n)); i < s[0]; i++ {
		if at := s[1+i%size]; at > edge {
			stamps = append(stamps, at)
		}
	}
	return stamps
}

// encodeCheck returns the operation that decides a check, and the names of its
// keys.
func encodeCheck(prefix string, check *stores.Check) (keys []string, op []byte) {
	q := newCall(time.Time{}, stores.Key{})
	q.decide(prefix, check, nil)
	for _, n := range q.names {
		keys = append(keys, string(n.b))
	}
	for _, r := range q.reports { // the first, of nothing
		copy(q.ops[0].b[r.at+8:], appendNumber(nil, 1))
	}
	return keys, q.ops[0].b
}

// ramping says whether part of a node's keys are still decided without it, after an
// outage.
func (n *node) ramping(now int64) bool {
	back := n.back.Load()
	return back != 0 && now-back < rampLasts
}

// answers closes the breaker of a node. Requests do not wait for debts.
func (n *node) answers() {
	n.breaker.close(n.breaker.opened.Load())
	n.owed.Store(false)
}

// current returns the connections that are open.
func (l *connTracker) current() map[*trackedConn]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.open)
}

// State, CallStats and LeaseStats are parts of the Status.
func (s *Store) State() (up bool, since time.Time, down []stores.NodeDown) {
	status := s.Status()
	return status.Up, status.Since, status.Down
}

func (s *Store) CallStats() stores.CallStats { return s.Status().Calls }

func (s *Store) LeaseStats() (sum stores.LeaseStats, has bool) {
	if leases := s.Status().Leases; leases != nil {
		return *leases, true
	}
	return sum, false
}
