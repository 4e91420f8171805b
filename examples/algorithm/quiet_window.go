// Package algorithm adds a seventh algorithm to Diana in one file, as an example for
// others. docs/internals/new-algorithm.md explains it and how to build Caddy with it.
package algorithm

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
)

func init() { caddy.RegisterModule(new(QuietWindow)) }

// QuietWindow admits limit requests until no request has been admitted for a whole
// window. A rule such as 5/15m quiet_window gives a client five attempts, and five more
// only 15 minutes after the last admitted one.
//
// In any window at most limit requests pass. The state of a key is the time of the last
// admitted request and a count.
type QuietWindow struct{}

// CaddyModule returns the Caddy module information.
func (*QuietWindow) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.rate_limit.algorithms.quiet_window",
		New: func() caddy.Module { return new(QuietWindow) },
	}
}

// Kind implements [algorithms.Algorithm]. No option changes the meaning of the state.
func (*QuietWindow) Kind() string { return "quiet_window" }

// Compile implements [algorithms.Algorithm].
func (*QuietWindow) Compile(sp algorithms.Spec) (algorithms.Rule, error) {
	if err := algorithms.CheckLimit(sp); err != nil {
		return nil, err
	}
	return &rule{sp.Share(sp.Limit), sp.Window}, nil
}

// rule has the state {last, used}: the time of the last admitted request, and the
// number of requests admitted since the last quiet window. used is 0 in a new state.
type rule struct{ limit, window int64 }

func (q *rule) Limit() int64       { return q.limit }
func (q *rule) Window() int64      { return q.window }
func (q *rule) Capacity() int64    { return q.limit }
func (q *rule) Words() int         { return 2 }
func (q *rule) Args(int64) []int64 { return []int64{q.limit, q.window} }

// used returns the count at now and for how long it lasts without further requests.
func (q *rule) used(s algorithms.State, now int64) (used, left int64) {
	if left = s[0] + q.window - now; s[1] == 0 || left <= 0 {
		return 0, 0
	}
	return s[1], left
}

// Repair implements [algorithms.Rule]. After the clock is set back, no request is
// denied for longer than a window.
func (q *rule) Repair(s algorithms.State, now int64) bool {
	if s[1] == 0 || s[0] <= now {
		return false
	}
	s[0] = now
	return true
}

// Judge implements [algorithms.Rule].
func (q *rule) Judge(s algorithms.State, now, cost, held int64) algorithms.Verdict {
	used, left := q.used(s, now)
	switch {
	case cost > q.limit:
		return algorithms.Verdict{Retry: algorithms.Never}
	case used > q.limit-cost:
		return algorithms.Verdict{Retry: left}
	case held > q.limit-cost-used:
		return algorithms.Verdict{Held: true}
	}
	return algorithms.Verdict{Admit: true}
}

// Charge implements [algorithms.Rule].
func (q *rule) Charge(s algorithms.State, now, cost, _ int64) {
	used, _ := q.used(s, now)
	s[0], s[1] = now, used+cost
}

// Overdraw implements [algorithms.Rule]. The debt is at most one limit.
func (q *rule) Overdraw(s algorithms.State, now, cost int64) (charged int64) {
	used, _ := q.used(s, now)
	if cost = min(cost, max(0, 2*q.limit-used)); cost > 0 {
		q.Charge(s, now, cost, 0)
	}
	return cost
}

// Numbers implements [algorithms.Rule].
func (q *rule) Numbers(s algorithms.State, now int64) (remaining, reset int64) {
	used, left := q.used(s, now)
	return max(0, q.limit-used), left
}

// Lua implements [algorithms.Algorithm] with the same steps as Judge, Charge and Overdraw.
// scripts/README.md describes its inputs and outputs.
func (*QuietWindow) Lua() string {
	return `
local unpack, pack = struct.unpack, struct.pack

return function(v, i, s, j, t, n, p)
  local L, W, i = unpack('<dd', v, i)
  local last, used, stepped = t, 0, false
  if s then
    last, used = unpack('<dd', s, j)
    if used > 0 and last > t then last, stepped = t, true end
    if t >= last + W then used = 0 end
  end
  local ok = true
  if not p then
    n = math.min(n, math.max(0, 2 * L - used))
  else
    ok = used + n + p <= L
  end
  if not ok then n = 0 end
  if n > 0 then last = t end
  local new, reset
  if ok or stepped then new, reset = pack('<dd', last, used + n), math.max(0, last + W - t) end
  return ok, new, i, j + 16, reset, stepped
end
`
}

// Interface guards
var (
	_ algorithms.Algorithm = (*QuietWindow)(nil)
	_ algorithms.Rule      = (*rule)(nil)
)
