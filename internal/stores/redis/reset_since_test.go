package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// unchargedObserver adds up what was reported as not charged.
type unchargedObserver struct {
	noObserver
	cost int64
}

func (o *unchargedObserver) Uncharged(_ string, _ stores.Uncharged, cost int64) { o.cost += cost }

// resetFleet is two instances that use a key, of which the first resets it and the second does not
// hear of that. Each may use half of the limit of 100 alone.
type resetFleet struct {
	*fleet
	c         []*stores.Counter
	k         stores.Key
	uncharged *unchargedObserver // of the second
}

func newResetFleet(t *testing.T, srv *redistest.Server, zone string, spec storekit.RuleSpec) *resetFleet {
	t.Helper()
	f := &resetFleet{fleet: newFleet(t, srv, 2), k: stores.Key{Hi: 1, Lo: 2}, uncharged: new(unchargedObserver)}
	f.all[1].Observe(f.uncharged)
	f.v.now = 1_700_000_000_000_000 // later than the rules' windows
	f.c = f.counters(t, zone, spec)
	return f
}

func (f *resetFleet) use(i, n int) (admitted int) {
	for range n {
		if f.decide(i, f.c[i], f.k, 1).Admitted {
			admitted++
		}
	}
	return admitted
}

// later advances the clock by a second.
func (f *resetFleet) later() { f.v.now += 1_000_000 }

func (f *resetFleet) reset(t *testing.T) {
	t.Helper()
	f.later()
	f.all[0].setTime(f.v.now)
	if err := f.all[0].Reset(context.Background(), f.c[0].Zone, f.c[:1], f.k); err != nil {
		t.Fatal(err)
	}
	f.later()
}

// alone has the second instance decide n checks without Redis, and then pay what it owes.
func (f *resetFleet) alone(n int) (admitted int) {
	f.set(1, faultRefused)
	admitted = f.use(1, n)
	f.back()
	return admitted
}

// back ends the outage of the second instance, and has it pay what it owes.
func (f *resetFleet) back() {
	f.set(1, noFault)
	f.v.now += 2 * rampLasts
	f.all[1].setTime(f.v.now)
	f.all[1].payDebts(context.Background())
}

// left returns what Redis has left of the key.
func (f *resetFleet) left(t *testing.T) int64 {
	t.Helper()
	for _, s := range f.all {
		s.setTime(f.v.now)
	}
	check := &stores.Check{Peek: true, Zones: []stores.ZoneCheck{{Counter: f.c[0], Subject: stores.Subject{Key: f.k, Tag: f.k}, Cost: 1}}}
	if f.all[0].Decide(context.Background(), check); check.Mode != stores.ModeShared {
		t.Fatalf("mode %v", check.Mode)
	}
	return check.Zones[0].Results[0].Remaining
}

// names returns the names of the key and of the mark of its reset.
func (f *resetFleet) names() (key, mark string) {
	z := &stores.ZoneCheck{Counter: f.c[0], Subject: stores.Subject{Key: f.k, Tag: f.k}}
	return namesOf("diana", z)[0], resetName("diana", z)
}

// resetSpecs are rules with a limit of 100 in a long time, of which nothing drains in a test.
func resetSpecs() map[string]storekit.RuleSpec {
	all := lostSpecs()
	for name, s := range all {
		s.Spec.Window *= 1000
		all[name] = s
	}
	all["calendar"] = storekit.RuleSpec{Alg: new(algorithms.Calendar), Spec: algorithms.Spec{Limit: 100, Period: algorithms.Month, Window: algorithms.Month.Longest(), Cost: 1}}
	return all
}

