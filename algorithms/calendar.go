package algorithms

import (
	"cmp"
	_ "embed"
	"fmt"
	_ "time/tzdata" // for systems without a database of time zones

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/option"
)

func init() { caddy.RegisterModule(new(Calendar)) }

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
	return caddy.ModuleInfo{ID: "http.rate_limit.algorithms.calendar", New: func() caddy.Module { return new(Calendar) }}
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
	of := windowed{sp.Share(sp.Limit), sp.Period.Longest()}
	return &calendar{fixedWindow{plain: 2, windowed: of, dates: &dates{periods: p, wall: sp.Wall}}}, nil
}

// Dated is a [Rule] whose periods follow the calendar. Its Args hold for a time only.
type Dated interface {
	Rule

	// Present returns the start of the current period and the start of the next.
	Present(now int64) (start, next int64)
}

// calendar is a [fixedWindow] whose windows have dates. calendar.lua does the same in Redis.
type calendar struct{ fixedWindow }

// Present implements [Dated].
func (c *calendar) Present(now int64) (start, next int64) { return c.dates.present(now) }

// Args implements [Rule].
func (c *calendar) Args(now int64) []int64 {
	all := c.dates.around(now)
	return append([]int64{c.limit}, all[:]...)
}

// Shift implements [Handover]. What was charged before the clock was set counts in the
// period of the new time.
func (c *calendar) Shift(snap []int64, d, now int64) {
	if used, _ := c.used(snap, now-d); used > 0 || snap[0] > now-d {
		snap[0] = c.start(now)
	}
}

var (
	_ Dated    = (*calendar)(nil)
	_ Handover = (*calendar)(nil)
)
