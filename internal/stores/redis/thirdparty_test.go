package redis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

func init() {
	for _, a := range []caddy.Module{new(goodAlgorithm), new(unfinishedAlgorithm), new(failingAlgorithm)} {
		caddy.RegisterModule(a)
	}
}

// Third-party algorithms: one that works, one whose Lua does not compile and one whose Lua
// fails when it runs. All are gcra in Go.
type (
	goodAlgorithm       struct{ algorithms.GCRA }
	unfinishedAlgorithm struct{ algorithms.GCRA }
	failingAlgorithm    struct{ algorithms.GCRA }
)

func testModule(name string, a caddy.Module) caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: caddy.ModuleID(algorithms.Namespace + "." + name), New: func() caddy.Module { return a }}
}

func (*goodAlgorithm) CaddyModule() caddy.ModuleInfo {
	return testModule("test_good", new(goodAlgorithm))
}
func (a *goodAlgorithm) Lua() string { return a.GCRA.Lua() + "\n-- of another module\n" }

func (*unfinishedAlgorithm) CaddyModule() caddy.ModuleInfo {
	return testModule("test_unfinished", new(unfinishedAlgorithm))
}
func (*unfinishedAlgorithm) Lua() string { return "return function(v, i)\n  local x = = 1\nend" }

func (*failingAlgorithm) CaddyModule() caddy.ModuleInfo {
	return testModule("test_failing", new(failingAlgorithm))
}
func (*failingAlgorithm) Lua() string { return "return function(v, i)\n  return v.x.y\nend" }

// errorObserver records the failures of a store.
type errorObserver struct {
	noObserver
	mu     sync.Mutex
	errors []string
}

func (o *errorObserver) StoreError(_ string, f stores.Failure, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errors = append(o.errors, string(f)+" "+err.Error()+": "+advice(f, err))
}

// sinceLast returns the failures since the last call.
func (o *errorObserver) sinceLast() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.errors = nil }()
	return strings.Join(o.errors, "\n")
}

// TestBrokenAlgorithm decides rules of built-in and third-party algorithms. Those whose
// Lua is broken are decided without Redis, and the advice names them; all others, in the
// same batches and over many failures, are decided in Redis.
func TestBrokenAlgorithm(t *testing.T) {
	srv := redistest.Start(t)
	o := new(errorObserver)
	s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
		Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 10 * time.Second, DialTimeout: 10 * time.Second,
	}}, o)
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	sp := algorithms.Spec{Limit: 1000, Window: storekit.Hour, Cost: 1}
	counter := func(name string, permits int64, a algorithms.Algorithm) *stores.Counter {
		return kit.NewTestCounter(t, name, permits, false, nil, storekit.RuleSpec{Alg: a, Spec: sp})
	}
	plain, permits := counter("plain", 0, new(algorithms.SlidingWindow)), counter("permits", 1000, new(algorithms.GCRA))
	good, goodPermits := counter("good", 0, new(goodAlgorithm)), counter("goodpermits", 1000, new(goodAlgorithm))
	unfinished, failing := counter("unfinished", 0, new(unfinishedAlgorithm)), counter("failing", 0, new(failingAlgorithm))
	ctx := context.Background()
	decide := func(c ...*stores.Counter) *stores.Check {
		check := new(stores.Check)
		for _, one := range c {
			check.Zones = append(check.Zones, storekit.CheckOfKey(one, 1).Zones...)
		}
		s.Decide(ctx, check)
		return check
	}
	for _, c := range []struct {
		counters []*stores.Counter
		broken   string // algorithms
	}{
		{[]*stores.Counter{plain}, ""},
		{[]*stores.Counter{good}, ""},
		{[]*stores.Counter{plain, permits, good, goodPermits}, ""},
		{[]*stores.Counter{unfinished}, "test_unfinished"},
		{[]*stores.Counter{failing}, "test_failing"},
		{[]*stores.Counter{plain, failing, good}, "test_failing"},
		{[]*stores.Counter{good, plain, unfinished}, "test_unfinished"},
	} {
		check, got := decide(c.counters...), o.sinceLast()
		want := stores.ModeShared
		if c.broken != "" {
			want = stores.ModeFallback
		}
		if check.Mode != want || !check.Admitted || (got == "") != (c.broken == "") {
			t.Errorf("%s: mode %v, admitted %v: %s", check.Zones[0].Counter.Zone, check.Mode, check.Admitted, got)
		}
		if c.broken != "" && (!strings.HasPrefix(got, "wrong ") || strings.Count(got, c.broken) != 2 || strings.Count(got, "test_") != 2) {
			t.Errorf("%s: the error and its advice are %q, want them to name %s only", check.Zones[0].Counter.Zone, got, c.broken)
		}
		for i := range check.Zones {
			if z := &check.Zones[i]; z.Permit.Taken {
				s.Finish(ctx, z, 1) // by its algorithm
			}
		}
	}
	o.sinceLast()
	var all sync.WaitGroup
	for i := range 64 { // in batches
		all.Go(func() {
			for range 20 {
				c := []*stores.Counter{plain, good, unfinished, failing}[i%4]
				if check := decide(c); (check.Mode == stores.ModeShared) != (i%4 < 2) {
					t.Errorf("%s: mode %v", c.Zone, check.Mode)
				}
			}
		})
	}
	all.Wait()
	if up, _, _ := s.State(); !up || s.holdsPermits() {
		t.Errorf("the store is up: %v, permits are held: %v", up, s.holdsPermits())
	}
}

// TestErrorsOfRedisAreNotBlamedOnAlgorithms checks errors in a script with a third-party
// algorithm that are not its own.
func TestErrorsOfRedisAreNotBlamedOnAlgorithms(t *testing.T) {
	s := newScript("", "\x05")
	for text, blamed := range map[string]bool{
		"ERR Error running script (call to f_x): @user_script:56: -OOM command not allowed when used memory > 'maxmemory'.": false,
		"LOADING Redis is loading the dataset in memory":                                                                    false,
		"ERR Error running script (call to f_x): @user_script:5: user_script:5: attempt to index x":                         true,
	} {
		if err := s.blame(failedOp(text)); errors.As(err, new(algorithmError)) != blamed {
			t.Errorf("%v: blamed %v, want %v", err, !blamed, blamed)
		}
	}
}

// TestServerWithoutStruct checks the advice for servers that call themselves Redis and
// whose Lua has no struct.
func TestServerWithoutStruct(t *testing.T) {
	srv := redistest.Start(t)
	err := srv.Client().Eval(context.Background(), "return struct_.pack", nil).Err()
	if err == nil || !strings.Contains(err.Error(), "global variable 'struct_'") {
		t.Fatalf("Redis reports a missing library as %v", err)
	}
	for _, text := range []string{
		strings.Replace(err.Error(), "struct_", "struct", 1),
		"ERR Error running script (call to f_x): @user_script:1: <string>:1: attempt to index global 'struct' (a nil value)",
	} {
		if f, advice := classify(failedOp(text)), advice(stores.FailRejected, failedOp(text)); f != stores.FailRejected || !strings.Contains(advice, "has no struct") {
			t.Errorf("%s: %s, %s", text, f, advice)
		}
	}
}
