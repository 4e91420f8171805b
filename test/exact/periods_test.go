package exact_test

import (
	"archive/zip"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
)

// strangeZones skip or repeat midnights, moved across the date line, or change by less than
// an hour.
var strangeZones = []string{
	"UTC", "Europe/Berlin", "America/Havana", "America/St_Johns", "America/Sao_Paulo", "Africa/Cairo", "Asia/Beirut", "Asia/Tehran",
	"Asia/Amman", "America/Asuncion", "America/Santiago", "Atlantic/Azores", "Pacific/Apia", "Pacific/Kwajalein", "Pacific/Kiritimati",
	"Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca", "Asia/Gaza", "Africa/Monrovia",
}

// TestPeriods walks through a hundred years of time zones, and compares each day, week, month
// and year with the dates of Go's time package: a period begins at the first instant
// whose date is in it or later. DIANA_OPS of a million and more take every zone of the database.
func TestPeriods(t *testing.T) {
	t.Parallel()
	zones := strangeZones
	if operations(t) >= 1_000_000 {
		zones = everyZone(t)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d zones", seed, len(zones))
	r := rand.New(rand.NewPCG(seed, 0))
	from := time.Date(1970, 1, 3, 0, 0, 0, 0, time.UTC)
	begun := 0
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		w := newPeriodWalk(t, name, zone, from)
		for at := from; at.Year() < 2070; {
			next := at.Add(time.Duration(30+r.IntN(120)) * time.Minute)
			w.step(at, next)
			at = next
		}
		if begun += w.begun; t.Failed() {
			return
		}
	}
	if want := len(zones) * 40_000; begun < want {
		t.Errorf("%d periods have begun, want %d at least", begun, want)
	}
}

// periodWalk goes through the periods of a zone.
type periodWalk struct {
	t      *testing.T
	zone   *time.Location
	rules  []algorithms.Dated
	latest []int   // number of the latest period that has begun, by rule
	starts []int64 // when it began; 0: before the walk
	begun  int
}

func newPeriodWalk(t *testing.T, name string, zone *time.Location, from time.Time) *periodWalk {
	t.Helper()
	w := &periodWalk{t: t, zone: zone, starts: make([]int64, 4)}
	for p := algorithms.Day; p <= algorithms.Year; p++ {
		r := compiled(t, &algorithms.Calendar{TimeZone: name}, algorithms.Spec{Limit: 1, Window: p.Longest(), Period: p, Cost: 1})
		w.rules = append(w.rules, r.(algorithms.Dated))
		w.latest = append(w.latest, number(p, from.In(zone)))
	}
	return w
}

// TestPeriodsFrom goes through the days of eight years, and compares each with the first days of weeks and months
// that begin on another day than usual. A month without that day begins on its last.
func TestPeriodsFrom(t *testing.T) {
	zone, err := time.LoadLocation("America/Havana") // which skips midnights
	if err != nil {
		t.Fatal(err)
	}
	weekdays := []string{"Sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}
	for p, days := range map[algorithms.Period]int{algorithms.Week: 7, algorithms.Month: 31} {
		for first := range days {
			from := strconv.Itoa(first + 1)
			if p == algorithms.Week {
				from = weekdays[first]
			}
			begins := func(y int, m time.Month, d int) bool {
				if p == algorithms.Week {
					return int(time.Date(y, m, d, 12, 0, 0, 0, time.UTC).Weekday()) == first
				}
				return d == min(first+1, time.Date(y, m+1, 0, 12, 0, 0, 0, time.UTC).Day())
			}
			r, _ := compiled(t, &algorithms.Calendar{TimeZone: "America/Havana", From: from}, algorithms.Spec{Limit: 1, Window: p.Longest(), Period: p, Cost: 1}).(algorithms.Dated)
			var began int64
			for noon := time.Date(2023, 1, 1, 12, 0, 0, 0, zone); noon.Year() < 2031; noon = noon.AddDate(0, 0, 1) {
				start, next := r.Present(noon.UnixMicro())
				if y, m, d := noon.Date(); begins(y, m, d) {
					if began = start; time.UnixMicro(start).In(zone).YearDay() != noon.YearDay() {
						t.Fatalf("%v from %s: %v is in that from %v, want one from this day", p, from, noon, time.UnixMicro(start).In(zone))
					}
				}
				if began != 0 && (start != began || next <= noon.UnixMicro()) {
					t.Fatalf("%v from %s: %v is in that from %v to %v, want from %v", p, from, noon, time.UnixMicro(start).In(zone), time.UnixMicro(next).In(zone), time.UnixMicro(began).In(zone))
				}
			}
		}
	}
}

// TestCalendarsFrom checks which periods have the same counts, and which days begin none.
func TestCalendarsFrom(t *testing.T) {
	kind := func(from string) string { return (&algorithms.Calendar{From: from}).Kind() }
	if kind("") != kind("monday") || kind("") != kind("1") || kind("Sunday") != kind("sunday") || kind("15") == kind("") || kind("15") == kind("16") {
		t.Error("periods that begin on other days have the same kind, or the same ones another")
	}
	for from, periods := range map[string]string{
		"": "day week month year", "15": "month", "31": "month", "sunday": "week", "Monday": "week", "32": "", "0": "", "015": "", "-1": "", "+1": "", "someday": "",
	} {
		for p := algorithms.Day; p <= algorithms.Year; p++ {
			_, err := (&algorithms.Calendar{From: from}).Compile(algorithms.Spec{Limit: 1, Window: p.Longest(), Period: p, Cost: 1})
			if loads := strings.Contains(periods, p.String()); loads != (err == nil) {
				t.Errorf("a %v from %q: %v", p, from, err)
			}
		}
	}
}

// number numbers the periods in ascending order.
func number(p algorithms.Period, t time.Time) int {
	y, m, d := t.Date()
	switch p {
	case algorithms.Year:
		return y
	case algorithms.Month:
		return 12*y + int(m)
	}
	days := int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400)
	if p == algorithms.Week {
		return (days + 3) / 7 // 1970-01-01 was a Thursday
	}
	return days
}

