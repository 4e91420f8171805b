package algorithm

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/redis/go-redis/v9"

	_ "github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/trace"
)

func compile(t *testing.T, limit, window int64) algorithms.Rule {
	t.Helper()
	r, err := new(QuietWindow).Compile(algorithms.Spec{Limit: limit, Window: window, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTimeline specifies the algorithm as a timeline.
func TestTimeline(t *testing.T) {
	r := compile(t, 2, 100)
	s := make(algorithms.State, r.Words())
	for _, c := range []struct {
		now, cost, held         int64
		want                    algorithms.Verdict
		remaining, reset, steps int64
	}{
		{now: 1000, cost: 1, want: algorithms.Verdict{Admit: true}, remaining: 1, reset: 100},
		{now: 1090, cost: 2, want: algorithms.Verdict{Retry: 10}, remaining: 1, reset: 10},
		{now: 1090, cost: 1, held: 1, want: algorithms.Verdict{Held: true}, remaining: 1, reset: 10},
		{now: 1090, cost: 1, want: algorithms.Verdict{Admit: true}, remaining: 0, reset: 100},
		{now: 1091, cost: 3, want: algorithms.Verdict{Retry: algorithms.Never}, remaining: 0, reset: 99},
		{now: 1189, cost: 1, want: algorithms.Verdict{Retry: 1}, remaining: 0, reset: 1},
		{now: 1190, cost: 2, want: algorithms.Verdict{Admit: true}, remaining: 0, reset: 100},
		{now: 500, cost: 1, want: algorithms.Verdict{Retry: 100}, remaining: 0, reset: 100, steps: 1}, // the clock was set back
		{now: 600, cost: 1, want: algorithms.Verdict{Admit: true}, remaining: 1, reset: 100},
	} {
		if stepped := r.Repair(s, c.now); stepped != (c.steps > 0) {
			t.Errorf("%d: repaired %v", c.now, stepped)
		}
		got := r.Judge(s, c.now, c.cost, c.held)
		if got.Admit {
			r.Charge(s, c.now, c.cost, 0)
		}
		remaining, reset := r.Numbers(s, c.now)
		if got != c.want || remaining != c.remaining || reset != c.reset {
			t.Errorf("%d: %+v remaining %d reset %d, want %+v", c.now, got, remaining, reset, c)
		}
	}
}

func TestRejectedRules(t *testing.T) {
	for _, sp := range []algorithms.Spec{{Limit: 0, Window: 1, Cost: 1}, {Limit: 1, Window: 0, Cost: 1}, {Limit: 1, Window: 1, Cost: 2}} {
		if _, err := new(QuietWindow).Compile(sp); err == nil {
			t.Errorf("%+v compiles", sp)
		}
	}
	r, err := new(QuietWindow).Compile(algorithms.Spec{Limit: 9, Window: 1, Cost: 1, ShareOf: 3e6})
	if err != nil || r.Limit() != 3 {
		t.Errorf("a third of 9: %v %v", r, err)
	}
}

// probe runs the Lua functions with a virtual clock.
const probe = `local judge = (function()
%send)()
local s = ARGV[2] ~= '' and ARGV[2] or nil
local p = ARGV[5] ~= '' and tonumber(ARGV[5]) or nil
local ok, state, i, j, reset, stepped = judge(ARGV[1], 1, s, 1, tonumber(ARGV[3]), tonumber(ARGV[4]), p)
return { ok and 1 or 0, state or '', i, j, reset and string.format('%%.0f', reset) or '', stepped and 1 or 0 }`

// TestLuaAgrees runs a random trace with edges, debts and clock steps on Go and on Lua.
// Verdicts and states must be equal.
func TestLuaAgrees(t *testing.T) {
	client := redistest.Start(t).Client()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	script := redis.NewScript(fmt.Sprintf(probe, new(QuietWindow).Lua()))
	const window = 1000
	rule := compile(t, 5, window)
	state, now := make(algorithms.State, rule.Words()), int64(1_700_000_000_000_000)
	seen := false
	for step := range 3000 {
		if now += r.Int64N(window / 2); r.IntN(20) == 0 {
			now += r.Int64N(3) - 1 + window
		}
		if r.IntN(50) == 0 {
			now -= r.Int64N(10 * window)
		}
		cost, held, before := 1+r.Int64N(6), r.Int64N(3), ""
		if seen {
			before = packed(state)
		}
		owe := r.IntN(15) == 0
		p := any(held)
		if owe {
			p = ""
		}
		reply, err := script.Run(context.Background(), client, nil, packed(rule.Args()), before, now, cost, p).Slice()
		if err != nil {
			t.Fatal(err)
		}
		repaired := rule.Repair(state, now)
		admit := owe
		if owe {
			rule.Owe(state, now, cost)
		} else if admit = rule.Judge(state, now, cost, held).Admit; admit {
			rule.Charge(state, now, cost, 0)
		}
		want := []any{number(admit), "", int64(17), int64(17), "", number(repaired)}
		if admit || repaired {
			_, reset := rule.Numbers(state, now)
			want[1], want[4], seen = packed(state), fmt.Sprint(reset), true
		}
		if !slices.Equal(reply, want) {
			t.Fatalf("step %d at %d, cost %d, held %d, owe %v:\nRedis %q\nGo    %q", step, now, cost, held, owe, reply, want)
		}
	}
}

// packed encodes numbers as they are stored in Redis.
func packed[T ~[]int64](words T) string {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(w)))
	}
	return string(b)
}

func number(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

// TestServes runs the algorithm in a real Caddy: in the local store, in Redis, and in
// the local store again after Redis is down.
func TestServes(t *testing.T) {
	server := redistest.Start(t)
	for name, store := range map[string]string{"local": "", "redis": "store redis localhost:6379"} {
		t.Run(name, func(t *testing.T) {
			adapted, err := trace.Adapt(fmt.Sprintf(`
				{
					rate_limit {
						%s
					}
				}
				:8080 {
					rate_limit {
						zone attempts {
							key {header.X-Id}
							rule 3/2s quiet_window
						}
					}
					respond hello
				}`, store))
			if err != nil {
				t.Fatal(err)
			}
			moved, _, err := trace.Place{Storage: t.TempDir(), Redis: server.Addr}.Move(adapted)
			if err != nil {
				t.Fatal(err)
			}
			urls, err := trace.Load(moved)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := caddy.Stop(); err != nil {
					t.Error(err)
				}
			})
			client := &http.Client{Transport: new(http.Transport), Timeout: time.Minute}
			t.Cleanup(client.CloseIdleConnections)
			run(t, client, urls[0], `
				GET / X-Id=a => 200*3 429 retry=2
				GET / X-Id=b => 200
				GET / X-Id=a => until 200`)
			if name == "redis" {
				server.CheckTTLs()
				server.Kill()
				run(t, client, urls[0], "GET / X-Id=c => 200*3 429 retry=2")
			}
		})
	}
}

func run(t *testing.T, client *http.Client, url, text string) {
	t.Helper()
	steps, err := trace.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trace.Run(client, url, steps); err != nil {
		t.Error(err)
	}
}
