package redis

import (
	"context"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// stickyCaller calls the script over a connection that it may keep.
type stickyCaller struct {
	*conn
	*faultHook
	keys []string
	op   []byte
}

func newStickyCaller(t *testing.T, srv *redistest.Server, size int) *stickyCaller {
	t.Helper()
	c := newTestConn(ConnOptions{Addresses: []string{srv.Addr}, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second, PoolSize: size})
	t.Cleanup(func() { _ = c.client.Close() })
	s := &stickyCaller{conn: c, faultHook: new(faultHook)}
	c.client.AddHook(s.faultHook)
	s.keys, s.op = encodeCheck("sticky", storekit.CheckOfKey(kit.NewTestCounter(t, "sticky", 0, false, nil, eachAlgorithm()["gcra"]), 1))
	return s
}

func (s *stickyCaller) call() error {
	r, err := s.callAt(context.Background(), &once{node: &s.nodes.first.server}, s.newCall())
	if err == nil {
		err = r.failed()
	}
	return err
}

func (s *stickyCaller) newCall() *call {
	q := newCall(time.Time{}, stores.Key{})
	q.add(s.keys, s.op)
	return q
}

// scriptCalls returns how often Redis has run scripts.
func (s *stickyCaller) scriptCalls(t *testing.T) string {
	t.Helper()
	info, err := s.client.InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(info["Commandstats"]["cmdstat_evalsha"], ",")
	return text
}

// fromPool returns how often a connection was asked of the pool.
func (s *stickyCaller) fromPool() uint32 {
	p := s.client.PoolStats()
	return p.Hits + p.Misses
}

// kept returns how many connections stay with the calls. The pool lends all others, or the test fails.
func (s *stickyCaller) kept(t *testing.T) (n int) {
	t.Helper()
	if s.sticky != nil {
		if len(s.sticky.free) != callsInFlight {
			t.Errorf("%d holders of connections are free, want %d", len(s.sticky.free), callsInFlight)
		}
		for _, k := range s.sticky.free {
			if k.conn != nil {
				n++
			}
		}
	}
	for range s.pool - n {
		lent := s.client.(*goredis.Client).Conn()
		defer func() { _ = lent.Close() }()
		if err := lent.Ping(context.Background()).Err(); err != nil {
			t.Fatalf("a pool of %d, of which %d are kept, does not lend the others: %v", s.pool, n, err)
		}
	}
	return n
}

// TestStickyConnection makes calls one after the other. They do not ask the pool, of which they keep one
// connection, unless that is too small.
func TestStickyConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for size, want := range map[int]int{leastForSticky: 1, leastForSticky - 1: 0} {
		s := newStickyCaller(t, srv, size)
		const calls = 200
		for range calls {
			if err := s.call(); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.fromPool(); (n < calls) != (want > 0) {
			t.Errorf("a pool of %d was asked for %d calls of %d", size, n, calls)
		}
		if n := s.kept(t); n > want {
			t.Errorf("of a pool of %d %d are kept, want at most %d", size, n, want)
		}
	}
}

// stick makes calls until one has kept its connection, and returns its holder.
func (s *stickyCaller) stick(t *testing.T) *holder {
	t.Helper()
	p := &s.sticky.free[callsInFlight-1]
	for p.conn == nil || p.changes != s.nodes.first.tracker.changes.Load() {
		if err := s.call(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// arrival is how long the end of a connection may take to arrive.
const arrival = 50 * time.Millisecond

// TestStickyConnectionIsLookedAt has the server close all connections while no call is made. No call fails: the
// pool finds out, and opens another connection.
func TestStickyConnectionIsLookedAt(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newStickyCaller(t, srv, 0)
	for range 5 {
		s.stick(t)
		srv.Client().ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes")
		time.Sleep(arrival)
		if err := s.call(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStickyConnectionIsRetired retires the connections, or closes one, between two calls that follow each
// other at once. The second is made over another, as if the pool had been asked. So is one after a call that failed.
func TestStickyConnectionIsRetired(t *testing.T) {
	t.Parallel()
	s := newStickyCaller(t, redistest.Start(t), 0)
	tracker := s.nodes.first.tracker
	for name, change := range map[string]func(){
		"retired":      func() { tracker.retire(time.Now()) },
		"one is gone":  func() { tracker.remove(new(trackedConn)) },
		"it has erred": func() { s.fault = faultReply; _ = s.call(); s.fault = noFault },
	} {
		for start := time.Now(); time.Since(start) < 5*time.Second; { // until two calls follow each other at once, which a busy machine may prevent
			p := s.stick(t)
			before := *p
			change()
			if err := s.call(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if before.conn == p.conn {
				t.Fatalf("%s: the same connection is used again", name)
			}
			if p.used.Sub(before.used) < stickyFor {
				break
			}
		}
	}
}

// TestStickyConnectionOfEndedContext makes calls whose context has ended. They are not sent, and the connection
// stays open.
func TestStickyConnectionOfEndedContext(t *testing.T) {
	t.Parallel()
	s := newStickyCaller(t, redistest.Start(t), 0)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s.stick(t)
	opened := s.nodes.first.tracker.opened.Load()
	for range 5 {
		s.stick(t)
		calls := s.scriptCalls(t)
		if _, err := s.callAt(ended, &once{node: &s.nodes.first.server}, s.newCall()); err == nil {
			t.Error("a call with a context that has ended did not fail")
		}
		if n := s.scriptCalls(t); n != calls {
			t.Errorf("%s before and %s after a call with a context that has ended", calls, n)
		}
	}
	if n := s.nodes.first.tracker.opened.Load() - opened; n > keptReady {
		t.Errorf("%d connections were opened, want at most the %d that are kept ready", n, keptReady)
	}
}

// TestStickyConnectionsAreBounded makes many calls at once, some of which fail in different ways. The connections of
// those that fail, and of more calls than are in flight at a near node, go back to the pool.
func TestStickyConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newStickyCaller(t, redistest.Start(t), 20)
	seed := rand.Uint64()
	var all sync.WaitGroup
	for round := range 4 {
		s.fault = []fault{noFault, faultReply, noFault, faultOOM}[round]
		for n := range 12 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				for range 50 {
					time.Sleep(time.Duration(r.Int64N(int64(2 * stickyFor))))
					if err := s.call(); (err == nil) != (s.fault == noFault) {
						t.Errorf("seed %d, fault %d: %v", seed, s.fault, err)
					}
				}
			})
		}
		all.Wait()
		s.fault = noFault
		s.kept(t)
	}
}

var idOfClient = regexp.MustCompile(`^id=(\d+) `)

// TestHeartbeatsLookAtThePool closes the connections in the pool while calls keep another. A heartbeat finds
// that out, before a call that needs a second connection does.
func TestHeartbeatsLookAtThePool(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newStickyCaller(t, srv, 0)
	s.stick(t)
	waitFor(t, "the connections that are kept ready", func() bool { return s.nodes.first.tracker.ready.Load() > keptReady })
	p := s.stick(t)
	kept, admin := strconv.FormatInt(p.conn.ClientID(context.Background()).Val(), 10), srv.Client()
	for line := range strings.Lines(admin.ClientList(context.Background()).Val()) {
		if id := idOfClient.FindStringSubmatch(line)[1]; id != kept {
			admin.ClientKillByFilter(context.Background(), "ID", id, "SKIPME", "yes")
		}
	}
	time.Sleep(arrival)
	if _, err := s.callOnce(context.Background(), s.keys, s.op); err != nil { // as a heartbeat
		t.Error(err)
	}
	if s.client.PoolStats().StaleConns == 0 { // or more: the pool opens others meanwhile, which it lends first
		t.Error("no connection was found closed by a heartbeat")
	}
	if p.conn != nil {
		t.Error("a heartbeat leaves a connection that no call has used for long with the calls")
	}
}
