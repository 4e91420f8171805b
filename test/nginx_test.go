package test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/freeport"
	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// TestNginxAsks runs the nginx of the recipe before an upstream, and the Caddy that it asks.
func TestNginxAsks(t *testing.T) {
	if out, err := command(t, ".ci/need", "nginx").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := snippets(t)
	at := slices.IndexFunc(all, func(sn snippet) bool { return sn.lang == "nginx" && sn.file == "docs/recipes.md" })
	if at < 1 || all[at-1].lang != "caddyfile" {
		t.Fatal("docs/recipes.md has no configuration of nginx behind a Caddyfile")
	}
	s := newSite(t)
	adapted, err := trace.Adapt(all[at-1].text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.loadText(adapted, trace.Place{}); err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	startNginx(t, address, strings.NewReplacer("listen 80;", "listen "+address+";",
		"http://localhost:9000", "http://"+documentedUpstream(t), "http://localhost:8080", s.url).Replace(all[at].text))

	// One client is as good as another: each has an address of this machine.
	get := func(from, path string) (int, string) {
		client := &http.Client{Transport: &http.Transport{
			DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext, DisableKeepAlives: true,
		}}
		r, err := client.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.StatusCode, r.Header.Get("Retry-After")
	}
	for _, c := range []struct {
		from, path string
		status     int
		waits      bool
	}{
		{"127.0.0.1", "/api/a?b=1", 200, false},
		{"127.0.0.1", "/api/b", 200, false},
		{"127.0.0.1", "/api/c", 200, false},
		{"127.0.0.1", "/api/a", 429, true},
		{"127.0.0.1", "/other", 200, false},
		{"127.0.0.1", "/missing", 404, false}, // the upstream's own answers stay
		{"127.0.0.2", "/api/a", 200, false},
	} {
		if status, wait := get(c.from, c.path); status != c.status || (wait != "") != c.waits {
			t.Errorf("%s of %s: %d, Retry-After %q, want %d, waits %v", c.path, c.from, status, wait, c.status, c.waits)
		}
	}
}

// startNginx starts an nginx with a server, and waits until it listens.
func startNginx(t *testing.T, address, server string) {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("daemon off;\nmaster_process off;\npid %[1]s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n", dir)
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += fmt.Sprintf("%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config+server+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx"
	}
	startProxy(t, address, command(t, program, "-e", "stderr", "-p", dir, "-c", file))
}

// startProxy starts a proxy, and waits until it listens. It stops the proxy after the test.
func startProxy(t *testing.T, address string, cmd *exec.Cmd) {
	t.Helper()
	name := filepath.Base(cmd.Path)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if err := <-ended; err == nil {
			t.Errorf("%s ended before it was killed", name)
		}
	})
	until(t, name+" listens", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s: %v\n%s", name, err, said.String())
		default:
		}
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}
