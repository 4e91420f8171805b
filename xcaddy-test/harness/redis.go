package harness

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// observer is the client name of the harness's connections, which [Redis.Connections]
// omits.
const observer = "observer"

// Redis is a running redis-server.
type Redis struct {
	*redis.Client // the harness's own, with all permissions

	Addr string // host:port

	port int
	dir  string
	args []string
	cmd  *exec.Cmd
}

// StartRedis starts a redis-server on a free port with the additional command-line
// options args. At the end of the test every key must have a TTL.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	r := &Redis{port: FreePort(t), dir: t.TempDir(), args: args}
	r.Addr = fmt.Sprintf("127.0.0.1:%d", r.port)
	r.Client = redis.NewClient(&redis.Options{
		Addr: r.Addr, ClientName: observer, Password: option(args, "--requirepass"), MaxRetries: -1,
	})
	r.Start(t)
	t.Cleanup(func() {
		if r.cmd != nil {
			r.CheckTTLs(t)
			r.Kill(t)
		}
		_ = r.Close()
	})
	return r
}

var scriptCalls = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// Calls returns the number of script calls since the start of the server.
func (r *Redis) Calls(t testing.TB) int {
	t.Helper()
	stats, err := r.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if m := scriptCalls.FindStringSubmatch(stats); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}

// Start starts the server. After Kill it has the same port and is empty.
func (r *Redis) Start(t testing.TB) {
	t.Helper()
	args := append([]string{
		"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", r.dir, "--logfile", "redis.log",
	}, r.args...)
	cmd := exec.Command("redis-server", args...)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start redis-server: %v", err)
	}
	r.cmd = cmd
	Until(t, Patience, "redis-server answers", func() bool {
		return r.Ping(context.Background()).Err() == nil
	})
}

// Kill kills the server with SIGKILL.
func (r *Redis) Kill(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatalf("kill redis-server: %v", err)
	}
	_ = r.cmd.Wait() // always an error: killed
	r.cmd = nil
}

// Stall suspends the server: connections stay open and nothing is answered.
func (r *Redis) Stall(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("stall redis-server: %v", err)
	}
}

// Resume resumes a stalled server.
func (r *Redis) Resume(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("resume redis-server: %v", err)
	}
	Until(t, Patience, "redis-server answers", func() bool {
		return r.Ping(context.Background()).Err() == nil
	})
}

// CheckTTLs fails the test if a key in any database has no TTL, except for what is kept beside a
// document of rules.
func (r *Redis) CheckTTLs(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	for db := range 16 {
		conn := r.Conn()
		if err := conn.Select(ctx, db).Err(); err != nil {
			t.Fatalf("select %d: %v", db, err)
		}
		keys := conn.Scan(ctx, 0, "*", 1000).Iterator()
		for keys.Next(ctx) {
			beside := strings.HasSuffix(keys.Val(), ":changes") || strings.HasSuffix(keys.Val(), ":previous")
			if ttl := conn.PTTL(ctx, keys.Val()).Val(); ttl == -1 && !beside {
				t.Errorf("key %q in database %d has no TTL", keys.Val(), db)
			}
		}
		if err := keys.Err(); err != nil {
			t.Fatalf("scan: %v", err)
		}
		// SELECT is a state of the connection, which returns to the pool.
		conn.Select(ctx, 0)
		_ = conn.Close()
	}
}

// Maintenance is a part of every key that an instance uses for maintenance, such as
// its heartbeat about every second, and not for requests.
const Maintenance = ":{instances}"

// Dumps returns the DUMP of every key, except those of maintenance.
func (r *Redis) Dumps(t testing.TB) map[string]string {
	t.Helper()
	ctx := context.Background()
	dumps := map[string]string{}
	keys := r.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		if strings.Contains(keys.Val(), Maintenance) {
			continue
		}
		// A key may expire between the two commands.
		if dump, err := r.Dump(ctx, keys.Val()).Result(); err == nil {
			dumps[keys.Val()] = dump
		}
	}
	if err := keys.Err(); err != nil {
		t.Fatalf("scan: %v", err)
	}
	return dumps
}

// Connections returns the connections except those of the harness.
func (r *Redis) Connections(t testing.TB) (others []string) {
	t.Helper()
	list, err := r.ClientList(context.Background()).Result()
	if err != nil {
		t.Fatalf("client list: %v", err)
	}
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " name="+observer+" ") {
			others = append(others, line)
		}
	}
	return others
}

func option(args []string, name string) string {
	for i, arg := range args[:max(0, len(args)-1)] {
		if arg == name {
			return args[i+1]
		}
	}
	return ""
}
