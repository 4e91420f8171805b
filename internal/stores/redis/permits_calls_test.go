package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// leave has a call with a check leave, which the test executes and answers.
func (s *virtualStore) leave(c *stores.Counter) (*call, *stores.ZoneCheck) {
	check := storekit.CheckOfKey(c, 1)
	z := &check.Zones[0]
	z.Rules, z.InFlight = c.Rules, c.InFlight
	check.ResetResults()
	q := newCall(time.Time{}, z.Tag)
	q.decide("diana", check, nil)
	return s.send(q), z
}

// leaveEnd ends a request and has the call that reports it leave.
func (s *virtualStore) leaveEnd(z *stores.ZoneCheck, charge int64) *call {
	return s.send(s.endCall(z, charge))
}

// endCall ends a request, and returns the call that is to report it.
func (s *virtualStore) endCall(z *stores.ZoneCheck, charge int64) *call {
	q := newCall(time.Time{}, z.Tag)
	s.permits.end(z, charge, q, nil)
	return q
}

func (s *virtualStore) send(q *call) *call {
	q.batch = []*call{q}
	s.permits.leave(q.batch)
	q.batchArgs(s.conn.script.sha, q.batch)
	return q
}

// execute has Redis execute a call, and returns the reply.
func (s *virtualStore) execute(t *testing.T, q *call) string {
	t.Helper()
	q.head.b = appendNumber(appendNumber(nil, s.v.now), noEnd)
	text, err := s.v.client.Do(context.Background(), q.args...).Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// answer takes the reply to a call.
func (s *virtualStore) answer(q *call, text string) {
	r := reply{b: text[24:]}
	q.cut(&r)
	s.permits.arrive(q.batch, nil)
	q.claim()
}

// newCallStore returns a store whose script is loaded.
func newCallStore(t *testing.T) *virtualStore {
	t.Helper()
	s := newVirtualStore(t)
	s.set(0)
	if err := s.v.client.ScriptLoad(context.Background(), s.conn.script.text).Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCallsOvertake has two checks of a key leave before either is answered, so that both
// report that nothing is held. In either order of execution, as many are admitted as may
// be, and a report of what they hold replaces both.
func TestCallsOvertake(t *testing.T) {
	for permits := int64(1); permits <= 2; permits++ {
		for _, first := range []int{0, 1} {
			s, c := newCallStore(t), inFlightCounter(t, "order", permits)
			var calls [2]*call
			var zones [2]*stores.ZoneCheck
			for i := range calls {
				calls[i], zones[i] = s.leave(c)
			}
			texts := [2]string{}
			texts[first] = s.execute(t, calls[first])
			texts[1-first] = s.execute(t, calls[1-first])
			s.answer(calls[0], texts[0])
			s.answer(calls[1], texts[1])
			name := namesOf("diana", zones[0])[1]
			if !zones[first].Permit.Taken || zones[1-first].Permit.Taken != (permits == 2) || permitsIn(t, s.v.client, name) != permits {
				t.Errorf("%d permits, call %d first: admitted %v and %v, %d in Redis", permits, first,
					zones[0].Permit.Taken, zones[1].Permit.Taken, permitsIn(t, s.v.client, name))
			}
			s.losePermits()
			s.set(1)
			s.renewPermits()
			if n := permitsIn(t, s.v.client, name); n != permits {
				t.Errorf("%d permits, call %d first: %d in Redis after a renewal", permits, first, n)
			}
		}
	}
}

// TestAbandonedCall gives up a check whose call is executed after later reports. It is
// denied and changes nothing. What a call was granted whose caller has left is released
// by the next report.
func TestAbandonedCall(t *testing.T) {
	s, c := newCallStore(t), inFlightCounter(t, "abandoned", 2)
	lost, z := s.leave(c)
	name := namesOf("diana", z)[1]
	s.permits.arrive(lost.batch, errUnanswered)
	s.set(1)
	s.renewPermits() // which tells Redis
	s.execute(t, lost)
	if z := s.at(1, c, 1); !z.Charged || permitsIn(t, s.v.client, name) != 1 {
		t.Errorf("after a call that was given up: charged %v, %d permits", z.Charged, permitsIn(t, s.v.client, name))
	}

	expired, _ := s.leave(c)
	text := s.execute(t, expired)
	r := reply{b: text[24:]}
	expired.cut(&r)
	s.permits.arrive(expired.batch, nil)
	if s.permits.abandon(expired); s.permits.held.Of(z) != (memory.Held{Permits: 1}) {
		t.Errorf("%+v is held after a check was abandoned", s.permits.held.Of(z))
	}
	s.set(2)
	if s.renewPermits(); permitsIn(t, s.v.client, name) != 1 {
		t.Errorf("%d permits after a check was abandoned", permitsIn(t, s.v.client, name))
	}
}

// TestChecksOfOneCall has several checks of a key leave in one call. They share a report.
func TestChecksOfOneCall(t *testing.T) {
	s, c := newCallStore(t), inFlightCounter(t, "call", 4)
	var zones []*stores.ZoneCheck
	var batch []*call
	for range 6 {
		check := storekit.CheckOfKey(c, 1)
		z := &check.Zones[0]
		z.Rules, z.InFlight = c.Rules, c.InFlight
		check.ResetResults()
		q := newCall(time.Time{}, z.Tag)
		q.decide("diana", check, nil)
		batch, zones = append(batch, q), append(zones, z)
	}
	batch[0].batch = batch
	s.permits.leave(batch)
	batch[0].batchArgs(s.conn.script.sha, batch)
	r := reply{b: s.execute(t, batch[0])[24:]}
	for _, q := range batch {
		q.cut(&r)
	}
	s.permits.arrive(batch, nil)
	for i, q := range batch {
		if q.claim(); zones[i].Permit.Taken != (i < 4) {
			t.Errorf("check %d: taken %v", i, zones[i].Permit.Taken)
		}
	}
	if n := permitsIn(t, s.v.client, namesOf("diana", zones[0])[1]); n != 4 || s.permits.number != 1 {
		t.Errorf("%d permits by %d reports, want 4 by 1", n, s.permits.number)
	}
}

// TestReleaseDuringOutage ends requests while Redis is not called. It is told when it is
// called again.
func TestReleaseDuringOutage(t *testing.T) {
	s, c := newVirtualStore(t), holdingCounter(t, "away")
	s.Observe(silent{})
	first, second := s.at(0, c, 1), s.at(0, c, 1)
	name := namesOf("diana", first)[1]
	s.markDown()
	s.Finish(context.Background(), first, 0)
	s.Finish(context.Background(), second, 1)
	s.renewPermits() // Redis is not called
	s.markUp()
	s.payDebts(context.Background()) // nothing, so that requests wait for no debts
	s.permits.lost.Store(0)          // so that only what was released is reported
	s.set(1)
	s.renewPermits()
	if n := permitsIn(t, s.v.client, name); n != 0 || s.holdsPermits() {
		t.Errorf("%d permits in Redis after their release", n)
	}
	expect(t, "after a charge of 1", s.at(2, c, 1), true, 8)
}

// TestGivenUpPermits takes a permit with a reply that cannot be used.
func TestGivenUpPermits(t *testing.T) {
	s, c := newVirtualStore(t), holdingCounter(t, "useless")
	check := storekit.CheckOfKey(c, 1)
	s.set(0)
	s.Decide(context.Background(), check)
	name := namesOf("diana", &check.Zones[0])[1]
	s.permits.giveUp(check)
	s.set(0)
	s.renewPermits()
	if n := permitsIn(t, s.v.client, name); n != 0 || s.holdsPermits() || s.permits.held.Of(&check.Zones[0]) != (memory.Held{}) {
		t.Errorf("%d permits in Redis", n)
	}
}

// TestReplyTellsWhatWasSaid ends a request while a check is under way, and the report of
// that is never sent. The reply to the check does not make up for it.
func TestReplyTellsWhatWasSaid(t *testing.T) {
	s, c := newCallStore(t), holdingCounter(t, "said")
	z := s.at(0, c, 1)
	check, other := s.leave(c)
	end := s.leaveEnd(z, 1)
	s.permits.arrive(end.batch, errOpen)
	s.answer(check, s.execute(t, check))
	s.set(1)
	s.renewPermits()
	if n := permitsIn(t, s.v.client, namesOf("diana", other)[1]); n != 1 {
		t.Errorf("%d permits in Redis, 1 is held", n)
	}
	expect(t, "after a charge of 1, with 1 held", s.at(1, c, 1), true, 7)
}

// TestChargesAreMadeOnce loses the replies to reports that charge a response, and the
// reports themselves. Whichever report arrives charges what those before it did not.
func TestChargesAreMadeOnce(t *testing.T) {
	s := newCallStore(t)
	c := kit.NewTestCounter(t, "once", 5, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1, Overdraws: true}})
	decide := func() *stores.ZoneCheck {
		s.set(0)
		check := storekit.CheckOfKey(c, 1)
		check.Zones[0].Reserve, check.Zones[0].KeepsPermit = true, true // for the sake of another store, as stores.Across does
		s.Decide(context.Background(), check)
		return &check.Zones[0]
	}
	first, second := decide(), decide()
	keep := s.leaveEnd(first, 1) // the reply is lost
	s.execute(t, keep)
	s.permits.arrive(keep.batch, errUnanswered)
	lost := s.leaveEnd(second, 1) // never arrives
	s.permits.arrive(lost.batch, errUnanswered)
	if !first.Permit.Taken || !second.Permit.Taken {
		t.Fatal("a permit ended with its reservation")
	}
	first.Reserve, second.Reserve = false, false
	s.set(0)
	s.Finish(context.Background(), first, 0)
	s.set(0)
	s.Finish(context.Background(), second, 0)
	s.execute(t, keep) // once more
	s.set(0)
	if z := decide(); z.Results[0].Remaining != 97 || !s.holdsPermits() {
		t.Errorf("remaining %d of 100 after two charges of 1, and one held, want 97", z.Results[0].Remaining)
	}
}

