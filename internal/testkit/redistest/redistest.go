// Package redistest starts real Redis servers for tests.
package redistest

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/freeport"
	"github.com/dianalimiter/diana/internal/testkit/testdir"
)

// Server is a running redis-server.
type Server struct {
	Addr string // host:port
	Port int    // its port
	cmd  *exec.Cmd
	args []string
	env  []string
	tb   testing.TB

	output bytes.Buffer  // of the process; read only after ended is closed
	ended  chan struct{} // closed when the process has ended
}

// FreePort returns a port of 127.0.0.1 that is held until the tests end, as are those at the offsets
// from it, see [freeport.Get].
func FreePort(tb testing.TB, offsets ...int) int {
	tb.Helper()
	port, err := freeport.Get(offsets...)
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// Start runs redis-server on a free loopback port, without persistence, and stops it
// at the end of the test. It fails the test if redis-server is not installed: tests
// that need Redis are never skipped.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return startOn(tb, FreePort(tb), args...)
}

func startOn(tb testing.TB, port int, args ...string) *Server {
	tb.Helper()
	s := &Server{tb: tb}
	s.begin(port, args)
	return s
}

func (s *Server) begin(port int, args []string) {
	s.tb.Helper()
	s.setPort(port)
	s.args = append([]string{
		"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", testdir.New(s.tb),
	}, args...)
	if asksForDebug() {
		s.args = append([]string{"--enable-debug-command", "yes"}, s.args...)
	}
	s.Run()
	s.tb.Cleanup(s.Kill)
}

// asksForDebug says whether the installed server accepts DEBUG only where that is configured, as from 7.0 on.
var asksForDebug = sync.OnceValue(func() bool {
	version, _ := exec.Command("redis-server", "--version").Output()
	return !strings.Contains(string(version), " v=6.")
})

func (s *Server) setPort(port int) {
	s.Port, s.Addr = port, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Run restarts the server after Kill, on the same port, and waits until it serves.
func (s *Server) Run() {
	s.tb.Helper()
	s.cmd = exec.Command("redis-server", s.args...) //nolint:gosec // a test's own arguments
	s.cmd.Env = append(os.Environ(), s.env...)
	s.output.Reset()
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatalf("redis-server: %v (make test installs it)", err)
	}
	cmd, ended := s.cmd, make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the output has the reason
	}()
	deadline := time.Now().Add(time.Minute)
	for {
		c, err := net.DialTimeout("tcp", s.Addr, 100*time.Millisecond)
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-ended:
			s.tb.Fatalf("redis-server on %s ended:\n%s", s.Addr, &s.output)
		default:
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("redis-server does not listen on %s: %v", s.Addr, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
		s.cmd = nil
	}
}

// Ended reports whether the server ended without Kill, and its output.
func (s *Server) Ended() (output string, ended bool) {
	if s.cmd == nil {
		return "", false
	}
	select {
	case <-s.ended:
		return s.output.String(), true
	default:
		return "", false
	}
}

// Pid returns the server's process ID.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Stall suspends the server: its connections stay open and nothing is answered until
// Resume.
func (s *Server) Stall() { s.signal(syscall.SIGSTOP) }

// Resume resumes a stalled server.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("redis-server on %s: %v: %v", s.Addr, sig, err)
	}
}

// busy is how long a client waits for a server on a busy machine.
const busy = 30 * time.Second

// Client returns a client that is closed at the end of the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, Protocol: 2, DisableIdentity: true, DialTimeout: busy, ReadTimeout: busy})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// CheckTTLs fails the test if a key has no TTL.
func (s *Server) CheckTTLs() {
	s.tb.Helper()
	c := s.Client()
	keys, err := c.Keys(context.Background(), "*").Result()
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, k := range keys {
		if ttl := c.PTTL(context.Background(), k).Val(); ttl == -1 {
			s.tb.Errorf("key %s has no TTL", k)
		}
	}
}

// askTimeout is how long a server may take to answer a question of this package.
const askTimeout = 5 * time.Second

// ask returns the text that a command returns, or "" if the server does not answer in time
// or with an error.
func (s *Server) ask(command ...any) string {
	text, _ := s.do(command).(string)
	return text
}

// must runs a command that fails the test unless the server does it.
func (s *Server) must(command ...any) {
	s.tb.Helper()
	if got := s.do(command); got != "OK" {
		s.tb.Fatalf("redis-server on %s: %v: %v, want OK", s.Addr, command[:2], got)
	}
}

// do returns the reply to a command, or an error.
func (s *Server) do(command []any) any {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true, MaxRetries: -1, PoolSize: 1})
	defer func() { _ = c.Close() }()
	reply, err := c.Do(ctx, command...).Result()
	if err != nil {
		return err
	}
	return reply
}

// until waits for a state of servers. ok asks each of them with a deadline of its own.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	const most = time.Minute
	for deadline := time.Now().Add(most); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("redistest: not within %v: %s", most, what)
		}
	}
}
