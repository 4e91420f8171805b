// Package beside runs Caddys that have Diana and another plugin named rate_limit, whichever of both is
// initialized first.
package beside

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// caddyfile limits /ours by Diana, and the rest by the other plugin's directive.
const caddyfile = `{
	admin unix/%[1]s/admin
	storage file_system %[1]s/storage
	auto_https off
	diana {
		max_keys 1000
	}
}
http:// {
	bind unix/%[1]s/site
	diana /ours* {http.request.host} 3/1h
	%[2]s
	respond ok
}
`

// beside is a binary with another plugin.
type beside struct {
	folder string // of its package
	other  string // its package that has the name rate_limit
	first  bool   // whether it is initialized before Diana
	line   string // its directive, which admits one request for /theirs
	theirs func(first, second *http.Response) bool
}

// limits reports that the second of two requests was denied.
func limits(first, second *http.Response) bool {
	return first.StatusCode == http.StatusOK && second.StatusCode == http.StatusTooManyRequests
}

var binaries = []beside{
	{"both", "github.com/mholt/caddy-ratelimit", false, "rate_limit {\n zone x {\n match {\n path /theirs*\n }\n key static\n events 1\n window 1h\n }\n }", limits},
	{"russell", "github.com/RussellLuo/caddy-ext/ratelimit", true, "route /theirs* {\n rate_limit {query.id} 1r/m\n }", limits},
	{"taken", "github.com/dianalimiter/beside/first", true, "rate_limit /theirs*", func(first, _ *http.Response) bool {
		return first.StatusCode == http.StatusOK && first.Header.Get("Theirs") == "yes"
	}},
}

// TestBeside validates and runs a configuration that uses both plugins.
func TestBeside(t *testing.T) {
	for _, b := range binaries {
		t.Run(b.folder, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "d") // the path of a socket is short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			bin := filepath.Join(dir, "caddy")
			if out, err := exec.Command("go", "build", "-tags", "nobadger,nomysql,nopgx", "-ldflags", "-s -w", "-o", bin, "./"+b.folder).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			b.checkOrder(t, bin)
			b.checkModules(t, bin)
			config := filepath.Join(dir, "Caddyfile")
			if err := os.WriteFile(config, fmt.Appendf(nil, caddyfile, dir, b.line), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, command := range []string{"validate", "rate-limit validate"} {
				args := append(strings.Fields(command), "--config", config, "--adapter", "caddyfile")
				if out, err := exec.Command(bin, args...).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", command, err, out)
				}
			}
			b.serve(t, bin, config, dir)
		})
	}
}

// checkOrder checks which plugin is initialized first.
func (b *beside) checkOrder(t *testing.T, bin string) {
	t.Helper()
	c := exec.Command(bin, "version")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ours := bytes.Index(out, []byte("init github.com/dianalimiter/diana @"))
	theirs := bytes.Index(out, []byte("init "+b.other+" @"))
	if ours < 0 || theirs < 0 || (theirs < ours) != b.first {
		t.Errorf("%s is initialized at %d, Diana at %d, want it first: %v", b.other, theirs, ours, b.first)
	}
	if bytes.Contains(out, []byte("INFO")) {
		t.Errorf("a command that runs no configuration logs:\n%s", out)
	}
}

// checkModules checks to whom the names belong.
func (b *beside) checkModules(t *testing.T, bin string) {
	t.Helper()
	out, err := exec.Command(bin, "list-modules", "--packages").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"http.handlers.rate_limit": false, "http.handlers.diana": true, "diana": true} {
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `( .*)?$`).Find(out)
		if ours := bytes.Contains(line, []byte(" github.com/dianalimiter/diana")); line == nil || ours != want {
			t.Errorf("%q: %s is Diana's: %v, want %v", line, name, ours, want)
		}
	}
	if regexp.MustCompile(`(?m)^rate_limit `).Match(out) {
		t.Error("the app rate_limit is registered, though the name is another plugin's")
	}
}

// serve runs the configuration, sends requests to both plugins, and counts the lines about the name.
func (b *beside) serve(t *testing.T, bin, config, dir string) {
	t.Helper()
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, bin, "run", "--config", config, "--adapter", "caddyfile")
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		cancel()
		close(ended)
	}()
	defer func() {
		cancel()
		<-ended
		if n := strings.Count(log.String(), "the name rate_limit belongs to another plugin"); n != 1 || t.Failed() {
			t.Errorf("%d lines about the name, want 1:\n%s", n, &log)
		}
	}()
	get := func(socket, path string) *http.Response {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, socket))
		}}}
		for {
			r, err := client.Get("http://localhost" + path)
			if err == nil {
				return r
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	for i, want := range []int{200, 200, 200, 429} {
		if r := get("site", "/ours"); r.StatusCode != want {
			t.Errorf("request %d for /ours: %d, want %d", i+1, r.StatusCode, want)
		}
	}
	if first, second := get("site", "/theirs?id=1"), get("site", "/theirs?id=1"); !b.theirs(first, second) {
		t.Errorf("/theirs: %d %v, then %d", first.StatusCode, first.Header, second.StatusCode)
	}
	for _, path := range []string{"/rate_limit/zones", "/metrics"} {
		r := get("admin", path)
		body, _ := io.ReadAll(r.Body)
		if r.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("auto-")) {
			t.Errorf("%s: %d %s", path, r.StatusCode, body)
		}
	}
}