// TestCheckChargesFirst ends a request whose report is overtaken by a check. The check
// says what is to be charged, and is judged after that.
func TestCheckChargesFirst(t *testing.T) {
	s := newCallStore(t)
	c := kit.NewTestCounter(t, "first", 5, true, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 2, Window: storekit.Hour, Cost: 1, Overdraws: true}})
	s.at(0, c, 1)
	z := s.at(0, c, 1)
	end := s.leaveEnd(z, 1)
	if z := s.at(0, c, 1); z.Charged || z.Results[0].Remaining != 0 || z.Held != 1 {
		t.Errorf("charged %v, remaining %d, held %d; want the charge made before the verdict", z.Charged, z.Results[0].Remaining, z.Held)
	}
	s.answer(end, s.execute(t, end))
	if z := s.at(0, c, 1); z.Charged || z.Held != 1 {
		t.Errorf("charged %v, held %d after the report arrived", z.Charged, z.Held)
	}
}

// TestUnsureChargesEnd does not learn for 29 s whether a charge was made. Then it is not
// repeated, because the entry that would tell may have lapsed.
func TestUnsureChargesEnd(t *testing.T) {
	s := newCallStore(t)
	var told uncharged
	s.Observe(&told)
	for _, wait := range []float64{28.9, 29.1} {
		c := holdingCounter(t, fmt.Sprint("unsure", wait))
		s.crash()
		z := s.at(0, c, 1)
		end := s.leaveEnd(z, 1)
		s.permits.arrive(end.batch, errUnanswered)
		s.set(wait)
		s.renewPermits()
		if left := s.at(wait, c, 1).Results[0].Remaining; left != 9 && wait > 29 || left != 8 && wait < 29 {
			t.Errorf("after %v s: remaining %d of 10", wait, left)
		}
		want := int64(0)
		if wait > 29 {
			want = 1
		}
		alone := storekit.CheckOfKey(c, 1)
		s.fallback.Decide(alone, nil)
		if left := alone.Zones[0].Results[0].Remaining; left != 7 || told.cost != want {
			t.Errorf("after %v s: %d told as uncharged, %d left alone of 10, with 1 charged and 2 held; want %d and 7", wait, told.cost, left, want)
		}
	}
}

