package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// TestBatchedRepliesEqualSingleReplies sends checks in one call, equal and
// different, for few keys, with clock steps. Each reply is that of a call of
// its own, and leaves the same value. (Queues beside other rules are excluded:
// the checks that such a zone admits are decided after those that it denies.)
func TestBatchedRepliesEqualSingleReplies(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: 1_700_000_000_000_000}
	s := newVirtualShared(t, srv, v)
	ctx, r := context.Background(), storestest.Seeded(t)
	gcra := storestest.RuleSpec{Alg: &algorithms.GCRA{Burst: 3}, Spec: algorithms.Spec{Limit: 10, Window: 1_000_000, Cost: 1}}
	sliding := storestest.RuleSpec{Alg: &algorithms.SlidingWindow{Buckets: 10}, Spec: algorithms.Spec{Limit: 8, Window: 1_000_000, Cost: 1}}
	log := storestest.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 6, Window: 1_000_000, Cost: 1}}
	queue := storestest.RuleSpec{Alg: &algorithms.LeakyBucket{}, Spec: algorithms.Spec{Limit: 10, Window: 1_000_000, Cost: 1, MaxWait: 500_000}}
	var zones []*stores.Counter
	for i, rules := range [][]storestest.RuleSpec{{gcra}, {sliding}, {log}, {queue}, {gcra, sliding}, {sliding, log, gcra}} {
		zones = append(zones, storestest.NewTestCounter(t, fmt.Sprint("z", i), 0, false, nil, rules...))
	}
	for round := range 300 {
		if v.now += r.Int64N(150_000); r.IntN(10) == 0 {
			v.now -= r.Int64N(5_000_000)
		}
		var together, alone [2][]string // keys and asks
		zone := zones[r.IntN(len(zones))]
		for range 1 + r.IntN(12) {
			if r.IntN(4) == 0 {
				zone = zones[r.IntN(len(zones))]
			}
			k := stores.Key{Hi: 1, Lo: uint64(r.IntN(3))}
			for i, prefix := range []string{"together", "alone"} {
				keys, ask := decideAsk(prefix, &stores.Check{Zones: []stores.ZoneCheck{{Counter: zone, Key: k, Tag: k, Cost: 1 + r.Int64N(2)*int64(1-i)}}})
				if i == 1 {
					ask = []byte(together[1][len(together[1])-1]) // with the same cost
				}
				both := [2]*[2][]string{&together, &alone}[i]
				both[0], both[1] = append(both[0], keys[0]), append(both[1], string(ask))
			}
		}
		want := ""
		for i, key := range alone[0] {
			want += v.say(t, s, []string{key}, []string{alone[1][i]})
		}
		if got := v.say(t, s, together[0], together[1]); got != want {
			t.Fatalf("round %d: %q together:\n%x, alone:\n%x", round, together[0], got, want)
		}
		for i, key := range together[0] {
			one, other := v.client.Get(ctx, key).Val(), v.client.Get(ctx, alone[0][i]).Val()
			if one != other {
				t.Fatalf("round %d: %s is %q, alone %q", round, key, one, other)
			}
		}
	}
}

// say is what the script answers to asks.
func (v *virtual) say(t *testing.T, s *Store, keys, asks []string) string {
	t.Helper()
	v.tick()
	var all [][]byte
	for _, a := range asks {
		all = append(all, []byte(a))
	}
	r, err := s.conn.call(context.Background(), keys, all...)
	if r.err != nil || err != nil {
		return fmt.Sprint(r.b, err)
	}
	return r.b
}
