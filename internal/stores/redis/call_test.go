package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// mixedCall returns the keys and operations of a call that checks several kinds of
// zones: plain ones, with permits, with logs, and with a single meter. Of each kind,
// some keys hold values that the script did not write: those operations fail.
func mixedCall(t *testing.T, client *goredis.Client) (keys []string, ops [][]byte, fail []bool) {
	t.Helper()
	sp := algorithms.Spec{Limit: 5, Window: storekit.Hour, Cost: 1}
	for i, c := range []*stores.Counter{kit.NewTestCounter(t, "plain", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: sp}, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp}), kit.NewTestCounter(t, "permits", 3, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingWindow{}, Spec: sp}), kit.NewTestCounter(t, "logs", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: sp}), kit.NewTestCounter(t, "meter", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: sp})} {
		for j, value := range []any{nil, "", "too short", strings.Repeat("\x00", 800), []string{"a list"}} {
			if c.Zone == "logs" && j == 3 {
				continue // a valid length of a log
			}
			k := stores.Key{Hi: uint64(i), Lo: uint64(j)}
			names, op := encodeCheck("diana", &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}})
			keys, ops, fail = append(keys, names...), append(ops, op), append(fail, j > 1)
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
	return keys, ops, fail
}

// TestForeignValues decides many checks in one call, some with keys that hold values
// of another program. Those fail, the others are decided, and no such value changes.
func TestForeignValues(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newTestShared(t, srv, func() int64 { return storekit.Hour }), srv.Client()
	keys, ops, fail := mixedCall(t, client)
	for round := range 2 {
		r, err := s.conn.callOnce(context.Background(), keys, ops...)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range fail {
			err := r.failed()
			if (err != nil) != want {
				t.Fatalf("round %d, operation %d: %v, want an error: %v", round, i, err, want)
			}
			if err != nil {
				if classify(err) != stores.FailWrong || !goredis.HasErrorPrefix(err, "WRONGTYPE") {
					t.Errorf("round %d, operation %d: %v is %s, want WRONGTYPE", round, i, err, classify(err))
				}
				continue
			}
			flags := r.byte()
			if flags&^(flagSeen|flagMissing) != flagAdmits|flagCharged || flags&flagSeen != 0 != (round > 0) {
				t.Fatalf("round %d, operation %d: flags %d, want it charged", round, i, flags)
			}
			permits := i >= 5 && i < 10
			if round > 0 {
				r.next([]int{8 + 8*(4+2), 8 + 8*12, 8 * (4 + 13), 8 + 8*4}[(i+1)/5])
			}
			if permits {
				r.next(16)
			}
		}
		if len(r.b) > 0 {
			t.Fatalf("round %d: %d excess bytes", round, len(r.b))
		}
	}
	unchanged := 0
	for _, k := range keys {
		if v, err := client.Get(context.Background(), k).Result(); err == nil && (v == "too short" || v == strings.Repeat("\x00", 800)) {
			unchanged++
		}
	}
	if unchanged != 7 {
		t.Errorf("%d of 7 foreign strings are unchanged", unchanged)
	}
}

// TestErrorsOfWholeCalls has Redis reply with an error to a command of the script.
// The whole call fails, with that error.
func TestErrorsOfWholeCalls(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newTestShared(t, srv, func() int64 { return storekit.Hour }), srv.Client()
	s.Observe(silent{}) // heartbeats fail as well
	keys, ops, _ := mixedCall(t, client)
	if err := client.ConfigSet(context.Background(), "maxmemory", strconv.Itoa(1)).Err(); err != nil {
		t.Fatal(err)
	}
	var failed failedOp
	for _, from := range []int{0, 5, 10} { // a plain zone, one with permits, one with logs
		_, err := s.conn.callOnce(context.Background(), keysOf(keys, from), ops[from])
		if classify(err) != stores.FailRejected || errors.As(err, &failed) {
			t.Errorf("operation %d: %v is %s, want %s of the call", from, err, classify(err), stores.FailRejected)
		}
	}
	if _, err := s.conn.callOnce(context.Background(), keys, ops...); classify(err) != stores.FailRejected || errors.As(err, &failed) {
		t.Errorf("all: %v is %s, want %s", err, classify(err), stores.FailRejected)
	}
}

// keysOf returns the keys of one of mixedCall's operations.
func keysOf(keys []string, op int) []string {
	switch {
	case op < 5:
		return keys[op : op+1]
	case op < 10:
		return keys[5+2*(op-5):][:2]
	}
	return keys[op+5:][:1]
}