// uncharged sums what may not have been charged.
type uncharged struct {
	noObserver
	cost int64
}

func (o *uncharged) Uncharged(_ string, _ stores.Uncharged, cost int64) { o.cost += cost }

// TestUnsureSinceTheEnd ends a request long after its last report. The charge is repeated
// for as long as any other.
func TestUnsureSinceTheEnd(t *testing.T) {
	s, c := newCallStore(t), holdingCounter(t, "since")
	z := s.at(0, c, 1)
	s.set(9)
	end := s.leaveEnd(z, 1)
	s.permits.arrive(end.batch, errUnanswered)
	s.set(31)
	s.renewPermits()
	if left := s.at(31, c, 1).Results[0].Remaining; left != 8 {
		t.Errorf("remaining %d of 10, with 1 charged and 1 held", left)
	}
}

// TestNumbersRestart charges a key after the numbers of charges have begun again.
func TestNumbersRestart(t *testing.T) {
	s, c := newVirtualStore(t), holdingCounter(t, "restart")
	s.permits.charged = restart
	for i := range int64(3) {
		z := s.at(0, c, 1)
		s.set(0)
		s.Finish(context.Background(), z, 1)
		if want := []int64{0, 1, 2}[i]; s.permits.charged != want {
			t.Errorf("charge %d: the next record begins at %d, want %d", i, s.permits.charged, want)
		}
	}
	expect(t, "after three charges", s.at(0, c, 1), true, 6)
}

