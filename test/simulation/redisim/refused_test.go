package redisim

import (
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestServerRefusesAsRedis makes a real server refuse commands for each reason, and the
// simulated one for the same.
func TestServerRefusesAsRedis(t *testing.T) {
	for name, c := range map[string]struct {
		setup string // commands for the real server, after some keys are written
		sim   func(*Server)
		undo  string
	}{
		"memory":   {setup: "CONFIG SET maxmemory 1", sim: func(s *Server) { s.SetOOM(true) }, undo: "CONFIG SET maxmemory 0"},
		"replica":  {setup: "REPLICAOF 127.0.0.1 1", sim: func(s *Server) { s.SetReadOnly(true) }, undo: "REPLICAOF NO ONE"},
		"stale":    {setup: "CONFIG SET replica-serve-stale-data no;REPLICAOF 127.0.0.1 1", sim: func(s *Server) { s.SetReadOnly(true); s.MasterDown(true) }, undo: "REPLICAOF NO ONE"},
		"rights":   {setup: "ACL SETUSER default -set -getrange -publish", sim: func(s *Server) { s.Deny("SET", "getrange", "publish") }, undo: "ACL SETUSER default +@all"},
		"replicas": {setup: "CONFIG SET min-replicas-to-write 1", sim: func(s *Server) { s.RefuseWrites("NOREPLICAS Not enough good replicas to write.") }, undo: "CONFIG SET min-replicas-to-write 0"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			s := New(Options{Address: srv.Addr})
			w, admin := newTwin(t, srv, s), newTwin(t, srv, s)
			w.same("SET", "k", "1")
			w.same("SCRIPT", "LOAD", touchScript)
			for _, line := range strings.Split(c.setup, ";") {
				admin.alone(strings.Split(line, " ")...)
			}
			c.sim(s)
			w.refused()
			for _, line := range strings.Split(c.undo, ";") {
				admin.alone(strings.Split(line, " ")...)
			}
		})
	}
}

// refused sends commands, some of which a server refuses for any reason.
func (w *twin) refused() {
	w.t.Helper()
	for _, args := range [][]string{
		{"GET", "k"},
		{"SET", "k", "2"},
		{"SETRANGE", "k", "0", "x"},
		{"GETRANGE", "k", "0", "1"},
		{"DEL", "none"},
		{"PEXPIRE", "none", "1"},
		{"PING"},
		{"ECHO", "x"},
		{"PUBLISH", "a", "b"},
		{"SCRIPT", "EXISTS", "x"},
		{"CLIENT", "GETNAME"},
		{"SELECT", "0"},
		{"NOPE"},
		{"GET"},
		{"EVALSHA", sha1hex(touchScript), "1", "k"},
		{"EVAL", "return redis.call('GET', KEYS[1])", "1", "k"},
		{"EVAL", "return redis.pcall('SET', KEYS[1], 'x')", "1", "k"},
		{"EVAL", "return redis.pcall('GETRANGE', KEYS[1], 0, 1)", "1", "k"},
		{"EVAL", "local t = redis.pcall('SET', KEYS[1], 'x') return type(t) == 'table' and (t.err or t.ok)", "1", "k"},
		{"EVAL", "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], 'x')", "1", "k"},
		{"EVAL", "return 1", "0"},
		{"EVAL", "local ok, e = pcall(redis.call, 'SET', KEYS[1], 'x') return e", "1", "k"},
	} {
		w.same(args...)
	}
}

// TestPasswordsAsRedis sends commands before and after right and wrong passwords.
func TestPasswordsAsRedis(t *testing.T) {
	srv := redistest.Start(t, "--requirepass", "secret")
	s := New(Options{Address: srv.Addr, Password: "secret"})
	w := newTwin(t, srv, s)
	for _, line := range []string{
		"GET k", "PING", "NOPE", "GET", "HELLO 2", "HELLO 2 AUTH default wrong", "HELLO 2 AUTH other secret", "AUTH wrong", "AUTH default wrong",
		"AUTH", "GET k", "AUTH secret", "GET k", "AUTH wrong", "GET k", "CLIENT SETNAME x",
	} {
		w.same(strings.Split(line, " ")...)
	}
	w = newTwin(t, srv, s)
	_, _ = w.ask("HELLO", "2", "AUTH", "default", "secret")
	w.same("GET", "k")
}

// TestBusyAsRedis asks a server that runs a script without an end.
func TestBusyAsRedis(t *testing.T) {
	srv := redistest.Start(t, "--busy-reply-threshold", "1")
	s := New(Options{Address: srv.Addr})
	w := newTwin(t, srv, s)
	w.same("SET", "k", "1")
	busy := newTwin(t, srv, s)
	if _, err := busy.real.Write(encode([]string{"EVAL", "while true do end", "0"})); err != nil {
		t.Fatal(err)
	}
	admin := newTwin(t, srv, s)
	for !strings.HasPrefix(admin.realReply("GET", "k"), "-BUSY") {
		time.Sleep(5 * time.Millisecond)
	}
	s.Busy(true)
	for _, line := range []string{"GET k", "SET k 2", "PING", "EVALSHA x 0", "CLIENT GETNAME", "PUBLISH a b", "SELECT 0"} {
		w.same(strings.Split(line, " ")...)
	}
	admin.alone("SCRIPT", "KILL")
	for strings.HasPrefix(admin.realReply("GET", "k"), "-BUSY") {
		time.Sleep(5 * time.Millisecond)
	}
	s.Busy(false)
	w.same("GET", "k")
}

// TestSubscribersAsRedis subscribes and sends what a subscriber may not send.
func TestSubscribersAsRedis(t *testing.T) {
	srv := redistest.Start(t)
	s := New(Options{Address: srv.Addr})
	w, from := newTwin(t, srv, s), newTwin(t, srv, s)
	for _, line := range []string{"SUBSCRIBE a", "SUBSCRIBE a", "SUBSCRIBE b", "PING", "PING x", "GET k", "UNSUBSCRIBE a", "UNSUBSCRIBE none"} {
		w.same(strings.Split(line, " ")...)
	}
	from.same("PUBLISH", "a", "x")
	from.same("PUBLISH", "b", "hello")
	if got, want := w.next(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	w.same("UNSUBSCRIBE")
	w.same("PING")
	w.same("UNSUBSCRIBE")
	w.same("GET", "k")
}
