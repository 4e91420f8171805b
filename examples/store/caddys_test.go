//go:build unix

package store

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// asCaddy is set in the environment of a process that is Caddy, and not these tests.
const asCaddy = "DIANA_STORE_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// serve starts a Caddy whose limit of 5 requests an hour is counted in a directory, and returns a
// function that sends it a request.
func serve(t *testing.T, limits string) (status func() int, kill func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "diana") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, config := filepath.Join(dir, "http"), filepath.Join(dir, "Caddyfile")
	text := fmt.Sprintf("{\nadmin off\nrate_limit {\nstore directory %s\n}\n}\nhttp:// {\nbind unix/%s\nrate_limit {\nzone all {\nkey static\nrule 5/1h\n}\n}\nrespond ok\n}\n", limits, socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	caddy := exec.CommandContext(t.Context(), os.Args[0], "run", "--config", config)
	var log bytes.Buffer
	caddy.Stderr = &log
	caddy.Env = append(os.Environ(), asCaddy+"=1", "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	if err := caddy.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() { _ = caddy.Process.Kill(); _ = caddy.Wait() }
	t.Cleanup(kill)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil { // a socket may be there before somebody listens
			_ = conn.Close()
			break
		}
		if time.Now().After(end) {
			kill()
			t.Fatalf("Caddy does not listen: %s", log.Bytes())
		}
	}
	return func() int {
		resp, err := client.Get("http://localhost/")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}, kill
}

// TestTwoCaddys counts together in two processes, and goes on counting after one was killed.
func TestTwoCaddys(t *testing.T) {
	limits := t.TempDir()
	first, kill := serve(t, limits)
	second, _ := serve(t, limits)
	for n := range 8 {
		ask, want := first, http.StatusOK
		if n%2 == 1 {
			ask = second
		}
		if n >= 5 {
			want = http.StatusTooManyRequests
		}
		if got := ask(); got != want {
			t.Errorf("request %d: status %d, want %d", n+1, got, want)
		}
	}
	kill()
	third, _ := serve(t, limits)
	for _, ask := range []func() int{second, third} {
		if got := ask(); got != http.StatusTooManyRequests {
			t.Errorf("after a Caddy was killed: status %d, want it denied", got)
		}
	}
}
