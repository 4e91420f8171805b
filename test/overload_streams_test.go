package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestPlacesOfStreams opens sixteen streams and an upgraded connection beside short requests: each holds its place until it ends or its
// client hangs up. Caddy closes upgraded connections on a reload, and lets streams go on. What streams do after their first byte
// does not move the limit.
func TestPlacesOfStreams(t *testing.T) {
	end := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := 0; ; i++ {
				fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
				select {
				case <-end:
					return
				case <-r.Context().Done():
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		case "/upgrade":
			echo(w, r)
		}
	}))
	defer up.Close()
	site := "rate_limit {\nzone z {\nin_flight adaptive\nmax_wait 1m\n}\n}\nreverse_proxy " + up.Listener.Addr().String()
	s := serve(t, setup{site: site})
	const limit = 20 // of new places, as long as they are never all taken
	wantInFlight := func(n int) {
		t.Helper()
		until(t, fmt.Sprint(n, " requests in flight"), func() bool { return s.places().InFlight == n })
		if p := s.places(); p.Limit != limit || p.Last != nil {
			t.Errorf("limit %d, moved by %+v: want %d, not moved", p.Limit, p.Last, limit)
		}
	}
	short := func() {
		t.Helper()
		parallel(2, func(int) {
			for range 30 {
				if a, err := s.try(req{}); err != nil || a.status != 200 {
					t.Errorf("a short request beside streams: %v, %v", a, err)
				}
			}
		})
	}

	var streams []io.Reader
	var hangUp []func()
	for range limit - 4 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := s.client.Do(req{path: "/stream", ctx: ctx}.http(s))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body := bufio.NewReader(resp.Body)
		if line, err := body.ReadString('\n'); line != "data: 0\n" {
			t.Fatalf("the first line of a stream is %q, %v", line, err)
		}
		streams, hangUp = append(streams, body), append(hangUp, cancel)
	}
	status, leave := s.upgradeTo("/upgrade")
	defer leave()
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("status %d: want the connection upgraded", status)
	}
	short()
	wantInFlight(17)
	for _, cancel := range hangUp[:12] {
		cancel()
	}
	wantInFlight(5)
	s.reload(setup{site: site + "\n"})
	wantInFlight(4) // the upgraded connection is closed with its configuration
	short()
	wantInFlight(4)
	close(end)
	for _, r := range streams[12:] {
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Errorf("a stream whose configuration was replaced: %v", err)
		}
	}
	wantInFlight(0)
}
