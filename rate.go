package diana

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// parseRate reads <count>[r]/<window>, such as 10/s, 100r/m or 1000/1h30m.
func parseRate(s string) (limit int64, window time.Duration, err error) {
	count, rest, found := strings.Cut(s, "/")
	if !found {
		return 0, 0, fmt.Errorf("rate %q: want <count>/<window>, such as 10/s", s)
	}
	limit, err = strconv.ParseInt(strings.TrimSuffix(count, "r"), 10, 64)
	if err != nil || limit < 0 || strings.HasPrefix(count, "+") {
		return 0, 0, fmt.Errorf("rate %q: count %q: want a whole number, as in 10/s", s, count)
	}
	if rest != "" && (rest[0] < '0' || rest[0] > '9') {
		rest = "1" + rest
	}
	window, err = parseWindow(rest)
	if err != nil || window <= 0 {
		return 0, 0, fmt.Errorf("rate %q: window %q: want a positive duration such as s, 10s, 1h30m, d or w", s, strings.TrimPrefix(rest, "1"))
	}
	return limit, window, nil
}

// parseWindow reads a duration as Caddy writes them, and weeks.
func parseWindow(s string) (time.Duration, error) {
	if weeks, ok := strings.CutSuffix(s, "w"); ok {
		n, err := strconv.ParseInt(weeks, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/int64(7*24*time.Hour) {
			return 0, fmt.Errorf("duration %q: want such as 10s, 1h30m, 1d or 2w", s)
		}
		return time.Duration(n) * 7 * 24 * time.Hour, nil
	}
	return caddy.ParseDuration(s)
}

// defaultAlgorithm is the algorithm of a rule for which none is named: exact
// while that costs at most 1 KiB a key.
func defaultAlgorithm(limit int64) string {
	if limit <= 128 {
		return "sliding_log"
	}
	return "sliding_window"
}
