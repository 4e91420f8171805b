package redis

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestManyDebtsAreChargedBeforeRedisDecides ends an outage in which an instance admitted requests of
// 5,000 keys, which take longer than a pass. It decides alone until it has charged them all.
// DIANA_KEYS is another number of keys: the bound of 10 s is for those that a machine can charge.
func TestManyDebtsAreChargedBeforeRedisDecides(t *testing.T) {
	keys := 5000
	if n, err := strconv.Atoi(os.Getenv("DIANA_KEYS")); err == nil {
		keys = n
	}
	srv, ctx, start := redistest.Start(t), context.Background(), time.Now()
	s := New(Options{
		Name: "redis", Clock: func() int64 { return storekit.Hour + time.Since(start).Microseconds() },
		ConnOptions: ConnOptions{Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: time.Second, DialTimeout: time.Second},
	}, silent{})
	t.Cleanup(func() { _ = s.Destruct() })
	c := kit.NewTestCounter(t, "many", 0, false, nil, storekit.RuleSpec{
		Alg: new(algorithms.GCRA), Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1},
	})
	c.Table = memory.NewTable(c.Rules, int64(2*keys))
	decide := func(k uint64) stores.Mode {
		check := storekit.CheckOfKey(c, k)
		s.Decide(ctx, check)
		return check.Mode
	}
	s.Start(1)
	waitFor(t, "Redis to decide", func() bool { return decide(0) == stores.ModeShared })
	srv.Stall()
	for s.conn.anyUsable() {
		decide(0)
	}
	for k := range uint64(keys) {
		decide(k)
	}
	srv.Resume()
	waitFor(t, "Redis to be used", s.conn.anyUsable)
	back := time.Now()
	for decide(0) != stores.ModeShared { // which may owe something until then
		time.Sleep(time.Millisecond)
	}
	switch took, owing := time.Since(back), owes(c); {
	case !owing:
		t.Logf("%d keys charged in %v", keys, took)
	case took < longestPause-time.Second:
		t.Errorf("Redis decides %v after it is back, and is owed yet", took)
	default:
		t.Logf("%d keys not charged in %v: a machine as slow as this is no longer waited for", keys, took)
	}
}

// TestDebtsAreWholeThoughTheShareShrinks counts more instances when Redis is back than there were
// when it went: what this one charged by its greater share is owed as a whole.
func TestDebtsAreWholeThoughTheShareShrinks(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range eachAlgorithm() {
		for _, instances := range []int64{2, 3, 5} {
			f := newFleet(t, srv, 1)
			c := kit.NewTestCounter(t, fmt.Sprint(name, instances), 0, false, nil, spec)
			f.decide(0, c, k, 1)
			f.set(0, faultOOM)
			alone := f.drain(0, c, k)
			f.set(0, noFault)
			f.all[0].setInstances(instances)
			f.v.now += rampLasts
			f.decide(0, c, k, 1)
			check := f.decide(0, c, k, 1)
			drained := int64(0)
			if name == "token_bucket" || name == "leaky_bucket" || name == "gcra" {
				drained = 12 * rampLasts / 60_000_000
			}
			if left := check.Zones[0].Results[0].Remaining; check.Mode != stores.ModeShared || left > drained {
				t.Errorf("%s: after %d of 12 alone, and %d instances: mode %v, remaining %d, want %d at most", name, alone, instances, check.Mode, left, drained)
			}
		}
	}
}

// TestDebtsOfAnEndedException has the exception of a key end in an outage. What the key is charged
// alone by it and, after it, by the zone's greater limit is owed as a whole.
func TestDebtsOfAnEndedException(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range eachAlgorithm() {
		f := newFleet(t, srv, 2)
		of := make(map[int64]*stores.Counter)
		var table stores.Table
		for override, limit := range []int64{120, 12} {
			spec.Spec.Limit = limit
			c := kit.NewTestCounter(t, "ended-"+name, 0, false, table, spec)
			c.Override, c.Overrides, of[int64(override)], table = int64(override), of, c, c.Table
		}
		own, exception := of[0], of[1]
		storekit.Adopt(t, f.all[0], own)
		f.set(0, faultOOM)
		alone := f.drain(0, exception, k)
		alone += f.drain(0, own, k)
		f.set(0, noFault)
		f.all[0].payDebts(t.Context())
		if owes(own) {
			t.Fatalf("%s: owes after it has paid", name)
		}
		spec.Spec.Limit = 120
		if left := f.drain(1, kit.NewTestCounter(t, "ended-"+name, 0, false, nil, spec), k); left > 120-alone {
			t.Errorf("%s: %d are admitted after %d of 120 alone", name, left, alone)
		}
	}
}

