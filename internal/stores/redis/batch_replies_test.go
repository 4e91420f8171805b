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

// TestBatchedRepliesEqualSingleReplies sends equal and different checks of few keys in one
// call, with clock steps and keys that are known and lost. Each reply and each value in Redis is
// the same as with a call per check. Zones with a queue and other rules are excluded: in a batch,
// their denied checks are decided before the admitted ones.
func TestBatchedRepliesEqualSingleReplies(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: 1_700_000_000_000_000}
	s := newVirtualShared(t, srv, v)
	ctx, r := context.Background(), storekit.Seeded(t)
	gcra := storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 3}, Spec: algorithms.Spec{Limit: 10, Window: 1_000_000, Cost: 1}}
	sliding := storekit.RuleSpec{Alg: &algorithms.SlidingWindow{Buckets: 10}, Spec: algorithms.Spec{Limit: 8, Window: 1_000_000, Cost: 1}}
	log := storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 6, Window: 1_000_000, Cost: 1}}
	queue := storekit.RuleSpec{Alg: &algorithms.LeakyBucket{}, Spec: algorithms.Spec{Limit: 10, Window: 1_000_000, Cost: 1, MaxWait: 500_000}}
	var zones []*stores.Counter
	for i, rules := range [][]storekit.RuleSpec{{gcra}, {sliding}, {log}, {queue}, {gcra, sliding}, {sliding, log, gcra}} {
		zones = append(zones, kit.NewTestCounter(t, fmt.Sprint("z", i), 0, false, nil, rules...))
	}
	for round := range 300 {
		if v.now += r.Int64N(150_000); r.IntN(10) == 0 {
			v.now -= r.Int64N(5_000_000)
		}
		if r.IntN(4) == 0 {
			v.flush(t)
		}
		var batched, single [2][]string // keys and operations
		zone := zones[r.IntN(len(zones))]
		for range 1 + r.IntN(12) {
			if r.IntN(4) == 0 {
				zone = zones[r.IntN(len(zones))]
			}
			k, known := stores.Key{Hi: 1, Lo: uint64(r.IntN(3))}, r.IntN(3) == 0
			for i, prefix := range []string{"batched", "single"} {
				keys, op := encodeCheck(prefix, &stores.Check{Zones: []stores.ZoneCheck{{Counter: zone, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1 + r.Int64N(2)*int64(1-i), StoreOnly: stores.StoreOnly{Known: known}}}})
				if i == 1 {
					op = []byte(batched[1][len(batched[1])-1]) // with the same cost
				}
				both := [2]*[2][]string{&batched, &single}[i]
				both[0], both[1] = append(both[0], keys[0]), append(both[1], string(op))
			}
		}
		want := ""
		for i, key := range single[0] {
			want += v.callScript(t, s, []string{key}, []string{single[1][i]})
		}
		if got := v.callScript(t, s, batched[0], batched[1]); got != want {
			t.Fatalf("round %d: %q in one call:\n%x, in single calls:\n%x", round, batched[0], got, want)
		}
		for i, key := range batched[0] {
			value, want := v.client.Get(ctx, key).Val(), v.client.Get(ctx, single[0][i]).Val()
			if value != want {
				t.Fatalf("round %d: %s is %q, want %q", round, key, value, want)
			}
		}
	}
}

// TestUnknownBehindKnown sends the check of a new key behind an equal one of a key that the
// instance knows, in one call, in a zone with a queue and another rule. The new key is decided,
// and only the known one, which is missing, is lost.
func TestUnknownBehindKnown(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: 1_700_000_000_000_000}
	s := newVirtualShared(t, srv, v)
	c := kit.NewTestCounter(t, "z", 0, false, nil,
		storekit.RuleSpec{Alg: &algorithms.LeakyBucket{}, Spec: algorithms.Spec{Limit: 10, Window: 1_000_000, Cost: 1, MaxWait: 500_000}},
		storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1}})
	for _, known := range [][]bool{{true, false}, {false, true}, {true, false, true, false}} {
		v.flush(t)
		var keys, ops []string
		want := ""
		for i, known := range known {
			k := stores.Key{Hi: 1, Lo: uint64(i)}
			names, op := encodeCheck("diana", &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1, StoreOnly: stores.StoreOnly{Known: known}}}})
			keys, ops = append(keys, names...), append(ops, string(op))
			if known {
				want += string([]byte{flagLost})
			} else {
				want += string([]byte{flagAdmits | flagCharged})
			}
		}
		if got := v.callScript(t, s, keys, ops); got != want {
			t.Errorf("known %v: flags %x, want %x", known, got, want)
		}
	}
}

// callScript sends operations in one call and returns the reply or the error.
func (v *virtual) callScript(t *testing.T, s *Store, keys, ops []string) string {
	t.Helper()
	v.tick()
	var all [][]byte
	for _, op := range ops {
		all = append(all, []byte(op))
	}
	r, err := s.conn.callOnce(context.Background(), keys, all...)
	if r.err != nil || err != nil {
		return fmt.Sprint(r.b, err)
	}
	return r.b
}
