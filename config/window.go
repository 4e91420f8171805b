package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/configure/option"
)

// Window is the window of a rule: a duration, or a period of the calendar.
type Window struct {
	// Duration is the length; 0 for a period.
	Duration time.Duration

	// Period is the period; 0: the window is the duration.
	Period algorithms.Period
}

// MaxWindow is the longest window, about 142 years: with a longer one, instants would
// exceed the integers that Lua represents exactly.
const MaxWindow = 1 << 52 * time.Microsecond

// errWindow says what a window may be.
var errWindow = errors.New("want a positive duration such as s, 10s, 1h30m, d or w, or a period of calendar: day, week, month or year")

var errTooLong = errors.New("want at most " + option.Longest)

// ParseWindow parses the window of a rate: a duration in Caddy's syntax, whose number is 1 if it
// has none, a number of weeks such as 2w, or a period.
func ParseWindow(text string) (Window, error) {
	s := text
	if p, ok := algorithms.ParsePeriod(s); ok {
		return Window{Period: p}, nil
	}
	if s != "" && !strings.ContainsRune("0123456789.", rune(s[0])) {
		s = "1" + s
	}
	d, err := caddy.ParseDuration(s)
	if weeks, ok := strings.CutSuffix(s, "w"); ok {
		const week = 7 * 24 * time.Hour
		var n int64
		if n, err = strconv.ParseInt(weeks, 10, 64); n > math.MaxInt64/int64(week) {
			return Window{}, errTooLong
		}
		d = time.Duration(n) * week
	}
	switch {
	case option.TooLong(s):
		return Window{}, errTooLong
	case err != nil || d <= 0:
		return Window{}, windowMeant(text)
	case d < time.Microsecond:
		return Window{}, errors.New("want at least 1us")
	}
	return Window{Duration: d}, nil
}

// windowMeant returns the error of a text that is no window.
func windowMeant(s string) error {
	meant := meantWindow(s)
	period := map[string]string{"d": ", or day with calendar", "w": ", or week with calendar", "month": " with calendar", "year": " with calendar"}
	if unit := strings.TrimLeft(meant, "0123456789."); meant != "" {
		return fmt.Errorf("did you mean %s", meant+period[unit])
	}
	return errWindow
}

// meantWindow returns the window that was probably meant by a text that is none; empty: nobody knows.
func meantWindow(s string) string {
	lower := strings.ToLower(s)
	unit := strings.TrimLeft(lower, "0123456789. ")
	number := strings.TrimSpace(lower[:len(lower)-len(unit)])
	unit = strings.TrimPrefix(strings.Trim(unit, " _-"), "calendar_")
	if unit == "" && option.IsWhole(number) && number != "0" {
		return number + "s"
	}
	for _, unit := range []string{unit, strings.TrimSuffix(unit, "s")} {
		if period := periodsInWords[unit]; period != "" && (number == "" || number == "1") {
			return period
		}
		if short := unitsInWords[unit]; short != "" {
			return number + short
		}
		if len(unit) == 1 && strings.ContainsAny(unit, "smhdw") && lower != s {
			return number + unit
		}
	}
	return ""
}

// RateMeant returns the rate that was probably meant by words such as 100 per minute, or 100rpm; empty: nobody
// knows. What is wrong with a word that has a window, ParseRate says.
func RateMeant(words []string) string {
	if _, window, _ := strings.Cut(words[0], "/"); strings.Trim(window, "0123456789") != "" {
		return ""
	}
	m := spoken.FindStringSubmatch(strings.ToLower(strings.Join(words, " ")))
	if m == nil {
		return ""
	}
	window := m[2] + m[3]
	if _, err := ParseWindow(window); err != nil {
		window = meantWindow(window)
	}
	if window == "" || !option.IsWhole(m[1]) {
		return ""
	}
	return m[1] + "/" + window
}

// spoken is a rate in words: a count, what is counted, a word for per, and the window, perhaps with a space
// after its number.
var spoken = regexp.MustCompile(`^(\d+) ?(?:requests?|reqs?|r|calls?|hits?|times)? ?(?:per|p|an?|each|every|in|/|:|-|,)? ?(\d*) ?([a-z]+)(?: |$)`)

// periodsInWords are the periods of calendar that are no durations, in other words.
var periodsInWords = map[string]string{"month": "month", "monthly": "month", "mo": "month", "mth": "month", "mnth": "month", "year": "year", "yearly": "year", "annually": "year", "annual": "year", "annum": "year", "yr": "year", "y": "year"}

// unitsInWords are the units of durations, as words without the s of several.
var unitsInWords = map[string]string{
	"hourly": "h", "minutely": "m", "daily": "d", "weekly": "w", "secondly": "s",
	"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "hr": "h", "day": "d", "week": "w", "wk": "w", "msec": "ms", "millisecond": "ms",
}

// check checks the range.
func (w Window) check() error {
	switch d := w.Duration; {
	case w.Period != 0:
		return nil
	case d < time.Microsecond || d%time.Microsecond != 0:
		return fmt.Errorf("window %v: want at least 1us, in whole microseconds%s", d, seconds(d))
	case d > MaxWindow:
		return fmt.Errorf("window %v: want at most %v", d, MaxWindow)
	}
	return nil
}

// seconds says what to write in place of a duration so short that it is probably a number in JSON
// that was meant in seconds; empty: it is not so short.
func seconds(d time.Duration) string {
	if d <= 0 || d >= time.Millisecond {
		return ""
	}
	return fmt.Sprintf("; a number in JSON is in nanoseconds: for seconds, write \"%ds\"", d.Nanoseconds())
}

// microseconds returns the length; of a period, the longest.
func (w Window) microseconds() int64 {
	if w.Period != 0 {
		return w.Period.Longest()
	}
	return w.Duration.Microseconds()
}

// MarshalJSON implements json.Marshaler.
func (w Window) MarshalJSON() ([]byte, error) {
	if w.Period != 0 {
		return json.Marshal(w.Period.String())
	}
	return json.Marshal(int64(w.Duration))
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *Window) UnmarshalJSON(b []byte) error {
	var name string
	if json.Unmarshal(b, &name) == nil {
		if p, ok := algorithms.ParsePeriod(name); ok {
			*w = Window{Period: p}
			return nil
		}
	}
	var d caddy.Duration
	if err := d.UnmarshalJSON(b); err != nil {
		return fmt.Errorf("%s: want a duration such as 10s, 1m, 1h30m or 1d, or a period of calendar: day, week, month or year", b[:min(len(b), 64)])
	}
	*w = Window{Duration: time.Duration(d)}
	return nil
}
