package test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// idleSite returns a site with idle deadlines of 200 ms for reading and for writing, and clients for it by
// the version of HTTP.
func idleSite(t *testing.T, directives string) (*site, map[int]*http.Client) {
	s := serve(t, setup{global: "servers :8001 {\nprotocols h1 h2c\ntimeouts {\nread_body_idle 200ms\nwrite_idle 200ms\n}\n}", site: directives})
	two := &http.Transport{Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(two.CloseIdleConnections)
	return s, map[int]*http.Client{1: s.client, 2: {Transport: two, Timeout: time.Minute}}
}

// TestWaitsAreNotIdle has requests wait by max_wait for longer than read_body_idle, before and after their
// bodies are read: the next handler gets all of the body.
func TestWaitsAreNotIdle(t *testing.T) {
	s, clients := idleSite(t, `
		rate_limit {
			zone z {
				key {path} {body.k}
				key_missing share
				rule 1/600ms gcra
				max_wait 30s
			}
		}
		`+handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			_, err = fmt.Fprintf(w, "%d", n)
		}
		return err
	}))
	for version, client := range clients {
		for name, size := range map[string]int{"none": 0, "small": 20, "large": 1 << 20} {
			for _, chunked := range []bool{false, true} {
				body := []byte(`{"k":"a","x":"` + strings.Repeat("a", max(0, size-16)) + `"}`)
				if size == 0 {
					body = nil
				}
				send := func() (string, time.Duration) {
					var from io.Reader = bytes.NewReader(body)
					if chunked {
						from = io.MultiReader(from) // of unknown length
					}
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("%s/%d/%s/%v", s.url, version, name, chunked), from)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", asJSON)
					begun := time.Now()
					resp, err := client.Do(r)
					if err != nil {
						return err.Error(), 0
					}
					defer resp.Body.Close()
					text, err := io.ReadAll(resp.Body)
					if err != nil || resp.ProtoMajor != version {
						t.Errorf("HTTP/%d: %v", resp.ProtoMajor, err)
					}
					return fmt.Sprint(resp.StatusCode, " ", string(text)), time.Since(begun)
				}
				waited := false
				for range 20 { // until one has waited: the machine may be slow
					text, took := send()
					if want := fmt.Sprint("200 ", len(body)); text != want {
						t.Fatalf("HTTP/%d, %s, chunked %v: %s, want %s", version, name, chunked, text, want)
					}
					if waited = took > 300*time.Millisecond; waited {
						break
					}
				}
				if !waited {
					t.Errorf("HTTP/%d, %s, chunked %v: no request waited", version, name, chunked)
				}
			}
		}
	}
}

// TestStreamsMayPause has streams pause for longer than the idle deadlines: they are read to the end, and
// cost what they tell there.
func TestStreamsMayPause(t *testing.T) {
	s, clients := idleSite(t, `
		rate_limit {
			zone z {
				key {path}
				cost 5
				rule 1000/1h
				settle {response.body.total}
				hold
				in_flight 1
			}
		}
		`+handle(t, "*", func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 3 {
			if n > 0 {
				time.Sleep(450 * time.Millisecond)
			}
			if _, err := fmt.Fprintf(w, "data: {\"total\":%d}\n\n", 10+n); err != nil {
				return err
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		}
		return nil
	}))
	for version, client := range clients {
		path := fmt.Sprintf("/%d", version)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(`{"k":1}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if n := strings.Count(string(text), "data: "); err != nil || n != 3 || resp.ProtoMajor != version {
			t.Errorf("HTTP/%d: %d events, %v, want 3", resp.ProtoMajor, n, err)
		}
		until(t, "the charge", func() bool { return used(s, path) == 12 })
	}
}

// TestIdleBodies has clients stop within their bodies: a request that ends by read_body_idle is charged as
// that of a client that left, and its permit is free. Clients that leave while they wait are noticed.
func TestIdleBodies(t *testing.T) {
	s, _ := idleSite(t, `
		rate_limit {
			zone z {
				key {path}
				rule 1000/1h
				count_status 401
				in_flight 1
			}
			zone wait {
				match path /wait
				key {body.k}
				key_missing share
				rule 1/30m
				max_wait 1h
			}
		}
		`+handle(t, "*", func(_ http.ResponseWriter, r *http.Request) error {
		_, err := io.Copy(io.Discard, r.Body)
		return err
	}))
	for i := range 3 {
		conn, r := s.begin("POST /stall HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n0123456789")
		resp, err := http.ReadResponse(r, nil)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode < http.StatusBadRequest {
				t.Errorf("status %d of a body that stopped", resp.StatusCode)
			}
		}
		_ = conn.Close()
		ended(t)
		if n := used(s, "/stall"); n != i+1 {
			t.Errorf("%d charged, want %d", n, i+1)
		}
	}
	s.want(req{path: "/wait"}, 200)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := s.try(req{path: "/wait", ctx: ctx})
		left <- err
	}()
	until(t, "the request to wait", func() bool { return waiting() == 1 })
	leave()
	if <-left == nil {
		t.Error("the client got an answer")
	}
	ended(t)
}
