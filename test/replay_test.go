package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/cli"
	"github.com/dianalimiter/diana/internal/replay"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// TestReplayWitness has a Caddy under random load write its access log, and checks that a replay of
// it with the same configuration denies the requests that were denied: but for a few, as a line
// says to some microseconds only when its request was decided.
func TestReplayWitness(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
		time.Sleep(time.Duration(ms) * time.Millisecond)
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
	}))
	defer upstream.Close()
	c := setup{site: `
	map {header.X-Plan} {plan.cost} {
		gold 1
		default 2
	}
	handle_path /v1/* {
		rate_limit {
			zone sliding {
				key {path}
				rule 60/1s sliding_window
				rule 400/10s sliding_window buckets 5
			}
			zone meter {
				key {client_ip}
				cost {plan.cost}
				rule 25/1s gcra burst 30
				override 10.0.0.1 {
					rule 5/1s gcra burst 8
				}
				override 10.0.0.2 unlimited
			}
		}
		reverse_proxy ` + upstream.URL + `
	}
	handle /login {
		rate_limit {
			zone login {
				key {client_ip}
				count_status 401
				rule 4/2s fixed_window block 1500ms
			}
			zone busy {
				key {client_ip}
				in_flight 3
			}
		}
		reverse_proxy ` + upstream.URL + `
	}
	handle {
		rate_limit {
			zone token {
				key {header.X-Account}
				key_missing share
				rule 12/1s token_bucket burst 20 step 250ms
				rule 50/5s sliding_log
			}
			zone watch {
				rule 1/1m
				shadow
			}
			zone leaky {
				key {method}
				rule 40/1s leaky_bucket burst 10 nodelay
			}
		}
		reverse_proxy ` + upstream.URL + `
	}`}
	s := serve(t, c)
	r := storestest.Seeded(t)
	const clients = 12
	seconds := 6
	if v := os.Getenv("DIANA_WITNESS"); v != "" {
		seconds, _ = strconv.Atoi(v)
	}
	seeds := make([]uint64, clients)
	for i := range seeds {
		seeds[i] = r.Uint64()
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	parallel(clients, func(i int) {
		n := seeds[i]
		roll := func(of uint64) uint64 {
			n = n*6364136223846793005 + 1442695040888963407
			return n >> 33 % of
		}
		for time.Now().Before(end) {
			path := []string{"/v1/a", "/v1/b", "/login", "/login", "/x", "/y"}[roll(6)]
			status := 200
			if path == "/login" && roll(2) == 0 {
				status = 401
			}
			if _, err := s.try(req{
				method: []string{"GET", "POST"}[roll(2)], ip: fmt.Sprintf("10.0.0.%d", roll(5)), path: fmt.Sprintf("%s?ms=%d&status=%d", path, roll(20), status),
				header: map[string]string{"X-Plan": []string{"gold", "free"}[roll(2)], "X-Account": []string{"", "a", "b"}[roll(3)]},
			}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(roll(40)) * time.Millisecond)
		}
	})
	ended(t)
	dir := t.TempDir()
	log, config := filepath.Join(dir, "access.log"), filepath.Join(dir, "Caddyfile")
	until(t, "the last line of the access log", func() bool {
		return strings.Count(s.log.text(), "handled request") > 0
	})
	for path, text := range map[string]string{log: s.log.text(), config: c.caddyfile(s)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, err := cli.Open(config, "caddyfile", "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	zones, err := replay.NewZones(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	denied, differ := 0, 0
	zones.Each = func(l *replay.Line, denies bool) {
		if l.Status == http.StatusTooManyRequests {
			denied++
		}
		if denies != (l.Status == http.StatusTooManyRequests) {
			differ++
			t.Logf("%s %s by %s at %d: status %d, replayed denied: %v", l.Method, l.URI, l.ClientIP, l.Begin, l.Status, denies)
		}
	}
	logs := replay.Logs{Paths: []string{log}, Each: func(l *replay.Line) error { zones.Add(l); return nil }}
	read, err := logs.Read()
	if err != nil {
		t.Fatal(err)
	}
	zones.End()
	t.Logf("%d requests, %d denied, %d differ; %+v", read.Lines, denied, differ, zones.Result(&read))
	if read.Unread > 0 || read.Lines < 300 || denied < 50 || differ > int(read.Lines/100) {
		t.Errorf("%+v", read)
	}
}
