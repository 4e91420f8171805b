package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// redisError is an error reply of a running Redis, and how to cause it.
type redisError struct {
	reply  string // the error
	kind   string // the class by which it is counted
	advice string // part of the advice in the log
	losses int    // how often Redis loses its data
	quick  bool
	begin  func(t *testing.T, c *redis.Conn)
	end    func(t *testing.T, c *redis.Conn)
}

// do returns a function that runs commands, one per line.
func do(commands ...string) func(t *testing.T, c *redis.Conn) {
	return func(t *testing.T, c *redis.Conn) {
		t.Helper()
		for _, line := range commands {
			command(t, c, line)
		}
	}
}

func command(t *testing.T, c *redis.Conn, line string) any {
	t.Helper()
	var args []any
	for _, word := range strings.Fields(line) {
		args = append(args, strings.Trim(word, `'`))
	}
	v, err := c.Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Errorf("%s: %v", line, err)
	}
	return v
}

// inBackground runs a slow command on a new connection.
func inBackground(srv *redistest.Server, args ...any) {
	c := redis.NewClient(&redis.Options{Addr: srv.Addr, ReadTimeout: time.Minute, MaxRetries: -1})
	go func() {
		defer func() { _ = c.Close() }()
		c.Do(context.Background(), args...)
	}()
}

// killConnections closes all connections except the caller's.
const killConnections = "client kill type normal skipme yes"

// busy is a script that runs for ARGV[1] microseconds.
const busy = `local t = redis.call('TIME') local s = t[1] * 1000000 + t[2] repeat t = redis.call('TIME') until t[1] * 1000000 + t[2] - s > tonumber(ARGV[1])`

func redisErrors(srv, other *redistest.Server) []redisError {
	return []redisError{
		{reply: "OOM", kind: "rejected", advice: "maxmemory", quick: true, begin: do("config set maxmemory 1"), end: do("config set maxmemory 0")},
		{reply: "NOAUTH", kind: "rejected", advice: "password", begin: do("config set requirepass x", "auth x", killConnections), end: do("config set requirepass ''")},
		{reply: "NOPERM", kind: "rejected", advice: "permission", quick: true, begin: do("acl setuser default -evalsha"), end: do("acl setuser default +@all")},
		{reply: "NOPERM in the script", kind: "rejected", advice: "permission", begin: do("acl setuser default -set"), end: do("acl setuser default +@all")},
		{reply: "BUSY", kind: "rejected", advice: "SCRIPT KILL", begin: func(t *testing.T, c *redis.Conn) {
			command(t, c, "config set busy-reply-threshold 1")
			inBackground(srv, "eval", busy, 0, 1_000_000)
		}, end: ready},
		{reply: "NOREPLICAS", kind: "rejected", advice: "min-replicas-to-write", begin: do("config set min-replicas-to-write 1"), end: do("config set min-replicas-to-write 0")},
		{reply: "max clients", kind: "rejected", advice: "maxclients", begin: do("config set maxclients 1", killConnections), end: do("config set maxclients 10000")},
		{reply: "MISCONF", kind: "rejected", advice: "disk", begin: misconfigured, end: do("config set stop-writes-on-bgsave-error no", "config set dbfilename dump.rdb")},
		{reply: "MASTERDOWN", kind: "away", advice: "replica", begin: do("config set replica-serve-stale-data no", "replicaof 127.0.0.1 1"), end: do("replicaof no one")},
		{reply: "READONLY", kind: "away", advice: "replica", losses: 1, begin: do("replicaof 127.0.0.1 " + strconv.Itoa(other.Port)), end: do("replicaof no one")},
		{reply: "WRONGTYPE", kind: "wrong", advice: "key_prefix", quick: true, begin: spoil, end: removeSpoiled},
	}
}

// loading kills Redis and restarts it with a data set that takes time to load.
func loading(t *testing.T, out *result) {
	srv := redistest.Start(t, "--dbfilename", "slow.rdb", "--key-load-delay", "400", "--loading-process-events-interval-bytes", "1024")
	s, c := begin(t, srv.Addr), srv.Client().Conn()
	defer func() { _ = c.Close() }()
	do("debug populate 3000 junk 200", "save")(t, c)
	before := s.errors()
	r := s.play(play{
		calm: 500 * time.Millisecond, fault: 600 * time.Millisecond, after: 2500 * time.Millisecond,
		begin: srv.Kill, end: func() {
			srv.Run()
			again := srv.Client()
			harness.Until(t, harness.Patience, "Redis has loaded", func() bool { return again.Ping(context.Background()).Err() == nil })
		},
	})
	s.checkAll(r, out, promise{wait: timeout + 10*time.Millisecond, losses: 1})
	checkRecovery(t, r, out, r.ended, 1500*time.Millisecond)
	s.checkKinds(before, out, "away")
}

