package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// mixedCall is one call for several asks: of a plain zone, one with places, one
// with logs and one of a meter alone, and for each a key whose value something else has written.
func mixedCall(t *testing.T, client *goredis.Client) (keys []string, asks [][]byte, broken []bool) {
	t.Helper()
	sp := algorithms.Spec{Limit: 5, Window: storestest.Hour, Cost: 1}
	for i, c := range []*stores.Counter{
		storestest.NewTestCounter(t, "plain", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: sp}, storestest.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp}),
		storestest.NewTestCounter(t, "places", 3, false, nil, storestest.RuleSpec{Alg: &algorithms.SlidingWindow{}, Spec: sp}),
		storestest.NewTestCounter(t, "logs", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: sp}),
		storestest.NewTestCounter(t, "meter", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: sp}),
	} {
		for j, value := range []any{nil, "", "too short", strings.Repeat("\x00", 800), []string{"a list"}} {
			if c.Zone == "logs" && j == 3 {
				continue // whose length says nothing
			}
			k := stores.Key{Hi: uint64(i), Lo: uint64(j)}
			names, ask := decideAsk("diana", &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Key: k, Tag: k, Cost: 1}}})
			keys, asks, broken = append(keys, names...), append(asks, ask), append(broken, j > 1)
			switch v := value.(type) {
			case string:
				if v != "" {
					client.Set(context.Background(), names[0], v, 0)
				}
			case []string:
				client.RPush(context.Background(), names[0], v)
			}
		}
	}
	return keys, asks, broken
}

// TestForeignValues decides many checks in one call of which some find values
// that are not the script's. Those fail, the others are decided, and no such
// value changes.
func TestForeignValues(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newTestShared(t, srv, func() int64 { return storestest.Hour }), srv.Client()
	keys, asks, broken := mixedCall(t, client)
	for round := range 2 {
		r, err := s.conn.call(context.Background(), keys, asks...)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range broken {
			err := r.failed()
			if (err != nil) != b {
				t.Fatalf("round %d, ask %d: %v, want an error: %v", round, i, err, b)
			}
			if err != nil {
				if classify(err) != FailWrong || !goredis.HasErrorPrefix(err, "WRONGTYPE") {
					t.Errorf("round %d, ask %d: %v is %s, want WRONGTYPE", round, i, err, classify(err))
				}
				continue
			}
			flags := r.byte()
			if flags&^flagSeen != flagAdmits|flagCharged || flags&flagSeen != 0 != (round > 0) {
				t.Fatalf("round %d, ask %d: flags %d, want it charged", round, i, flags)
			}
			places := i >= 5 && i < 10
			if round > 0 {
				r.take([]int{8 + 8*(4+2), 8 + 8*12, 8 * (4 + 4), 8 + 8*4}[(i+1)/5])
			}
			if places {
				r.take(16)
			}
		}
		if len(r.b) > 0 {
			t.Fatalf("round %d: %d bytes to spare", round, len(r.b))
		}
	}
	strange := 0
	for _, k := range keys {
		if v, err := client.Get(context.Background(), k).Result(); err == nil && (v == "too short" || v == strings.Repeat("\x00", 800)) {
			strange++
		}
	}
	if strange != 7 {
		t.Errorf("%d of 7 strange strings are as they were", strange)
	}
}

// TestErrorsOfWholeCalls makes Redis refuse what the second check needs: the
// whole call fails, with the error of Redis.
func TestErrorsOfWholeCalls(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newTestShared(t, srv, func() int64 { return storestest.Hour }), srv.Client()
	s.Observe(ignoring{}) // the heartbeat is refused, too
	keys, asks, _ := mixedCall(t, client)
	if err := client.ConfigSet(context.Background(), "maxmemory", strconv.Itoa(1)).Err(); err != nil {
		t.Fatal(err)
	}
	var failed failedOp
	for _, from := range []int{0, 5, 10} { // a plain ask, one with places, one with logs
		_, err := s.conn.call(context.Background(), keysOf(keys, from), asks[from])
		if classify(err) != FailRefused || errors.As(err, &failed) {
			t.Errorf("ask %d: %v is %s, want %s of the call", from, err, classify(err), FailRefused)
		}
	}
	if _, err := s.conn.call(context.Background(), keys, asks...); classify(err) != FailRefused || errors.As(err, &failed) {
		t.Errorf("all: %v is %s, want %s", err, classify(err), FailRefused)
	}
}

// keysOf are the keys of one of mixedCall's asks.
func keysOf(keys []string, ask int) []string {
	switch {
	case ask < 5:
		return keys[ask : ask+1]
	case ask < 10:
		return keys[5+2*(ask-5):][:2]
	}
	return keys[ask+5:][:1]
}
