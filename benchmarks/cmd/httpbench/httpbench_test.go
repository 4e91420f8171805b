package main

import (
	"bytes"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/dianalimiter/diana"

	_ "github.com/dianalimiter/diana/benchmarks/redisrate"
)

// asCaddy makes this test's binary a Caddy, so that nothing has to be built.
const asCaddy = "HTTPBENCH_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// TestVariantsAreMeasured runs two short rounds of some variants, as real
// processes. What is measured is left open: only that it was.
func TestVariantsAreMeasured(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asCaddy, "1")
	some := regexp.MustCompile("^(bare|redis-gcra|redis_rate|redis-denied|redis-leased)$")
	o := options{rounds: 2, each: 20 * time.Millisecond, connections: 4, only: some, diana: self, peers: self}
	var out bytes.Buffer
	if err := run(t.Context(), o, t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]int)
	for line := range strings.Lines(out.String()) {
		name, _, _ := strings.Cut(line, "\t")
		lines[name]++
	}
	want := []string{"BenchmarkLatency/ping"}
	for _, v := range variants {
		if !some.MatchString(v.name) {
			continue
		}
		want = append(want, "BenchmarkHTTP/"+v.name)
		if v.alone {
			want = append(want, "BenchmarkLatency/"+v.name)
		}
	}
	for _, name := range want {
		if lines[name] != o.rounds {
			t.Errorf("%s stands there %d times, want once a round:\n%s", name, lines[name], out.String())
		}
	}
}

// TestVariantsAreRead reads the Caddyfiles of all variants but those of the
// Caddy that has another rate_limit.
func TestVariantsAreRead(t *testing.T) {
	for _, v := range variants {
		if v.name == "mholt" {
			continue
		}
		text := v.caddyfile(8080, "127.0.0.1:6379")
		if _, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil); err != nil {
			t.Errorf("%s: %v\n%s", v.name, err, text)
		}
	}
}

func TestAnswersAreRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		pieces []string
		status int // 0: an error
	}{
		{"whole", []string{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"}, 200},
		{"without a body", []string{"HTTP/1.1 429 Too Many Requests\r\nServer: Caddy\r\nContent-Length: 0\r\n\r\n"}, 429},
		{"in pieces", []string{"HTTP/1.1 200 OK\r\nContent-", "Length: 5\r\n\r", "\nhel", "lo"}, 200},
		{"too much", []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello"}, 0},
		{"chunked", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}, 0},
		{"no HTTP", []string{"+PONG\r\n\r\n"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := net.Pipe()
			defer func() { _ = client.Close() }()
			go func() {
				defer func() { _ = server.Close() }()
				for _, p := range c.pieces {
					_, _ = server.Write([]byte(p)) // the client may have seen enough
				}
			}()
			status, err := newConn(client, "test", 1, false).answer()
			if status != c.status && err == nil || (err == nil) != (c.status != 0) {
				t.Errorf("status %d, %v: want %d", status, err, c.status)
			}
		})
	}
}
