package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// unchargedEvents counts what is given up.
type unchargedEvents struct {
	downEvents
	uncharged atomic.Int64
}

func (e *unchargedEvents) Uncharged(_ string, _ stores.Uncharged, cost int64) { e.uncharged.Add(cost) }

// isDecision says whether a command decides checks, or asks where they are decided. Heartbeats do neither.
func isDecision(command []string) bool {
	return strings.HasPrefix(command[0], "eval") && !strings.Contains(command[3], beatTag)
}

// TestUndecidedChecksAreTold has decisions fail at a proxy while heartbeats succeed, in each way: the store is told as
// away, no request calls it if most fail, what is admitted is charged once, and it is used again afterwards.
func TestUndecidedChecksAreTold(t *testing.T) {
	srv := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	for name, reply := range map[string]string{
		"refused": "-upstream failure", "silent": redistest.Silent, "cut": redistest.Cut, "nil": "$-1",
		"loading": "-LOADING Redis is loading the dataset in memory", "no right": "-ERR ACL failure in script: User u has no permissions to run the 'get' command",
	} {
		for scope, keys := range map[string]int{"all": 1, "one key": 1, "one server of three": 40, "one key of a hundred": 100} {
			if keys == 100 && (name == "silent" || name == "cut") {
				continue // as if a packet was lost
			}
			t.Run(name+", "+scope, func(t *testing.T) {
				t.Parallel()
				g := redistest.StartGateway(t, srv...)
				events := new(unchargedEvents)
				s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
					Addresses: []string{g.Addr}, Prefix: strings.ReplaceAll(name+scope, " ", "-"), Timeout: 300 * time.Millisecond, DialTimeout: 5 * time.Second,
				}}, events)
				s.Start(1)
				t.Cleanup(func() { _ = s.Destruct() })
				c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 1_000_000, Window: storekit.Hour, Cost: 1}})
				c.Table = memory.NewTable(c.Rules, 1000)
				admitted, n := 0, 0
				var last *stores.Check
				decide := func() stores.Mode {
					n++
					k := testKey(uint64(n % keys))
					last = &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}}
					s.At(k).Decide(context.Background(), last)
					if last.Admitted && n%keys == 0 {
						admitted++
					}
					return last.Mode
				}
				shared := func() bool {
					all := true
					for range keys {
						all = decide() == stores.ModeShared && all
					}
					return all
				}
				told := func() bool { up, _, _ := s.State(); return !up }
				waitFor(t, "Redis decides", func() bool { return shared() && !told() })
				only, at := last.Zones[0].Key.String(), g.ServerOf(string(appendName(nil, s.o.Prefix, &last.Zones[0])))
				g.Meet(func(command []string, server int) string {
					if !isDecision(command) || strings.HasPrefix(scope, "one key") && !strings.Contains(command[3], only) || scope == "one server of three" && server != at {
						return ""
					}
					return reply
				})
				tries(t, 1, func() (failed, may int64) {
					waitFor(t, "the store is told as away", func() bool {
						calls := s.CallStats().Calls
						shared()
						return told() && (keys > 1 || s.CallStats().Calls == calls)
					})
					for range 30 {
						calls := s.CallStats().Calls
						if decide(); !told() {
							failed++
							t.Log("told as used, though checks are not decided")
						}
						if keys == 1 && (last.Mode != stores.ModeFallback || s.CallStats().Calls != calls) {
							failed++
							t.Logf("a request calls a store that is away, mode %v", last.Mode)
						}
						time.Sleep(50 * time.Millisecond)
					}
					return failed, 0
				})
				if _, _, _, cause := events.advice(); keys == 1 && name != "no right" && name != "loading" && name != "cut" && !errors.As(cause, new(undecided)) {
					t.Errorf("away because of %v", cause)
				}
				g.Meet(nil)
				waitFor(t, "Redis decides again", func() bool { return shared() && !told() })
				waitFor(t, "what is owed is charged", func() bool {
					if keys > 1 { // what is owed by several keys is handed over in one call
						return true
					}
					for decide(); n%keys != 0 || last.Mode != stores.ModeShared; {
						decide()
					}
					used := 1_000_000 - int(last.Zones[0].Results[0].Remaining)
					if used > admitted {
						t.Fatalf("%d charged, %d admitted", used, admitted)
					}
					return used+int(events.uncharged.Load()) >= admitted
				})
			})
		}
	}
}

// TestPeriodsOfOutcomes leads the outcomes of a node through timelines of checks, one each ms.
func TestPeriodsOfOutcomes(t *testing.T) {
	type spell struct{ ms, decided, failed int } // how often
	for name, test := range map[string]struct {
		spells     []spell
		most, some bool
	}{
		"all fail":                        {[]spell{{2100, 0, 21}}, true, true},
		"too few fail":                    {[]spell{{2100, 0, 19}}, false, false},
		"not for long":                    {[]spell{{1900, 0, 190}}, false, false},
		"rarely checked":                  {[]spell{{30_000, 0, 30}}, true, false},
		"half of them":                    {[]spell{{2100, 210, 200}}, false, true},
		"one in five":                     {[]spell{{2100, 420, 84}}, false, true},
		"one in a hundred":                {[]spell{{4200, 4200, 42}}, false, false},
		"a stall":                         {[]spell{{100, 0, 100}, {2000, 2000, 0}, {1, 0, 1}}, false, false},
		"a stall of what is rarely asked": {[]spell{{100, 0, 10}, {3000, 30, 0}, {1, 0, 1}}, false, false},

		"one in a hundred is refused":      {[]spell{{2100, 4200, 42}}, false, true},
		"one of many keys is refused":      {[]spell{{5000, 50_000, 5}}, false, true},
		"refused twice":                    {[]spell{{2000, 20_000, 2}}, false, false},
		"refused now and then":             {[]spell{{60_000, 60_000, 6}}, false, false},
		"one in a hundred in a slot moves": {[]spell{{4200, 4200, 42}}, false, false},
	} {
		err := error(errUnanswered)
		if strings.Contains(name, "refused") {
			err = refusal("upstream failure")
		} else if strings.Contains(name, "slot") {
			err = refusal("TRYAGAIN Multiple keys request during rehashing of slot")
		}
		var o outcomes
		now, most := time.Now(), false
		for _, s := range test.spells {
			n := max(s.decided, s.failed)
			for i := range n {
				now = now.Add(time.Duration(s.ms) * time.Millisecond / time.Duration(n))
				if i < s.decided || i*s.decided/n != (i+1)*s.decided/n {
					o.decided.Add(1)
				}
				if i*s.failed/n != (i+1)*s.failed/n {
					most = o.fails(1, 1, err, now) || most
				}
			}
		}
		some, why := o.someFail(1, now)
		if most != test.most || some != test.some || some && !errors.Is(why, err) {
			t.Errorf("%s: most %v, some %v because of %v, want %v, %v", name, most, some, why, test.most, test.some)
		}
		if some, _ := o.someFail(2, now); some {
			t.Errorf("%s: still told after the breaker has opened", name)
		}
		if some, _ := o.someFail(1, now.Add(someLast)); some {
			t.Errorf("%s: still told after %v without a failure", name, someLast)
		}
		o.fails(1, 2, errReply, now)
		if o.failed != 1 {
			t.Errorf("%s: %d failed since the breaker opened, want 1", name, o.failed)
		}
	}
	if err := fmt.Errorf("x: %w", undecided{"most", refusal("OOM full")}); classify(err) != stores.FailRejected {
		t.Errorf("%v is %v", err, classify(err))
	}
}
