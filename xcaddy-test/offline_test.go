package xcaddytest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestOffline checks that explain and validate look at a configuration without running it: nothing
// connects to its store, nothing is written, and its environment need not be there.
func TestOffline(t *testing.T) {
	redis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	go func() {
		for {
			c, err := redis.Accept()
			if err != nil {
				return
			}
			t.Errorf("%v connects to the store", c.RemoteAddr())
			c.Close()
		}
	}()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Caddyfile", `{
	log {
		output file caddy.log
	}
	rate_limit {
		store redis `+redis.Addr().String()+` {
			password {env.REDIS_SECRET}
		}
		rules file missing.json
	}
}
example.com {
	log {
		output file access.log
	}
	tls internal
	map {header.X-Plan} {plan.cost} {
		gold 1
		default 2
	}
	rate_limit {
		zone api {
			match path /api/*
			rule 10/1m
			cost {plan.cost}
		}
	}
	reverse_proxy 127.0.0.1:9 {
		health_uri /
	}
}
`)
	write("rules.json", `{"zones": {"api": {"rules": [{"limit": 7, "window": "1m"}]}}}`)
	write("except.json", `{"zones": {"api": {"exceptions": [{"key": ["192.0.2.7"], "rules": [{"limit": 5, "window": "1m"}], "until": "2999-01-01T00:00:00Z"}]}}}`)
	write("wrong.json", `{"zones": {"api": {"rules": [{"limit": -7, "window": "1m"}]}}}`)
	write("wrong.caddyfile", "example.com {\n\trate_limit {client_ip} ten/s\n}\n")
	for _, c := range []struct {
		env, command string
		status       int
		want         string
	}{
		{"", "explain https://example.com/api/x --config Caddyfile", 0, "10/1m  0     0     10 "},
		{"", "explain https://example.com/api/x --config Caddyfile", 0, "from the file alone: nothing is counted"},
		{"", "zones --config Caddyfile --address localhost:1", 1, "no Caddy answers at localhost:1"},
		{"", "explain /api/x --config Caddyfile -H Host:example.com", 0, "10/1m  0     0     10 "},
		{"", "explain example.com/api/x --config Caddyfile --rules rules.json", 0, "7/1m   0     0     7 "},
		{"", "explain example.com/api/x --config Caddyfile --rules except.json --client-ip 192.0.2.7", 0, "5/1m   0     0     5 "},
		{"", "explain example.com/x --config Caddyfile", 0, "no rate limit applies"},
		{"", "explain example.com/api/x --json --config Caddyfile", 0, `"cost": 2`},
		{"", "explain example.com/x --config Caddyfile --rules wrong.json", 1, "limit -7"},
		{"REDIS_SECRET=x", "validate", 0, "valid, zones: 1"},
		{"REDIS_SECRET=x", "validate --json", 0, `"valid": true`},
		{"", "validate", 1, "store redis: password {env.REDIS_SECRET}"},
		{"", "validate --config wrong.caddyfile", 1, "wrong.caddyfile:2"},
		{"", "validate --config none", 1, "none"},
		{"", "validate rules.json --config Caddyfile", 0, "valid, zones: 1"},
		{"", "validate wrong.json --config Caddyfile", 1, "/zones/api/rules/0: limit -7"},
	} {
		cmd := exec.Command(harness.Binary(), append([]string{"rate-limit"}, strings.Fields(c.command)...)...)
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + filepath.Join(dir, "home"), c.env}
		out, err := cmd.CombinedOutput()
		if status := cmd.ProcessState.ExitCode(); status != c.status || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: status %d, %v, want %d and %q\n%s", c.command, status, err, c.status, c.want, out)
		}
		if strings.Contains(string(out), `{"level"`) || strings.Contains(string(out), "WARN") {
			t.Errorf("%s: lines of a log, or warnings\n%s", c.command, out)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 5 {
		t.Errorf("%v, %v: want only the files of this test", files, err)
	}
}
