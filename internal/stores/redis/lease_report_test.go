package redis

import (
	"context"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// laterFail makes all script calls of a client fail but the first.
type laterFail struct{ calls atomic.Int64 }

func (*laterFail) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h *laterFail) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if cmd.Name() == "evalsha" && h.calls.Add(1) > 1 {
			write(cmd)
			cmd.SetErr(context.DeadlineExceeded)
			return context.DeadlineExceeded
		}
		return next(ctx, cmd)
	}
}

func (*laterFail) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// TestLeaseOfLostKey requests a lease of a key that Redis has lost, and is not answered when it
// asks again. Nothing was granted, and nothing was reported.
func TestLeaseOfLostKey(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, c := f.all[0], f.counter("lost", perSecond(1000))
	f.decide(s, storekit.CheckOf(1, c))
	f.flush(t)
	requestMostLease(s, &storekit.CheckOf(1, c).Zones[0], 100)
	s.hook(new(laterFail))
	f.decide(s, storekit.CheckOf(1, c))
	if x := s.leasing.leases.at(&storekit.CheckOf(1, c).Zones[0]); x.left(f.now) != 0 || x.thin {
		t.Errorf("%d is leased, thin %v", x.left(f.now), x.thin)
	}
	for range 3 {
		f.decide(s, storekit.CheckOf(1, c))
	}
}

// TestLeaseOfBlockedKey requests a lease of a key that another instance has blocked. When the
// block is over, a request arrives while another one requests a lease.
func TestLeaseOfBlockedKey(t *testing.T) {
	f := newLeasingFleet(t, 2)
	c := f.counter("blocked", perSecond(100))
	c.Blocks, c.Blocked = []int64{2 * storekit.Hour}, memory.NewBlocks(1000)
	for check := storekit.CheckOf(1, c); ; check = storekit.CheckOf(1, c) {
		if f.decide(f.all[0], check); !check.Admitted {
			break
		}
	}
	other := f.all[1]
	f.decide(other, storekit.CheckOf(1, f.counter("another", perSecond(100)))) // leases end with a new connection
	z := &storekit.CheckOf(1, c).Zones[0]
	requestMostLease(other, z, 50)
	if check := storekit.CheckOf(1, c); !f.decide(other, check) || check.Admitted || check.Zones[0].Block.Until == 0 {
		t.Fatalf("%+v, want it blocked by Redis", check)
	}
	f.now += 3 * storekit.Hour
	x := other.leasing.leases.at(z)
	x.asked = f.now // by a request whose call is under way
	check := storekit.CheckOf(1, c)
	if f.decide(other, check); !check.Admitted {
		t.Errorf("%+v, want it admitted after the block", check)
	}
}

// TestLeaseOfALostSlotIsCounted has another key take the slot of a lease before its reply comes. The lease is
// lost, and Redis has charged it: it counts as granted, once, and as not spent.
func TestLeaseOfALostSlotIsCounted(t *testing.T) {
	sp := storekit.RuleSpec{Alg: new(algorithms.GCRA), Spec: algorithms.Spec{Limit: 100_000, Window: 1_000_000, Cost: 1, Lease: 50_000}}
	l, c := &leases{lasts: 50_000}, kit.NewTestCounter(t, "z", 0, false, nil, sp)
	of := func(k uint64) *stores.ZoneCheck {
		return &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: k << 20}}, Cost: 1}
	}
	first, other := of(1), of(2)
	for k := uint64(3); l.at(other) != l.at(first); k++ {
		other = of(k)
	}
	now := int64(1_000_000_000)
	for ; first.Lease.Want == 0; now += 10 {
		first.Lease.Want = l.draw(first, now, 1).want
	}
	first.Charged, first.Lease.Granted = true, first.Lease.Want
	l.draw(other, now+2*l.lasts, 1)
	l.answered(first, now, now, 1, false)
	if sum := l.stats(); sum.Times != 1 || sum.Granted != uint64(first.Lease.Granted) || sum.Spent != 0 {
		t.Errorf("%+v, want a lease of %d", sum, first.Lease.Granted)
	}
	if a := l.draw(other, now+2*l.lasts, 1); a.drawn {
		t.Error("a cost was drawn from the lease of another key")
	}
}