// step goes on to the next instant.
func (w *periodWalk) step(at, next time.Time) {
	for i, r := range w.rules {
		p := algorithms.Period(i + 1)
		for w.has(p, at, next) {
			w.begin(p, r, at, next)
		}
		if start, end := r.Present(next.UnixMicro()); w.starts[i] != 0 && (start != w.starts[i] || end <= next.UnixMicro()) {
			w.t.Fatalf("%v of %v in %v: from %v to %v, want from %v", p, next.In(w.zone), w.zone, time.UnixMicro(start).In(w.zone), time.UnixMicro(end).In(w.zone), time.UnixMicro(w.starts[i]).In(w.zone))
		}
	}
}

// has reports whether a later period begins after at and until next: a change of the clock may
// end it again before next.
func (w *periodWalk) has(p algorithms.Period, at, next time.Time) bool {
	latest := w.latest[p-1]
	if number(p, next.In(w.zone)) > latest {
		return true
	}
	_, changed := at.In(w.zone).ZoneBounds()
	return changed.After(at) && !changed.After(next) && number(p, changed.Add(-1).In(w.zone)) > latest
}

// begin finds the first instant of the next period.
func (w *periodWalk) begin(p algorithms.Period, r algorithms.Dated, at, next time.Time) {
	if _, changed := at.In(w.zone).ZoneBounds(); changed.After(at) && !changed.After(next) {
		if number(p, changed.Add(-1).In(w.zone)) > w.latest[p-1] {
			next = changed.Add(-time.Microsecond)
		} else if number(p, changed.In(w.zone)) > w.latest[p-1] {
			next = changed
		}
	}
	lo, hi := at.UnixMicro(), next.UnixMicro()
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; number(p, time.UnixMicro(mid).In(w.zone)) > w.latest[p-1] {
			hi = mid
		} else {
			lo = mid
		}
	}
	_, end := r.Present(hi - 1)
	start, _ := r.Present(hi)
	if w.starts[p-1] != 0 && end != hi || start != hi {
		w.t.Fatalf("%v in %v begins at %v: the one before ends at %v, and it begins at %v", p, w.zone, time.UnixMicro(hi).In(w.zone), time.UnixMicro(end).In(w.zone), time.UnixMicro(start).In(w.zone))
	}
	w.latest[p-1], w.starts[p-1] = number(p, time.UnixMicro(hi).In(w.zone)), hi
	w.begun++
}

// everyZone returns the names of all zones in the database of Go.
func everyZone(t *testing.T) (names []string) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" {
			names = append(names, f.Name)
		}
	}
	if len(names) < 500 {
		t.Fatalf("%d zones", len(names))
	}
	return names
}

// TestCalendarFollowsTheWallClock sets the system's clock, which the clock of the process
// ignores: forward into the next period, and back, which takes what is used along.
func TestCalendarFollowsTheWallClock(t *testing.T) {
	set := int64(0)
	r := compiled(t, &algorithms.Calendar{}, algorithms.Spec{
		Limit: 3, Window: day, Period: algorithms.Day, Cost: 1, Wall: func(now int64) int64 { return now + set },
	})
	k, now := newKey(t, []algorithms.Rule{r}), 20_000*day+5*hour
	for _, step := range []struct {
		set   int64
		admit bool
		reset int64
	}{
		{0, true, 19 * hour},
		{0, true, 19 * hour},
		{0, true, 19 * hour},
		{0, false, 19 * hour},
		{19*hour - 1, false, 1},
		{19 * hour, true, 24 * hour},
		{20 * hour, true, 23 * hour},
		{0, true, 19 * hour},
		{0, false, 19 * hour},
	} {
		set = step.set
		r.Repair(k.states[0], now)
		admit, v := k.decide(now, 1)
		if reset := v[0].ResetAfter; admit != step.admit || reset != step.reset {
			t.Errorf("set by %d: admitted %v, reset after %d, want %v and %d", set, admit, reset, step.admit, step.reset)
		}
	}
}
