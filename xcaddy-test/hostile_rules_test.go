package xcaddytest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestHostileDocuments checks that documents that are too large, too deep, full of
// control characters or changed a hundred times per second affect no request and do
// not flood the log, and that the last valid one is in force in the end.
func TestHostileDocuments(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	c := harness.StartCaddy(t, harness.Config{Global: onRedisWith(redis, "rules redis diana:rules {\ninterval 1h\n}", "timeout 10s"), Site: limitedSite})
	push(t, redis, limitDocument("api", 70_000))
	everywhere(t, []*harness.Caddy{c}, "api", 70_000, harness.Patience)
	more, stop := untilStopped(t)
	done := make(chan []harness.Shot)
	go func() { done <- harness.Pace(100, more, c.URL+"/limited?k=a") }()
	for document, want := range map[string]string{
		strings.Repeat(" ", 2<<20):                                         "over 1048576 bytes",
		strings.Repeat(`{"zones":`, 100_000):                               "exceeded max depth",
		strings.Repeat("[", 1<<20):                                         "exceeded max depth",
		`{"zones": {"` + "\\u0000\\u001b[2J\\n" + `": 7}}`:                 `/zones/\x00\x1b[2J\n: 7: want an object`,
		`{"zones": {"api": {"rules": [{"limit": 1e99, "window": "1s"}]}}}`: "/zones/api/rules/0/limit: ",
		`{"zones": {"` + strings.Repeat("x", 1<<19) + `": 7}}`:             "/zones/xxx",
		"\xff\xfe\x00":  "want UTF-8",
		"<html></html>": "not JSON",
	} {
		push(t, redis, document)
		harness.Until(t, harness.Patience, fmt.Sprintf("%.40q to be rejected", document), func() bool {
			return strings.Contains(zonesOf(t, c).Rules.Error, want)
		})
	}
	unknown := `{"zones": {"\u0000\u001b[31m<script>": {}, "api": {}}}`
	push(t, redis, unknown)
	harness.Until(t, harness.Patience, "the unknown zone to be listed", func() bool {
		u := zonesOf(t, c).Rules.Unknown
		return len(u) == 1 && u[0] == "\x00\x1b[31m<script>"
	})
	if out := rateLimit(t, c, "zones"); strings.ContainsAny(out, "\x00\x1b") || !strings.Contains(out, `"\x00\x1b[31m<script>"`) {
		t.Errorf("control characters in the output: %q", out)
	}
	ctx, begun := context.Background(), time.Now()
	for i := range 300 {
		document := limitDocument("api", 60_000+i)
		if i%3 == 0 {
			document = limitDocument("api", 0) // rejected
		}
		redis.Set(ctx, "diana:rules", document, time.Hour)
		redis.Publish(ctx, "diana:rules", "")
		time.Sleep(10 * time.Millisecond)
	}
	if took := everywhere(t, []*harness.Caddy{c}, "api", 60_299, harness.Patience); took > soon {
		late(t, "the last of many changes took %v", took)
	}
	changing := time.Since(begun)
	stop()
	shots := <-done
	if ok := len(harness.With(http.StatusOK, shots)); ok != len(shots) {
		t.Errorf("%d of %d requests passed", ok, len(shots))
	}
	lines, longest := 0, 0
	for line := range strings.Lines(c.Log()) {
		if strings.Contains(line, "remote rules") {
			lines, longest = lines+1, max(longest, len(line))
		}
	}
	// Documents are read at most every 100 ms, and each may be worth two lines.
	if most := 40 + 2*int(changing/(100*time.Millisecond)); lines > most || longest > 2000 {
		t.Errorf("%d log lines about rules in %v of changes, want at most %d, the longest of %d bytes", lines, changing, most, longest)
	}
}