// TestPermitsOutliveRulesInRedis changes the window of a rule while requests hold
// permits: they count for the new rules, and renewals keep both.
func TestPermitsOutliveRulesInRedis(t *testing.T) {
	s := newVirtualStore(t)
	counter := func(window int64) *stores.Counter {
		return kit.NewTestCounter(t, "rules", 2, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: window, Cost: 1}})
	}
	before, after := counter(storekit.Hour), counter(2*storekit.Hour)
	first := s.at(0, before, 1)
	s.at(0, after, 1)
	s.v.flush(t)
	s.losePermits()
	s.set(1)
	s.renewPermits()
	if s.at(1, after, 1).Charged || s.at(1, before, 1).Charged {
		t.Error("a third request of 2 was admitted")
	}
	s.set(1)
	s.Finish(context.Background(), first, 0)
	if !s.at(1, after, 1).Charged || s.at(1, before, 1).Charged {
		t.Error("want one request admitted after the release of one permit")
	}
}

// TestLossIsNoticed makes Redis lose its memory. The heartbeat notices, and so does the
// report of another key; then all permits are reported at once.
func TestLossIsNoticed(t *testing.T) {
	for _, how := range []string{"heartbeat", "report"} {
		s := newVirtualStore(t)
		c, other := inFlightCounter(t, "noticed", 2), inFlightCounter(t, "other", 2)
		s.at(0, c, 1)
		z := s.at(0, other, 1)
		s.at(0, other, 1)
		s.set(0)
		if _, err := s.countInstances(context.Background()); err != nil {
			t.Fatal(err)
		}
		s.set(0.5)
		s.renewPermits() // by the first heartbeat
		s.v.flush(t)
		s.set(1)
		if how == "heartbeat" {
			_, _ = s.countInstances(context.Background())
		} else {
			s.Finish(context.Background(), z, 0)
		}
		s.set(1)
		s.renewPermits()
		if n := permitsIn(t, s.v.client, namesOf("diana", &storekit.CheckOfKey(c, 1).Zones[0])[1]); n != 1 {
			t.Errorf("%s: %d permits of the other key after a loss, want 1", how, n)
		}
	}
}