// TestDebtAfterAReset has an instance owe what it admits alone after another has reset the key. It
// is charged, but nothing of what the instance knew before.
func TestDebtAfterAReset(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		f := newResetFleet(t, srv, "debt-"+name, spec)
		f.use(1, 20)
		f.reset(t)
		owed := f.alone(30)
		if left := f.left(t); owed == 0 || left != int64(100-owed) || f.uncharged.cost != 0 {
			t.Errorf("%s: %d left in Redis after %d were admitted alone, and %d counted as not charged", name, left, owed, f.uncharged.cost)
		}
		if owed += f.alone(5); f.left(t) != int64(100-owed) {
			t.Errorf("%s: %d left in Redis after %d were admitted in two outages", name, f.left(t), owed)
		}
	}
}

// TestDebtBeforeAReset has an instance owe since before a reset that it does not hear of. What it
// owes is counted as not charged, and what it owes later is charged.
func TestDebtBeforeAReset(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		f := newResetFleet(t, srv, "before-"+name, spec)
		f.use(1, 20)
		f.set(1, faultRefused)
		owed := f.use(1, 10)
		f.reset(t)
		owed += f.use(1, 10)
		f.back()
		if left := f.left(t); left != 100 || f.uncharged.cost != int64(owed) {
			t.Errorf("%s: %d left in Redis, and %d of %d counted as not charged", name, left, f.uncharged.cost, owed)
		}
		f.later()
		if owed = f.alone(5); f.left(t) != int64(100-owed) || owed == 0 {
			t.Errorf("%s: %d left in Redis after %d more were admitted alone", name, f.left(t), owed)
		}
	}
}

// TestDeniedAloneBeforeAReset has an instance deny without Redis before a reset, and owe only what it
// admits after it.
func TestDeniedAloneBeforeAReset(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		f := newResetFleet(t, srv, "denied-"+name, spec)
		f.use(1, 20)
		f.set(1, faultRefused)
		if f.decide(1, f.c[1], f.k, 45).Admitted { // above what is left of the share
			t.Fatalf("%s: admitted", name)
		}
		f.reset(t)
		owed := f.use(1, 10)
		if f.back(); owed != 10 || f.left(t) != 90 || f.uncharged.cost != 0 {
			t.Errorf("%s: %d left in Redis after %d were admitted alone, %d counted as not charged", name, f.left(t), owed, f.uncharged.cost)
		}
	}
}

// TestEvictionAfterAReset evicts a key that was used since its reset. It is put back, also by an
// instance that has not heard of the reset. Of a log that was put back, others know a part.
func TestEvictionAfterAReset(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		for _, evictions := range []int{1, 2} {
			f := newResetFleet(t, srv, fmt.Sprint("evicted-", name, evictions), spec)
			f.use(0, 20)
			f.use(1, 30)
			f.reset(t)
			f.use(1, 10)
			f.later()
			f.use(0, 5)
			f.use(1, 1)
			for n := range evictions {
				f.use(1-n, 1)
				key, _ := f.names()
				f.v.client.Del(context.Background(), key)
				f.later()
				if check := f.decide(1-n, f.c[1-n], f.k, 1); check.Zones[0].Results[0].Remaining != int64(82-2*n) && (n == 0 || name != "sliding_log") {
					t.Errorf("%s: %d left after eviction %d, want %d", name, check.Zones[0].Results[0].Remaining, n+1, 82-2*n)
				}
			}
		}
	}
}

// TestSettledAloneAfterAReset ends a response without Redis, of a request that was admitted before a
// reset: it is charged when it ended, with a hold and without.
func TestSettledAloneAfterAReset(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		for _, hold := range []bool{false, true} {
			f := newResetFleet(t, srv, fmt.Sprint("settled-", name, hold), spec)
			if hold {
				spec.Spec.Overdraws = true
				f.c[1] = kit.NewTestCounter(t, f.c[1].Zone, 0, true, nil, spec)
				f.c[0] = kit.NewTestCounter(t, f.c[1].Zone, 0, true, nil, spec)
			}
			check := f.decide(1, f.c[1], f.k, 10)
			f.reset(t)
			f.set(1, faultRefused)
			f.all[1].markDown()
			f.all[1].Finish(context.Background(), &check.Zones[0], 40)
			f.back()
			f.all[1].renewPermits()
			if left := f.left(t); left != 60 || f.uncharged.cost != 0 {
				t.Errorf("%s, hold %v: %d left after 40 were settled alone, %d counted as not charged", name, hold, left, f.uncharged.cost)
			}
		}
	}
}