// TestDebtThatIsNotSentIsOwed has the call that hands over a debt wait for a new connection until its
// deadline: Redis has certainly not charged it, nor the request, and is owed both.
func TestDebtThatIsNotSentIsOwed(t *testing.T) {
	const limit, alone = 100, 7
	var hangs atomic.Bool
	f := newFleet(t, redistest.Start(t), 1, func(o *Options) {
		o.Timeout = time.Second
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if hangs.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	c := f.counters(t, "unsent", storekit.RuleSpec{Alg: new(algorithms.FixedWindow), Spec: algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1}})[0]
	k, node := stores.Key{Hi: 1, Lo: 2}, f.all[0].conn.nodes.first
	f.decide(0, c, k, 1)
	f.set(0, faultRefused)
	for range alone {
		f.decide(0, c, k, 1)
	}
	f.set(0, noFault)
	f.v.now += rampLasts
	hangs.Store(true)
	node.tracker.retire(time.Now())
	if check := f.decide(0, c, k, 1); check.Mode != stores.ModeFallback {
		t.Fatalf("mode %v without a connection", check.Mode)
	}
	hangs.Store(false)
	node.answers()
	atomic.AddInt64(&f.v.now, rampLasts) // the call that was late has read it
	f.decide(0, c, k, 1)                 // with the debts
	check, want := f.decide(0, c, k, 1), int64(limit-alone-4)
	if left := check.Zones[0].Results[0].Remaining; check.Mode != stores.ModeShared || left != want {
		t.Errorf("%d of %d are left, mode %v: want %d", left, limit, check.Mode, want)
	}
}

// cutConn is a connection whose next call is cut, if that is to be, behind its first bytes.
type cutConn struct {
	net.Conn
	first *atomic.Int64 // how many are sent; negative: it is not cut
}

func (c cutConn) Write(b []byte) (int, error) {
	first := int(c.first.Swap(-1))
	if first < 0 {
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(b[:min(first, len(b)-1)])
	if err == nil {
		err = c.Conn.(*net.TCPConn).CloseWrite()
	}
	if err == nil {
		_, err = c.Conn.Write(b[n:]) // a broken pipe
	}
	return n, err
}

// TestDebtThatIsHalfSentIsOwed has the connection break while the call that hands over a debt is
// written. Redis runs no part of it, and is owed the debt and the request.
func TestDebtThatIsHalfSentIsOwed(t *testing.T) {
	const limit, alone = 100, 7
	srv, k := redistest.Start(t), stores.Key{Hi: 1, Lo: 2}
	for name, spec := range lostSpecs() {
		for _, first := range []int64{0, 1, 300, 1 << 20} {
			var sent atomic.Int64
			sent.Store(-1)
			f := newFleet(t, srv, 1, func(o *Options) {
				o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, address)
					return cutConn{c, &sent}, err
				}
			})
			lost := new(uncharged)
			f.all[0].Observe(lost)
			f.v.now += storekit.Hour / 2
			c := f.counters(t, fmt.Sprint("cut-", name, first), spec)[0]
			f.decide(0, c, k, 1)
			f.set(0, faultOOM)
			for range alone {
				f.decide(0, c, k, 1)
			}
			f.set(0, noFault)
			f.v.now += rampLasts
			sent.Store(first)
			if check := f.decide(0, c, k, 1); check.Mode != stores.ModeFallback || sent.Load() >= 0 {
				t.Fatalf("%s: mode %v on a connection that breaks after %d bytes", name, check.Mode, first)
			}
			f.decide(0, c, k, 1) // with the debts
			check, want := f.decide(0, c, k, 1), int64(limit-alone-4)
			if left := check.Zones[0].Results[0].Remaining; check.Mode != stores.ModeShared || left != want || lost.cost != 0 {
				t.Errorf("%s, cut behind %d bytes: %d of %d are left, mode %v, %d told as uncharged; want %d and none", name, first, left, limit, check.Mode, lost.cost, want)
			}
		}
	}
}

// TestChargesDrainDuringAnOutage has three instances admit 13 of 99 a minute each while Redis is
// away. What has drained meanwhile is not owed: the client has its burst when Redis is back.
func TestChargesDrainDuringAnOutage(t *testing.T) {
	const limit, each = 99, 13
	f := newFleet(t, redistest.Start(t), 3)
	c := f.counters(t, "drains", storekit.RuleSpec{Alg: new(algorithms.GCRA), Spec: algorithms.Spec{Limit: limit, Window: 60_000_000, Cost: 1}})
	k := stores.Key{Hi: 1, Lo: 2}
	f.decide(0, c[0], k, 1)
	f.set(-1, faultRefused)
	for range each {
		f.v.now += 60_000_000 / each
		for i := range f.all {
			if check := f.decide(i, c[i], k, 1); !check.Admitted {
				t.Fatalf("instance %d denied a client below its share", i)
			}
		}
	}
	f.set(-1, noFault)
	for i, s := range f.all {
		s.setTime(f.v.now)
		s.payDebts(context.Background())
		if owes(c[i]) {
			t.Errorf("instance %d owes though its debts are charged", i)
		}
	}
	f.v.now += rampLasts
	least := int64(limit - len(f.all) - 1) // what each has charged last may not have drained
	check := f.decide(0, c[0], k, 1)
	if left := check.Zones[0].Results[0].Remaining; check.Mode != stores.ModeShared || left < least {
		t.Errorf("%d of %d are left, mode %v: want %d at least", left, limit, check.Mode, least)
	}
}
