package algorithms

import (
	"cmp"
	_ "embed"
	"fmt"
	"sync/atomic"
	_ "time/tzdata" // for systems without a database of time zones

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/option"
)

func init() { caddy.RegisterModule((*Calendar)(nil)) }

// Calendar counts requests in the days, weeks, months or years of the calendar. Its
// windows are day, week (from Monday), month and year. A period begins at the first
// instant of its first date in the time zone.
//
// At most limit are admitted in a period, and at most twice the limit in any interval
// that is no longer than the shortest such period. The state is the start of a period and
// a count.
type Calendar struct {
	// The time zone of the periods, a name of the IANA database such as
	// "Europe/Berlin". Default: "UTC".
	TimeZone string `json:"time_zone,omitempty"`
}

//go:embed calendar.lua
var calendarLua string

// CaddyModule returns the Caddy module information.
func (*Calendar) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: Namespace + ".calendar", New: func() caddy.Module { return new(Calendar) }}
}

// UnmarshalCaddyfile reads [<time zone>].
func (c *Calendar) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	name := option.Checked(&c.TimeZone, "a time zone, such as Europe/Berlin", func(zone string) error {
		_, err := newPeriods(Day, zone)
		return err
	})
	if d.Next(); d.CountRemainingArgs() == 1 {
		return name(d)
	}
	d.Reset()
	return readOptions(d, map[string]option.Parse{"time_zone": name})
}

// Kind implements [Algorithm].
func (c *Calendar) Kind() string { return "calendar/" + c.zone() }

func (c *Calendar) zone() string { return cmp.Or(c.TimeZone, "UTC") }

// Lua implements [Algorithm].
func (*Calendar) Lua() string { return calendarLua }

// Compile implements [Algorithm].
func (c *Calendar) Compile(sp Spec) (Rule, error) {
	if err := CheckLimit(sp); err != nil {
		return nil, err
	}
	if sp.Period == 0 {
		return nil, fmt.Errorf("a window that is no period: want %s, such as 1000/month calendar", option.Or(periodNames[Day:]))
	}
	p, err := newPeriods(sp.Period, c.zone())
	if err != nil {
		return nil, err
	}
	return &calendar{plain: 2, windowed: windowed{sp.Share(sp.Limit), sp.Period.Longest()}, periods: p, wall: sp.Wall}, nil
}

// Dated is a [Rule] whose periods follow the calendar. Its Args hold for a time only.
type Dated interface {
	Rule

	// Present returns the start of the period that now is in, and that of the next.
	Present(now int64) (start, next int64)
}

// calendar has the state {start, used}. What was used counts in the period with that start
// alone. calendar.lua does the same in Redis.
type calendar struct {
	plain
	windowed
	periods
	wall  func(int64) int64
	cache atomic.Pointer[[4]int64]
}

// find returns the start of the period that an instant is in, and that of the next.
func (c *calendar) find(now int64) (start, next int64) {
	known := c.cache.Load()
	if known == nil || now < known[0] || now >= known[3] {
		all := c.around(now)
		known = &all
		c.cache.Store(known)
	}
	i := 0
	for now >= known[i+1] {
		i++
	}
	return known[i], known[i+1]
}

// on returns the time on the clock that the calendar follows.
func (c *calendar) on(now int64) int64 {
	if c.wall == nil {
		return now
	}
	return c.wall(now)
}

// Present implements [Dated].
func (c *calendar) Present(now int64) (start, next int64) { return c.find(c.on(now)) }

// Args implements [Rule].
func (c *calendar) Args(now int64) []int64 {
	all := c.around(now)
	return append([]int64{c.limit}, all[:]...)
}

// used returns what is charged to the present period, its start, and how long it lasts.
func (c *calendar) used(s State, now int64) (used, start, left int64) {
	now = c.on(now)
	start, next := c.find(now)
	if s[0] != start {
		return 0, start, next - now
	}
	return s[1], start, next - now
}

// Repair implements [Rule].
func (c *calendar) Repair(s State, now int64) bool {
	now = c.on(now)
	if s[1] == 0 || s[0] <= now {
		return false
	}
	s[0], _ = c.find(now)
	return true
}

// Judge implements [Rule].
func (c *calendar) Judge(s State, now, cost, held int64) Verdict {
	used, _, left := c.used(s, now)
	return c.judge(used, cost, held, func() int64 { return left })
}

// Charge implements [Rule].
func (c *calendar) Charge(s State, now, cost, _ int64) {
	used, start, _ := c.used(s, now)
	s[0], s[1] = start, used+cost
}

// Owe implements [Rule].
func (c *calendar) Owe(s State, now, cost int64) (charged int64) {
	used, _, _ := c.used(s, now)
	if cost = c.owed(used, cost); cost > 0 {
		c.Charge(s, now, cost, 0)
	}
	return cost
}

// Numbers implements [Rule].
func (c *calendar) Numbers(s State, now int64) (remaining, reset int64) {
	used, _, left := c.used(s, now)
	if used == 0 {
		left = 0
	}
	return max(0, c.limit-used), left
}

// Live implements [Handover].
func (c *calendar) Live(snap []int64, now int64) bool {
	used, _, _ := c.used(snap, now)
	return used > 0
}

// Raise implements [Handover].
func (c *calendar) Raise(snap, other []int64, now int64) bool {
	used, _, _ := c.used(snap, now)
	more, _, _ := c.used(other, now)
	if more <= used {
		return false
	}
	copy(snap, other)
	return true
}

// Shift implements [Handover]. What was charged before the clock was set counts in the
// period of the new time.
func (c *calendar) Shift(snap []int64, d, now int64) {
	if used, _, _ := c.used(snap, now-d); used > 0 || snap[0] > now-d {
		snap[0], _ = c.Present(now)
	}
}

// Warm implements [Handover].
func (c *calendar) Warm(s State, snap []int64, full Rule, now int64) {
	known, start, _ := c.used(snap, now)
	if known = scale(known, c.limit, full.Limit()); known == 0 {
		return
	}
	used, _, _ := c.used(s, now)
	s[0], s[1] = start, max(used, known)
}

// Forgive implements [Handover].
func (c *calendar) Forgive(base []int64, now, cost, _ int64) { c.Charge(base, now, cost, 0) }

// Debt implements [Handover].
func (c *calendar) Debt(s State, base []int64, _ Rule, now int64) (debt []int64, owes, more bool) {
	used, start, _ := c.used(s, now)
	// A base that begins later is that of a state that was repaired, because the clock was set back.
	if base[0] >= start {
		used -= base[1]
	}
	return []int64{start, max(0, used)}, used > 0, false
}

var (
	_ Dated    = (*calendar)(nil)
	_ Handover = (*calendar)(nil)
)