// misconfigured makes Redis fail to save, because a folder has the name of its file.
func misconfigured(t *testing.T, c *redis.Conn) {
	dir := fmt.Sprint(command(t, c, "config get dir").([]any)[1])
	if err := os.MkdirAll(filepath.Join(dir, "folder", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.ConfigSet(context.Background(), "save", "3600 1").Err(); err != nil {
		t.Fatal(err)
	}
	do("config set dbfilename folder", "config set stop-writes-on-bgsave-error yes", "bgsave")(t, c)
}

// ready waits until Redis accepts commands again.
func ready(t *testing.T, c *redis.Conn) {
	harness.Until(t, harness.Patience, "Redis takes commands", func() bool { return c.Ping(context.Background()).Err() == nil })
}

// spoil overwrites the keys of one zone with another program's values.
func spoil(t *testing.T, c *redis.Conn) {
	const text = `redis.call('del', KEYS[1]) redis.call('lpush', KEYS[1], 'x') redis.call('expire', KEYS[1], 100)`
	for _, k := range zoneKeys(t, c) {
		if err := c.Eval(context.Background(), text, []string{k}).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Error(err)
		}
	}
}

func removeSpoiled(t *testing.T, c *redis.Conn) {
	for _, k := range zoneKeys(t, c) {
		do("del "+k)(t, c)
	}
}

func zoneKeys(t *testing.T, c *redis.Conn) []string {
	t.Helper()
	keys, err := c.Keys(context.Background(), "*:hot:*").Result()
	if err != nil {
		t.Error(err)
	}
	return keys
}

// errorRows runs one row for each error, on the same instances.
func errorRows(t *testing.T) {
	srv, other := redistest.Start(t, "--enable-protected-configs", "yes"), redistest.Start(t)
	s := begin(t, srv.Addr)
	for _, tr := range redisErrors(srv, other) {
		if full || tr.quick {
			runRow(t, row{
				name: strings.ReplaceAll(tr.reply, " ", "_"), fault: "Redis replies " + tr.reply, target: errorPromise + tr.kind,
				run: func(t *testing.T, out *result) { s.in(t, out, srv, tr) },
			})
		}
	}
}

const errorPromise = "as above; the log has advice, errors are counted as "

// in runs the load through an error.
func (s *scene) in(t *testing.T, out *result, srv *redistest.Server, tr redisError) {
	s.t = t
	c := srv.Client().Conn()
	defer func() { _ = c.Close() }()
	if err := c.Ping(context.Background()).Err(); err != nil { // connect before the fault
		t.Fatal(err)
	}
	before := s.errors()
	r := s.play(play{
		calm: 500 * time.Millisecond, fault: time.Second, after: 2300 * time.Millisecond,
		begin: func() {
			counted := func(i *harness.Caddy) float64 {
				n, _ := i.Metric(t, "caddy_rate_limit_store_errors_total", `kind="`+tr.kind+`"`)
				return n
			}
			calm := make(map[*harness.Caddy]float64)
			for _, i := range s.caddys {
				calm[i] = counted(i)
			}
			tr.begin(t, c)
			harness.Until(t, harness.Patience, "every instance to count the error as "+tr.kind, func() bool {
				return s.all(func(i *harness.Caddy) bool { return counted(i) > calm[i] })
			})
		},
		end: func() { tr.end(t, c) },
	})
	s.checkAll(r, out, promise{losses: tr.losses, wait: timeout + 10*time.Millisecond})
	checkRecovery(t, r, out, r.ended, 1500*time.Millisecond)
	s.checkKinds(before, out, tr.kind)
	s.checkAdvice(r, tr)
}

// errors returns the number of failed calls of all instances by class.
func (s *scene) errors() map[string]float64 {
	kinds := make(map[string]float64)
	for _, c := range s.caddys {
		for _, k := range []string{"timeout", "away", "rejected", "wrong"} {
			n, _ := c.Metric(s.t, "caddy_rate_limit_store_errors_total", `kind="`+k+`"`)
			kinds[k] += n
		}
	}
	return kinds
}

// checkKinds checks that errors were counted by the expected class and that no reply
// was counted as wrong unexpectedly.
func (s *scene) checkKinds(before map[string]float64, out *result, kind string) {
	s.t.Helper()
	after := s.errors()
	var all []string
	for k := range after {
		after[k] -= before[k]
		if after[k] > 0 {
			all = append(all, fmt.Sprintf("%s %.0f", k, after[k]))
		}
	}
	out.report("errors counted: %s", strings.Join(all, ", "))
	if after[kind] == 0 || kind != "wrong" && after["wrong"] > 0 {
		s.t.Errorf("errors counted %v, want of class %s", all, kind)
	}
}

// checkAdvice checks that every instance's log has the advice.
func (s *scene) checkAdvice(r *record, tr redisError) {
	s.t.Helper()
	for i := range s.caddys {
		found := false
		var seen []storeLine
		for _, l := range s.lines(r, i) {
			found = found || strings.Contains(l.Advice, tr.advice)
			seen = append(seen, l)
		}
		if !found {
			s.t.Errorf("instance %d: no advice with %q in %+v", i, tr.advice, seen)
		}
	}
}

// scriptFlushed flushes the script continually: no decision fails.
func scriptFlushed(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := begin(t, fmt.Sprintf("%s {\n\t\t\ttimeout %v\n\t\t}", srv.Addr, patient))
	before, stop := s.errors(), make(chan struct{})
	client := srv.Client()
	r := s.play(play{
		calm: 500 * time.Millisecond, fault: pick(4*time.Second, 2*time.Second), after: 2500 * time.Millisecond,
		begin: func() {
			go flushScripts(client, stop)
		},
		end: func() { close(stop) },
	})
	s.checkAll(r, out, promise{wait: patient + 10*time.Millisecond})
	checkRecovery(t, r, out, r.ended, 50*time.Millisecond)
	s.checkNoneAlone(r, before, out)
}

// wrongPassword changes Redis' password while the instances reconnect.
func wrongPassword(t *testing.T, out *result) {
	srv := redistest.Start(t, "--requirepass", "first")
	s := begin(t, srv.Addr+" {\n\t\t\tpassword first\n\t\t}")
	admin := redis.NewClient(&redis.Options{Addr: srv.Addr, Password: "first"})
	defer func() { _ = admin.Close() }()
	c := admin.Conn()
	defer func() { _ = c.Close() }()
	before := s.errors()
	r := s.play(play{
		calm: 500 * time.Millisecond, fault: 1200 * time.Millisecond, after: 2500 * time.Millisecond,
		begin: func() { do("config set requirepass second", killConnections)(t, c) },
		end:   func() { do("config set requirepass first")(t, c) },
	})
	s.checkAll(r, out, promise{wait: timeout + 10*time.Millisecond})
	checkRecovery(t, r, out, r.ended, 1500*time.Millisecond)
	s.checkKinds(before, out, "rejected")
	s.checkAdvice(r, redisError{advice: "password"})
	for _, caddy := range s.caddys {
		if strings.Contains(caddy.Log(), "first") {
			t.Error("the log shows the password")
		}
	}
}

// clusterDown temporarily removes the slots of all nodes of a cluster.
func clusterDown(t *testing.T, out *result) {
	nodes := redistest.StartCluster(t, 3)
	s := begin(t, nodes[0].Addr+" {\n\t\t\tcluster\n\t\t}")
	before := s.errors()
	ctx := context.Background()
	var slots []redis.ClusterSlot
	r := s.play(play{
		calm: 500 * time.Millisecond, fault: 1200 * time.Millisecond, after: 5 * time.Second,
		begin: func() {
			slots = nodes[0].Client().ClusterSlots(ctx).Val() //nolint:staticcheck // Redis 6.2 has nothing newer
			for _, n := range nodes {
				if err := n.Client().ClusterDelSlotsRange(ctx, 0, 16383).Err(); err != nil {
					t.Error(err)
				}
			}
		},
		end: func() {
			for _, sl := range slots {
				for _, n := range nodes {
					if n.Addr != sl.Nodes[0].Addr {
						continue
					}
					if err := n.Client().ClusterAddSlotsRange(ctx, sl.Start, sl.End).Err(); err != nil {
						t.Error(err)
					}
				}
			}
		},
	})
	s.checkAll(r, out, promise{wait: timeout + 10*time.Millisecond})
	checkRecovery(t, r, out, r.ended, 4*time.Second)
	s.checkKinds(before, out, "away")
	s.checkAdvice(r, redisError{advice: "slots"})
}
