package test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/replay"
)

// TestReplayOfLeavers has clients leave before the upstream answers, for which Caddy logs 499. A zone with
// count_status charges them, and a replay of the log does, too.
func TestReplayOfLeavers(t *testing.T) {
	entered := make(chan bool)
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- true
		<-r.Context().Done()
	}))
	defer up.Close()
	c := setup{site: `
		rate_limit {
			zone failed {
				rule 2/1h
				count_status 401
			}
			zone served {
				key static
				rule 3/1h
				count_status 2xx
			}
		}
		respond /ok 200
		reverse_proxy ` + up.URL}
	s := serve(t, c)
	s.want(req{path: "/ok"}, 200)
	for range 2 {
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			<-entered
			leave()
		}()
		if a, err := s.try(req{ctx: ctx}); err == nil {
			t.Fatalf("status %d, want no response", a.status)
		}
		ended(t)
	}
	s.want(req{path: "/ok"}, 429)
	var statuses []any
	until(t, "the access log", func() bool { return len(s.log.lines(t, "handled request")) == 4 })
	for _, line := range s.log.lines(t, "handled request") {
		statuses = append(statuses, line["status"])
	}
	if statuses[1] != 499. || statuses[2] != 499. {
		t.Errorf("statuses %v in the log, want 499 of those who left", statuses)
	}

	dir := t.TempDir()
	log, config := filepath.Join(dir, "access.log"), filepath.Join(dir, "Caddyfile")
	for path, text := range map[string]string{log: s.log.text(), config: c.caddyfile(s)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	zones := replayZones(t, config, "caddyfile")
	var denied []int
	zones.Each = func(l *replay.Line, denies bool) {
		if denies {
			denied = append(denied, l.Status)
		}
	}
	logs := replay.Logs{Paths: []string{log}, Each: func(l *replay.Line) error { zones.Add(l); return nil }}
	if _, err := logs.Read(); err != nil {
		t.Fatal(err)
	}
	zones.End()
	if len(denied) != 1 || denied[0] != http.StatusTooManyRequests {
		t.Errorf("the replay denied the requests with %v, want the one with 429", denied)
	}
}
