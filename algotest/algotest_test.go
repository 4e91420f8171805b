package algotest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
)

func limit(factor int64) func(algorithms.Spec) int64 {
	return func(sp algorithms.Spec) int64 { return factor * sp.Limit }
}

// TestBuiltIn runs the tests on built-in algorithms.
func TestBuiltIn(t *testing.T) {
	for name, c := range map[string]Config{
		"fixed_window":   {Algorithm: new(algorithms.FixedWindow), Bound: limit(2)},
		"sliding_window": {Algorithm: new(algorithms.SlidingWindow), Bound: limit(1)},
		"sliding_log":    {Algorithm: new(algorithms.SlidingLog), Bound: limit(1)},
		"gcra":           {Algorithm: new(algorithms.GCRA), Bound: limit(2)},
		"calendar": { // a window of 31 days has a whole February, and parts of the months around it
			Algorithm: &algorithms.Calendar{TimeZone: "Europe/Berlin"}, Bound: limit(3),
			Specs: []algorithms.Spec{
				{Limit: 5, Window: algorithms.Month.Longest(), Period: algorithms.Month, Cost: 1},
				{Limit: 100, Window: algorithms.Day.Longest(), Period: algorithms.Day, Cost: 2, Overdraws: true},
			},
		},
	} {
		t.Run(name, func(t *testing.T) { Run(t, c) })
	}
}

// faulty is fixed_window with a fault.
type faulty struct {
	algorithms.FixedWindow
	fault string
}

func init() {
	caddy.RegisterModule(new(faulty))
	caddy.RegisterModule(new(unfinished))
}

func (*faulty) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: algorithms.Namespace + ".test_faulty", New: func() caddy.Module { return new(faulty) }}
}

func (f *faulty) Lua() string { return f.FixedWindow.Lua() + "\n-- of another module\n" }

func (f *faulty) Compile(sp algorithms.Spec) (algorithms.Rule, error) {
	if f.fault == "accepts" {
		sp.Limit = max(1, sp.Limit)
	}
	r, err := f.FixedWindow.Compile(sp)
	if err != nil {
		return nil, err
	}
	return &faultyRule{r, f.fault}, nil
}

// unfinished is fixed_window with a chunk that does not compile.
type unfinished struct{ algorithms.FixedWindow }

func (*unfinished) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: algorithms.Namespace + ".test_unfinished", New: func() caddy.Module { return new(unfinished) }}
}

func (*unfinished) Lua() string { return "return function(v, i) local x = = 1 end" }

type faultyRule struct {
	algorithms.Rule
	fault string
}

func (r *faultyRule) Judge(s algorithms.State, now, cost, held int64) algorithms.Verdict {
	v := r.Rule.Judge(s, now, cost, held)
	switch {
	case r.fault == "retry" && v.Retry > 0:
		v.Retry++
	case r.fault == "early" && v.Retry > 1:
		v.Retry--
	case r.fault == "never" && v.Retry == algorithms.Never:
		v.Retry = 1
	case r.fault == "judge" && v.Admit:
		r.Rule.Charge(s, now, cost, 0)
	}
	return v
}

func (r *faultyRule) Numbers(s algorithms.State, now int64) (remaining, reset int64) {
	remaining, reset = r.Rule.Numbers(s, now)
	switch {
	case r.fault == "remaining" && remaining > 0:
		remaining--
	case r.fault == "reset" && reset > 1:
		reset--
	}
	return remaining, reset
}

func (r *faultyRule) Overdraw(s algorithms.State, now, cost int64) int64 {
	if r.fault == "debt" {
		r.Rule.Charge(s, now, cost, 0)
		return cost
	}
	return r.Rule.Overdraw(s, now, cost)
}

func (r *faultyRule) Repair(s algorithms.State, now int64) bool {
	return r.fault != "repair" && r.Rule.Repair(s, now)
}

func (r *faultyRule) Args(now int64) []int64 {
	args := r.Rule.Args(now)
	if r.fault == "args" {
		args[0]++
	}
	return args
}

// recorder records the failure of a test instead of failing.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	text string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text += fmt.Sprintf(format, args...) + "\n"
}

func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }

// failure returns the text with which a test fails; empty: it passes.
func failure(t *testing.T, test func(testing.TB, *Config), c Config) string {
	r := &recorder{TB: t}
	var done sync.WaitGroup
	done.Go(func() { test(r, &c) })
	done.Wait()
	return r.text
}

// TestFaults checks that faults of an algorithm are found, and that the same algorithm
// without one passes.
func TestFaults(t *testing.T) {
	for fault, want := range map[string]string{
		"": "", "accepts": "want an error", "retry": "admitted a microsecond before", "early": "retry", "never": "capacity", "judge": "changed the state",
		"remaining": "remaining", "reset": "reset", "debt": "debts", "repair": "after a step of the clock",
	} {
		got := failure(t, arithmetic, Config{Algorithm: &faulty{fault: fault}, Bound: limit(2)})
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("fault %q: %q, want %q", fault, got, want)
		}
	}
	if got := failure(t, arithmetic, Config{Algorithm: new(faulty), Bound: limit(1)}); !strings.Contains(got, "admitted in one window") {
		t.Errorf("more than the bound: %q", got)
	}
	for name, test := range map[string]func(testing.TB, *Config){"lua": lua, "shared": shared} {
		if got := failure(t, test, Config{Algorithm: new(faulty), Bound: limit(2)}); got != "" {
			t.Errorf("%s, without a fault: %q", name, got)
		}
		if got := failure(t, test, Config{Algorithm: &faulty{fault: "args"}, Bound: limit(2)}); got == "" {
			t.Errorf("%s: Lua decides with another limit, and that is not found", name)
		}
		if got := failure(t, test, Config{Algorithm: new(unfinished), Bound: limit(2)}); got == "" {
			t.Errorf("%s: the chunk does not compile, and that is not found", name)
		}
	}
}
