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
	_ "github.com/dianalimiter/diana/benchmarks/floor"
	_ "github.com/dianalimiter/diana/benchmarks/redisrate"
)

// asCaddy makes this test binary run as Caddy, so that nothing has to be built.
const asCaddy = "HTTPBENCH_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// TestVariantsAreMeasured runs two short rounds of some variants in real processes and
// checks that the results are complete, whatever the figures.
func TestVariantsAreMeasured(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asCaddy, "1")
	some := regexp.MustCompile("^(bare-again|redis-gcra|redis_rate|redis_rate-autopipeline|redis_rate-full_duplex|redis-denied|redis-leased|floor-.*)$")
	o := options{rounds: 2, each: 20 * time.Millisecond, lone: 20 * time.Millisecond, connections: 4, only: some, diana: self, peers: self}
	var out bytes.Buffer
	if err := run(t.Context(), o, t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]int)
	for line := range strings.Lines(out.String()) {
		name, _, _ := strings.Cut(line, "\t")
		lines[name]++
	}
	want := map[string]int{"BenchmarkLatency/ping": o.rounds}
	for i := range servers {
		s := servers[i].only(some)
		if s == nil {
			continue
		}
		for _, v := range s.variants {
			if !v.latencyOnly {
				want["BenchmarkHTTP/"+v.name] = 2
				if s.every > 1 {
					want["BenchmarkHTTP/"+v.name] = 1 // all are measured in the first round
				}
			}
			if v.latency || v.latencyOnly {
				want["BenchmarkLatency/"+v.name] = o.rounds
			}
		}
	}
	for name, n := range want {
		if lines[name] != n {
			t.Errorf("%s is listed %d times, want %d:\n%s", name, lines[name], n, out.String())
		}
	}
	for _, other := range []string{"local", "mholt", "bare-mholt"} {
		if lines["BenchmarkHTTP/"+other] > 0 {
			t.Errorf("%s was not selected", other)
		}
	}
}

// TestVariantsAreRead checks that the Caddyfiles of all servers adapt, except that of
// the Caddy with another rate_limit.
func TestVariantsAreRead(t *testing.T) {
	for _, s := range servers {
		if s.name == "mholt" {
			continue
		}
		var ports []int
		for i := range s.variants {
			ports = append(ports, 8080+i)
		}
		text := s.caddyfile(ports, "127.0.0.1:6379")
		if _, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil); err != nil {
			t.Errorf("%s: %v\n%s", s.name, err, text)
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
					_, _ = server.Write([]byte(p)) // the client may have closed the connection
				}
			}()
			status, err := newConn(client, "test", 1, false).answer()
			if status != c.status && err == nil || (err == nil) != (c.status != 0) {
				t.Errorf("status %d, %v: want %d", status, err, c.status)
			}
		})
	}
}
