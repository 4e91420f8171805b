package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestCalendar uses up the limits of a month and of a day of time zones. The headers speak of the
// present periods, which Go's time package knows.
func TestCalendar(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone calendar {
					rule 2/month calendar Europe/Berlin
					rule 1000/day calendar name day
				}
			}
			respond ok`})
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		month := func(now time.Time) (length, left int) {
			y, m, _ := now.In(berlin).Date()
			from, to := time.Date(y, m, 1, 0, 0, 0, 0, berlin), time.Date(y, m+1, 1, 0, 0, 0, 0, berlin)
			return int(to.Sub(from).Seconds()), int(to.Sub(now).Seconds())
		}
		w, left := month(time.Now())
		a := s.want(req{ip: "10.0.0.1"}, 200, 200, 429)
		s.wantHeader(a, "RateLimit-Policy", fmt.Sprintf(`"calendar";q=2;w=%d, "calendar.day";q=1000;w=86400`, w))
		s.between(a, "Retry-After", left-60, left+1)
		k := s.key("GET", "calendar", "10.0.0.1")
		if len(k.Rules) != 2 || k.Rules[0].Period != "month" || k.Rules[0].Window != float64(w) || k.Rules[0].Remaining != 0 || k.Rules[1].Remaining != 998 {
			t.Errorf("the key's rules are %+v", k.Rules)
		}
		rules := s.zones().Zones[0].Rules
		if text := rules[0].String(); text != "2/month calendar Europe/Berlin" {
			t.Errorf("the rule is shown as %q", text)
		}
		if text := string(rules[0].Config); !strings.Contains(text, `"window": "month"`) {
			t.Errorf("its configuration is %s", text)
		}
	})
}

// TestCalendarByTheStoresClock uses a day of 25 hours by the clock of Redis, which is not that of this process. The
// headers and the admin API speak of that day.
func TestCalendarByTheStoresClock(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	clock.Set(time.Until(time.Date(2040, 10, 28, 12, 0, 0, 0, time.UTC)))
	s := serve(t, setup{app: backend{srv}.app(), site: "rate_limit {\nzone z {\nrule 2/day calendar Europe/Berlin\n}\n}\nrespond ok"})
	s.wantHeader(s.want(req{ip: "10.0.0.1"}, 200, 200, 429), "RateLimit-Policy", `"z";q=2;w=90000`)
	if r := s.key(http.MethodGet, "z", "10.0.0.1").Rules[0]; r.Window != 90_000 || r.Reset > 11*3600 {
		t.Errorf("the key's rule is %+v, want a window of 25 hours that ends in 11", r)
	}
}

// TestCalendarInDocuments replaces the rules of a zone by one that follows the calendar, and its
// time zone by another, which counts anew.
func TestCalendarInDocuments(t *testing.T) {
	s, _, _ := serveEditable(t)
	rule := func(zone string) string {
		return fmt.Sprintf(`{"zones": {"z": {"rules": [{"limit": 1, "window": "year", "algorithm": {"name": "calendar"%s}}]}}}`, zone)
	}
	for _, zone := range []string{"", `, "time_zone": "Asia/Tokyo"`} {
		s.wantAnswer(s.put(rule(zone), "If-Match", "*"), 200, `"valid": true`)
		until(t, "the rules", func() bool {
			now := s.zones().Zones[0].Rules[0]
			return now.Period == "year" && strings.Contains(string(now.Options), "Tokyo") == (zone != "")
		})
		s.want(req{}, 200, 429)
	}
	s.wantAnswer(s.put(rule(`, "time_zone": "Asia/Tokio"`), "If-Match", "*"), 422, `Asia/Tokio`)
}
