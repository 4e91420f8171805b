package algotest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// probe calls the decision function as the script does, at a time that the test sets.
const probe = `local judge = (function()
%s
end)()
local s = ARGV[2] ~= '' and ARGV[2] or nil
local p = ARGV[5] ~= '' and tonumber(ARGV[5]) or nil
local ok, state, i, j, reset, stepped, delay = judge(ARGV[1], 1, s, 1, tonumber(ARGV[3]), tonumber(ARGV[4]), p)
return { ok and 1 or 0, state or '', i, j, reset and string.format('%%.0f', reset) or '', stepped and 1 or 0, delay and string.format('%%.0f', delay) or '0' }`

// lua makes the same random requests in Go and in Lua, with edges, debts and steps of the
// clock: verdicts and states have to be equal. A state that grows is tested by shared only.
func lua(t testing.TB, c *Config) {
	client := redistest.Start(t).Client()
	script := redis.NewScript(fmt.Sprintf(probe, c.Algorithm.Lua()))
	r := storekit.Seeded(t)
	for _, sp := range c.specs() {
		k, now, used := newKey(c.compile(t, sp)), start, false
		if _, grows := k.rule.(algorithms.Growing); grows {
			t.Log("a state that grows: its Lua is compared in Redis only")
			return
		}
		for step := range 1000 {
			now = forward(r, k, now)
			if r.IntN(50) == 0 {
				now = max(1, now-r.Int64N(10*sp.Window))
			}
			cost, held, owes := 1+r.Int64N(k.rule.Capacity()+1), r.Int64N(3), sp.Overdraws && r.IntN(15) == 0
			before, p := "", any(held)
			if used {
				before = packed(k.state)
			}
			if owes {
				p = ""
			}
			reply, err := script.Run(t.Context(), client, nil, packed(k.rule.Args(now)), before, now, cost, p).Slice()
			if err != nil {
				t.Fatalf("%+v, step %d: %v", sp, step, err)
			}
			if state, _ := reply[1].(string); state != "" && len(state) < len(before) {
				reply[1] = state + before[len(state):] // what is behind the last change may be left out
			}
			want := k.want(now, cost, held, owes, &used)
			if !slices.Equal(reply, want) {
				t.Fatalf("%+v, step %d at %d, cost %d, held %d, owes %v, state %q:\nLua %q\nGo  %q", sp, step, now, cost, held, owes, before, reply, want)
			}
		}
	}
}

// want decides in Go and returns what the probe has to return.
func (k *key) want(now, cost, held int64, owes bool, used *bool) []any {
	repaired, v := k.rule.Repair(k.state, now), algorithms.Verdict{Admit: true}
	if owes {
		k.owe(now, cost)
	} else if v = k.rule.Judge(k.state, now, cost, held); v.Admit {
		k.charge(now, cost, v.Delay)
	}
	args, words := int64(8*len(k.rule.Args(now))+1), int64(8*len(k.state)+1)
	want := []any{number(v.Admit), "", args, words, "", number(repaired), fmt.Sprint(v.Delay)}
	if v.Admit || repaired {
		_, reset := k.rule.Numbers(k.state, now)
		want[1], want[4], *used = packed(k.state), fmt.Sprint(reset), true
	}
	return want
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
