package algorithms

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Period is a period of the calendar. The zero value is none.
type Period uint8

// The periods.
const (
	Day Period = iota + 1
	Week
	Month
	Year
)

var periodNames = []string{Day: "day", Week: "week", Month: "month", Year: "year"}

// ParsePeriod returns the period with this name. It returns false if there is none.
func ParsePeriod(name string) (Period, bool) {
	i := slices.Index(periodNames, name)
	return Period(max(i, 0)), i > 0
}

// String returns the name; of none, nothing.
func (p Period) String() string { return periodNames[p] }

// Longest returns the length in microseconds of the longest such period, but for a change
// of the clock: 31 days for a month.
func (p Period) Longest() int64 {
	days := []int64{Day: 1, Week: 7, Month: 31, Year: 366}[p]
	return days * 24 * time.Hour.Microseconds()
}

// periods are the periods of the calendar in a time zone. All instants are microseconds
// since 1970-01-01 UTC.
type periods struct {
	unit  Period
	zone  *time.Location
	first int // day of a week, from Sunday, which is 0; or of a month, which begins on its last if it has none such
}

// newPeriods returns the periods in the time zone with this name, such as Europe/Berlin.
func newPeriods(unit Period, zone string) (periods, error) {
	if strings.EqualFold(zone, "local") {
		return periods{}, fmt.Errorf("time zone %q: want the name of one, such as Europe/Berlin, so that all instances have the same", zone)
	}
	l, known := location(zone)
	if !known {
		return periods{}, fmt.Errorf("time zone %q: want a name of the IANA database, such as Europe/Berlin", zone)
	}
	return periods{unit: unit, zone: l, first: 1}, nil
}

// locations are the time zones in use, by name: thousands of overrides share one.
var locations sync.Map

// location returns the time zone with this name. Other spellings of a file's path, which Go
// takes for a name too, are not known: there is one state of each zone.
func location(name string) (l *time.Location, known bool) {
	if l, ok := locations.Load(name); ok {
		return l.(*time.Location), true //nolint:forcetypeassert // nothing else is stored there
	}
	if path.Clean(name) != name {
		return nil, false
	}
	l, err := time.LoadLocation(name)
	if err != nil {
		return nil, false
	}
	locations.Store(name, l)
	return l, true
}

// around returns the starts of the period before the one of now's date, of that one, and of
// the next two. Clocks that are set back across midnight return to a date whose successor has
// begun: then now is in the third. A day that a zone skipped, when it moved across the date
// line, begins when the next does.
func (p periods) around(now int64) (starts [4]int64) {
	date := time.UnixMicro(now).In(p.zone)
	for i := range starts {
		starts[i] = p.start(p.nth(date, i-1))
	}
	return starts
}

// nth returns the first date of the n-th period after the one of t's date. Dates are midnights in UTC.
func (p periods) nth(t time.Time, n int) time.Time {
	y, m, d := t.Date()
	switch p.unit {
	case Week:
		d -= (int(t.Weekday()) + 7 - p.first) % 7
		d += 7 * n
	case Month:
		if d < p.firstOf(y, m) {
			m--
		}
		m += time.Month(n)
		d = p.firstOf(y, m)
	case Year:
		y, m, d = y+n, time.January, 1
	default:
		d += n
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// firstOf returns the day on which the period begins that begins in a month, which may be below 1 or above 12.
func (p periods) firstOf(y int, m time.Month) int {
	return min(p.first, time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day())
}

// start returns the first instant whose date in the zone is the given one or a later one:
// some zones skip midnight, or a whole day.
func (p periods) start(date time.Time) int64 {
	for t := date.Add(-48 * time.Hour).In(p.zone); ; { // every zone is less than that from UTC
		_, offset := t.Zone()
		at := date.Add(-time.Duration(offset) * time.Second)
		if at.Before(t) {
			at = t
		}
		_, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) { // so Go 1.26 says on the last day of leap years from 2040 on
			end = t.Add(time.Hour)
		}
		if end.IsZero() || at.Before(end) {
			return at.UnixMicro()
		}
		t = end
	}
}

// dates are the periods that windows are. Windows without dates have nil.
type dates struct {
	periods
	wall  func(int64) int64 // see [Spec]
	cache atomic.Pointer[[4]int64]
}

// on returns the time on the clock that the dates follow; without dates, now.
func (d *dates) on(now int64) int64 {
	if d == nil || d.wall == nil {
		return now
	}
	return d.wall(now)
}

// present returns the start of the current period and the start of the next, on the clock
// that the dates follow.
func (d *dates) present(now int64) (start, next int64) { return d.find(d.on(now)) }

// find returns the start of the period that contains an instant, and the start of the next.
func (d *dates) find(now int64) (start, next int64) {
	known := d.cache.Load()
	if known == nil || now < known[0] || now >= known[3] {
		all := d.around(now)
		known = &all
		d.cache.Store(known)
	}
	i := 0
	for now >= known[i+1] {
		i++
	}
	return known[i], known[i+1]
}

// end returns when the period that began at start ends, on the clock of now. If it is not the
// present one, that is now: nothing of it counts.
func (d *dates) end(start, now int64) int64 {
	on := d.on(now)
	present, next := d.find(on)
	if start != present {
		return now
	}
	return now + next - on
}