// TestFallbackPermitsAreReported takes and releases permits without Redis. Redis learns
// of both when it is back.
func TestFallbackPermitsAreReported(t *testing.T) {
	s, c := newVirtualStore(t), holdingCounter(t, "reported")
	check := storekit.CheckOfKey(c, 1)
	s.set(0)
	if s.fallback.Decide(check, nil); !check.Admitted {
		t.Fatal("denied")
	}
	name := namesOf("diana", &check.Zones[0])[1]
	for _, want := range []int64{1, 0} {
		s.set(0)
		s.renewPermits()
		if n := permitsIn(t, s.v.client, name); n != want || s.holdsPermits() != (want > 0) {
			t.Errorf("%d permits in Redis, want %d", n, want)
		}
		s.Finish(context.Background(), &check.Zones[0], 0)
	}
}

// TestFallbackKeepsNoRecords takes and releases permits of many keys without Redis, which
// never learns of them. Nothing is kept of them.
func TestFallbackKeepsNoRecords(t *testing.T) {
	s, c := newVirtualStore(t), holdingCounter(t, "many")
	s.Observe(silent{})
	s.markDown()
	for k := range uint64(100) {
		check := storekit.CheckOfKey(c, k)
		s.Decide(context.Background(), check)
		if !check.Admitted || check.Mode != stores.ModeFallback || len(s.permits.records) != 1 {
			t.Fatalf("key %d: %v, %d records", k, check.Mode, len(s.permits.records))
		}
		s.Finish(context.Background(), &check.Zones[0], 1)
	}
	if s.holdsPermits() || oldest(&s.permits.late) != nil || oldest(&s.permits.ages) != nil {
		t.Errorf("%d records", len(s.permits.records))
	}
}

// TestRenewalsPassDeadNode holds permits of many keys in a Cluster of which one node
// dies. Those on the other nodes are renewed.
func TestRenewalsPassDeadNode(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	s := newClusterStore(t, nodes)
	s.Observe(silent{})
	c := inFlightCounter(t, "cluster", 1)
	ctx := context.Background()
	var names []string
	for k := range uint64(40) {
		key := stores.Key{Hi: k * 0x9E3779B97F4A7C15, Lo: k}
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: key, Tag: key}, Cost: 1}}}
		if s.At(key).Decide(ctx, check); check.Mode != stores.ModeShared {
			t.Fatal(check.Mode)
		}
		names = append(names, namesOf("diana", &check.Zones[0])[1])
	}
	for _, n := range nodes {
		if err := n.Client().ConfigSet(ctx, "cluster-require-full-coverage", "no").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range nodes { // the heartbeat's node stays, or this instance would be alone
		if n.Client().Exists(ctx, "diana:{instances}").Val() == 1 {
			nodes[len(nodes)-1], nodes[i] = nodes[i], nodes[len(nodes)-1]
			break
		}
	}
	var alive []string
	for _, n := range nodes[1:] {
		keys, err := n.Client().Keys(ctx, "*:permits").Result()
		if err != nil {
			t.Fatal(err)
		}
		alive = append(alive, keys...)
		for _, k := range keys {
			n.Client().PExpire(ctx, k, 20*time.Second)
		}
	}
	if len(alive) == 0 || len(alive) == len(names) {
		t.Fatalf("%d of %d keys are on other nodes", len(alive), len(names))
	}
	nodes[0].Kill()
	s.losePermits()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		renewed := 0
		for _, n := range nodes[1:] {
			keys, _ := n.Client().Keys(ctx, "*:permits").Result()
			for _, k := range keys {
				if n.Client().PTTL(ctx, k).Val() > 25*time.Second {
					renewed++
				}
			}
		}
		if renewed == len(alive) {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d of %d keys on healthy nodes were renewed", renewed, len(alive))
		}
	}
}
