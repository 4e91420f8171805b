package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/config"
)

// TestRateWindow parses windows without a number, with a fraction and in weeks.
func TestRateWindow(t *testing.T) {
	for rate, want := range map[string]time.Duration{
		"1/s": time.Second, "1/.5s": time.Second / 2, "1/0.5s": time.Second / 2, "1/.5d": 12 * time.Hour, "1/1.5h": 90 * time.Minute,
		"1/µs": time.Microsecond, "1/w": 7 * 24 * time.Hour, "1/2w": 14 * 24 * time.Hour,
		"1/-1s": 0, "1/+1s": 0, "1/.s": 0, "1/.5w": 0, "1/.": 0, "1/": 0, "1/0s": 0, "1/-.5s": 0,
	} {
		if _, w, err := config.ParseRate(rate); w.Duration != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %v, %v; want %v", rate, w.Duration, err, want)
		}
	}
}

// TestUnitsInWords checks that a unit in words is told as it is written here.
func TestUnitsInWords(t *testing.T) {
	for rate, want := range map[string]string{
		"10/second": "did you mean s", "10/Seconds": "did you mean s", "10/sec": "did you mean s", "10/min": "did you mean m", "600/10min": "did you mean 10m",
		"10/2 hours": "did you mean 2h", "10/2hours": "did you mean 2h", "10/hr": "did you mean h", "10/3days": "did you mean 3d", "10/fortnight": "want a positive",
	} {
		if _, _, err := config.ParseRate(rate); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rate, err, want)
		}
	}
}
