package algorithms

import (
	_ "embed"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
)

func init() { caddy.RegisterModule(new(FixedWindow)) }

// FixedWindow counts requests in a window that starts at the first request after
// the previous one ended or, with align, at a multiple of its length since
// 1970-01-01 UTC.
//
// At most limit are admitted in each of its windows, and at most twice the limit in
// any interval of that length. The state is a start and a count.
type FixedWindow struct {
	// Start windows at multiples of their length since 1970-01-01 UTC instead of
	// at the first request. Default: false.
	Align bool `json:"align,omitempty"`
}

//go:embed fixed_window.lua
var fixedWindowLua string

// CaddyModule returns the Caddy module information.
func (*FixedWindow) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.algorithms.fixed_window", New: func() caddy.Module { return new(FixedWindow) }}
}

// UnmarshalCaddyfile reads [align].
func (f *FixedWindow) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return readOptions(d, map[string]option.Parse{"align": option.Flag(&f.Align)})
}

// Kind implements [Algorithm].
func (f *FixedWindow) Kind() string {
	if f.Align {
		return "fixed_window/align"
	}
	return "fixed_window"
}

// LeasedKind implements [Leasable].
func (f *FixedWindow) LeasedKind() (string, bool) { return f.Kind(), true }

// Lua implements [Algorithm].
func (*FixedWindow) Lua() string { return fixedWindowLua }

// Compile implements [Algorithm].
func (f *FixedWindow) Compile(sp Spec) (Rule, error) {
	if err := CheckLimit(sp); err != nil {
		return nil, err
	}
	return &fixedWindow{2, windowed{sp.Share(sp.Limit), sp.Window}, f.Align, nil}, nil
}

// fixedWindow has the state {start, used}; used is 0 if there is no window.
// fixed_window.lua does the same in Redis; handover.go has the methods that keep a state
// over an outage.
type fixedWindow struct {
	plain
	windowed
	align bool
	dates *dates // nil: each window has the same length
}

func (f *fixedWindow) Args(int64) []int64 {
	align := int64(0)
	if f.align {
		align = 1
	}
	return []int64{f.limit, f.window, align}
}

// start returns the start of the window that is opened at now.
func (f *fixedWindow) start(now int64) int64 {
	switch {
	case f.dates != nil:
		now, _ = f.dates.present(now)
	case f.align:
		now -= now % f.window
	}
	return now
}

// used returns what is charged to the window that is open at now, and its end.
func (f *fixedWindow) used(s State, now int64) (used, end int64) {
	end = s[0] + f.window
	if f.dates != nil {
		end = f.dates.end(s[0], now)
	}
	if s[1] == 0 || now >= end {
		return 0, now
	}
	return s[1], end
}

// end implements [ending]: what was charged counts until its window ends.
func (f *fixedWindow) end(s State, now int64) int64 {
	_, end := f.used(s, now)
	return end
}

func (f *fixedWindow) Repair(s State, now int64) bool {
	if s[1] == 0 || s[0] <= f.dates.on(now) {
		return false
	}
	s[0] = f.start(now)
	return true
}

func (f *fixedWindow) Judge(s State, now, cost, held int64) Verdict {
	used, end := f.used(s, now)
	return f.judge(used, cost, held, func() int64 { return end - now })
}

func (f *fixedWindow) Charge(s State, now, cost, _ int64) {
	used, _ := f.used(s, now)
	if used == 0 {
		s[0] = f.start(now)
	}
	s[1] = used + cost
}

// Extend implements [Extender]. Windows that are aligned or have dates are the same in every counter.
func (f *fixedWindow) Extend(s State, now int64) {
	if used, _ := f.used(s, now); used > 0 {
		s[0] = f.start(now)
	}
}

func (f *fixedWindow) Overdraw(s State, now, cost int64) (charged int64) {
	used, _ := f.used(s, now)
	if cost = f.overdraft(used, cost); cost > 0 {
		f.Charge(s, now, cost, 0)
	}
	return cost
}

func (f *fixedWindow) Numbers(s State, now int64) (remaining, reset int64) {
	used, end := f.used(s, now)
	return max(0, f.limit-used), end - now
}

var _ Leasable = (*FixedWindow)(nil)
