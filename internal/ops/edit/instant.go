package edit

import (
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// aTime says what [Ending] parses.
const aTime = "a duration such as 1h, a day such as friday or 2027-01-31 (until its end), or a time such as 18:00 or 2027-01-31T18:00"

// Ending parses the time at the end of words, where each day and each time without a zone is of
// the location of now: a duration from now, a day, whose end is meant, or an instant. until may
// stand before it. It returns how many of the words are the time (0: there is none), and whether
// it is a duration.
func Ending(words []string, now time.Time) (end time.Time, n int, lasts bool) {
	for n = min(2, len(words)); n > 0; n-- {
		text := strings.ToLower(strings.Join(words[len(words)-n:], " "))
		d, err := caddy.ParseDuration(text)
		if lasts = err == nil && d > 0; lasts {
			end = now.Add(d)
		} else {
			end = instant(text, now)
		}
		if end.IsZero() {
			continue
		}
		if before := len(words) - n - 1; before >= 0 && words[before] == "until" {
			n++
		}
		return end, n, lasts
	}
	return end, 0, false
}

// instant returns the end of a day, or an instant; zero: the text is neither.
func instant(text string, now time.Time) time.Time {
	if days, ok := daysUntil(text, now); ok {
		return time.Date(now.Year(), now.Month(), now.Day()+days+1, 0, 0, 0, 0, now.Location())
	}
	if t, err := time.Parse("15:04", text); err == nil { // the next one
		at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
		if !at.After(now) {
			at = time.Date(now.Year(), now.Month(), now.Day()+1, t.Hour(), t.Minute(), 0, 0, now.Location())
		}
		return at
	}
	text = strings.ToUpper(text) // T and Z
	if t, err := time.ParseInLocation(time.DateOnly, text, now.Location()); err == nil {
		return t.AddDate(0, 0, 1)
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t
		}
	}
	return time.Time{}
}

// daysUntil returns the number of days until today, tomorrow or the next day of a name, which may
// be today.
func daysUntil(text string, now time.Time) (days int, ok bool) {
	switch text {
	case "today":
		return 0, true
	case "tomorrow":
		return 1, true
	}
	for d := time.Sunday; d <= time.Saturday; d++ {
		if name := strings.ToLower(d.String()); text == name || text == name[:3] {
			return int(d-now.Weekday()+7) % 7, true
		}
	}
	return 0, false
}