// TestMarksOfEarlierVersions finds a mark without a time, and one of a clock that was ahead. What began
// before it is found is refused, and what begins later counts.
func TestMarksOfEarlierVersions(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		for form, value := range map[string]string{"empty": "", "ahead": string(appendNumber(nil, 1<<51))} {
			f := newResetFleet(t, srv, name+form, spec)
			ctx := context.Background()
			f.use(1, 20)
			key, mark := f.names()
			f.v.client.Set(ctx, mark, value, 1<<40)
			f.v.client.Del(ctx, key)
			f.later()
			owed := f.alone(5)
			if left := f.left(t); left != 100 || f.uncharged.cost != int64(owed) {
				t.Errorf("%s, %s: %d left, %d of %d counted as not charged", name, form, left, f.uncharged.cost, owed)
			}
			f.later()
			owed = f.alone(5)
			if left := f.left(t); left != int64(100-owed) || owed == 0 {
				t.Errorf("%s, %s: %d left after %d were admitted alone", name, form, left, owed)
			}
			if ttl := f.v.client.PTTL(ctx, mark).Val(); ttl <= 0 {
				t.Errorf("%s, %s: the mark is kept for %v", name, form, ttl)
			}
		}
	}
}

// TestResetOfAMovingSlot resets a key whose node has not its mark. What is put back between the parts
// of the reset is not older than it.
func TestResetOfAMovingSlot(t *testing.T) {
	srv := redistest.Start(t)
	f := newResetFleet(t, srv, "moving", resetSpecs()["gcra"])
	f.use(1, 20)
	f.later()
	f.set(0, faultMoving)
	f.all[0].setTime(f.v.now)
	if err := f.all[0].Reset(context.Background(), "moving", f.c[:1], f.k); err != nil {
		t.Fatal(err)
	}
	f.set(0, noFault)
	key, mark := f.names()
	if n := f.v.client.Exists(context.Background(), key, mark).Val(); n != 1 {
		t.Errorf("%d of a key that was reset and its mark exist", n)
	}
	f.v.now += 10
	if check := f.decide(1, f.c[1], f.k, 1); check.Zones[0].Results[0].Remaining != 99 {
		t.Errorf("%d left after a reset", check.Zones[0].Results[0].Remaining)
	}
}

// TestBlockAfterAReset blocks a key again after its reset. Redis loses that block, and an instance puts
// it back; one that knows only the block before does not.
func TestBlockAfterAReset(t *testing.T) {
	srv := redistest.Start(t)
	ctx, k := context.Background(), stores.Key{Hi: 1, Lo: 2}
	f, c := blockFleet(t, srv, "again", 3)
	f.drain(0, c[0], k)
	f.wantBlock(t, "told", 2, c[2], k, f.v.now, stores.ModeShared)
	f.v.now += 1_000_000
	f.all[0].setTime(f.v.now)
	if err := f.all[0].Reset(ctx, "again", c[:1], k); err != nil {
		t.Fatal(err)
	}
	f.v.now += 10_000_000
	f.drain(0, c[0], k)
	since := f.v.now
	f.wantBlock(t, "again", 1, c[1], k, since, stores.ModeShared)
	block := blockOf("diana", &stores.ZoneCheck{Counter: c[0], Subject: stores.Subject{Key: k, Tag: k}})
	for i := range 2 {
		f.v.client.Del(ctx, block)
		f.all[i].forgetSaid()
		f.v.now += 2_000_000
		f.wantBlock(t, "evicted", i, c[i], k, since, stores.ModeShared)
	}
	f.v.client.Del(ctx, block)
	f.v.now += 2_000_000
	if check := f.decide(2, c[2], k, 1); !check.Admitted {
		t.Errorf("a block of before the reset was put back: %+v", check.Zones[0].Block)
	}
}
