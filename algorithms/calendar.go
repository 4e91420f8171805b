package algorithms

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for systems without a database of time zones

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
)

func init() { caddy.RegisterModule(new(Calendar)) }

// Calendar counts requests in the days, weeks, months or years of the calendar. Its
// windows are day, week (from Monday, unless from says another day), month and year. A period
// begins at the first instant of its first date in the time zone.
//
// At most limit are admitted in a period, and at most twice the limit in any interval
// that is no longer than the shortest such period. The state is the start of a period and
// a count.
type Calendar struct {
	// The time zone of the periods, a name of the IANA database such as
	// "Europe/Berlin". Default: "UTC".
	TimeZone string `json:"time_zone,omitempty"`

	// The first day of a week, such as "sunday", or of a month, "1" to "31": a month
	// without that day begins on its last. Default: "monday", "1".
	From string `json:"from,omitempty"`
}

//go:embed calendar.lua
var calendarLua string

// CaddyModule returns the Caddy module information.
func (*Calendar) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.algorithms.calendar", New: func() caddy.Module { return new(Calendar) }}
}

// UnmarshalCaddyfile reads [<time zone>] [from <day>].
func (c *Calendar) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	name := option.Checked(&c.TimeZone, "a time zone, such as Europe/Berlin", func(zone string) error {
		_, err := newPeriods(Day, zone)
		return err
	})
	options := map[string]option.Parse{"time_zone": name, "from": option.Text(&c.From, "a day of the week or the month, such as sunday or 15")}
	if d.Next(); d.CountRemainingArgs()%2 == 1 {
		if err := name(d); err != nil {
			return err
		}
		return readMore(d, "calendar", options)
	}
	d.Reset()
	return readOptions(d, options)
}

// Kind implements [Algorithm].
func (c *Calendar) Kind() string {
	switch from := strings.ToLower(c.From); from {
	case "", "monday", "1":
		return "calendar/" + c.zone()
	default:
		return "calendar/" + c.zone() + "/from " + from
	}
}

// first returns the first day of a period: of a week from Sunday, which is 0.
func (c *Calendar) first(unit Period) (int, error) {
	n, err := strconv.Atoi(c.From)
	switch day := slices.Index(weekdays, strings.ToLower(c.From)); {
	case c.From == "":
		return 1, nil
	case unit == Week && day >= 0:
		return day, nil
	case unit == Month && err == nil && option.IsWhole(c.From) && n >= 1 && n <= 31:
		return n, nil
	case unit == Week:
		return 0, fmt.Errorf("from %q: want the day on which weeks begin: %s", c.From, option.Or(weekdays))
	case unit == Month:
		return 0, fmt.Errorf("from %q: want the day on which months begin, 1 to 31", c.From)
	}
	return 0, fmt.Errorf("from %s with %v: want a week or a month, as in 1000/month calendar from 15", c.From, unit)
}

var weekdays = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

func (c *Calendar) zone() string { return cmp.Or(c.TimeZone, "UTC") }

// Lua implements [Algorithm].
func (*Calendar) Lua() string { return calendarLua }

// Compile implements [Algorithm].
func (c *Calendar) Compile(sp Spec) (Rule, error) {
	if err := CheckLimit(sp); err != nil {
		return nil, err
	}
	if sp.Period == 0 {
		return nil, fmt.Errorf("window %v with calendar: want %s, such as 1000/month calendar", time.Duration(sp.Window)*time.Microsecond, option.Or(periodNames[Day:]))
	}
	p, err := newPeriods(sp.Period, c.zone())
	if err != nil {
		return nil, err
	}
	if p.first, err = c.first(sp.Period); err != nil {
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
