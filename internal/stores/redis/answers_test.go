package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// Scripts that write and then fail, unless all is well: an error of Redis is raised, or returned as that of the script.
const (
	raises  = `redis.call('SET', KEYS[1], '', 'PX', 1000) return redis.call('PEXPIRE', KEYS[1], 5)`
	returns = `local _, e = pcall(function() redis.call('SET', KEYS[1], '', 'PX', 1000) redis.call('PEXPIRE', KEYS[1], 5) end)
		if e then return {err = type(e) == 'table' and e.err or e} end`
)

// TestServersAnswers has the server say what it says when it rejects something, and looks up each answer: its class, its
// advice, and whether a script may have charged before it.
func TestServersAnswers(t *testing.T) {
	srv := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	admin := srv.Client()
	do := func(command string) {
		t.Helper()
		var args []any
		for _, a := range strings.Fields(command) {
			args = append(args, a)
		}
		if err := admin.Do(context.Background(), args...).Err(); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	do("acl setuser limited on >secret ~* +@all")
	for _, c := range []struct {
		name, before, after string
		command             []any
		class               stores.Failure
		ran                 bool
		advice              string
	}{
		{"a right in the script", "acl setuser limited -pexpire", "acl setuser limited +@all", []any{"eval", raises, 1, "k"}, stores.FailRejected, true, missingRight},
		{"a right that the script looks at", "acl setuser limited -pexpire", "acl setuser limited +@all", []any{"eval", returns, 1, "k"}, stores.FailRejected, true, missingRight},
		{"the right of EVALSHA", "acl setuser limited -evalsha", "acl setuser limited +@all", []any{"evalsha", "0", 1, "k"}, stores.FailRejected, false, missingRight},
		{"the right of EVAL", "acl setuser limited -eval", "acl setuser limited +@all", []any{"eval", raises, 1, "k"}, stores.FailRejected, false, missingRight},
		{"the right of SCRIPT", "acl setuser limited -script", "acl setuser limited +@all", []any{"script", "load", raises}, stores.FailRejected, false, missingRight},
		{"the right of a key", "acl setuser limited resetkeys ~z", "acl setuser limited ~*", []any{"eval", raises, 1, "k"}, stores.FailRejected, false, missingRight},
		{"no such command in the script", "", "", []any{"eval", "redis.call('SET', KEYS[1], '', 'PX', 9) redis.call('nosuch')", 1, "k"}, stores.FailRejected, true, lacksCommand},
		{"an error of Lua", "", "", []any{"eval", "local x = nil; x.y = 1", 0}, stores.FailWrong, true, "cannot run Diana's script"},
		{"no script", "", "", []any{"evalsha", "0", 1, "k"}, stores.FailWrong, false, "does not know"},
		{"a full memory", "config set maxmemory 1", "config set maxmemory 0", []any{"eval", raises, 1, "k"}, stores.FailRejected, false, "maxmemory"},
		{"a full memory that the script looks at", "config set maxmemory 1", "config set maxmemory 0", []any{"eval", returns, 1, "k"}, stores.FailRejected, false, "maxmemory"},
		{"too few replicas", "config set min-replicas-to-write 1", "config set min-replicas-to-write 0", []any{"eval", raises, 1, "k"}, stores.FailRejected, false, "fewer replicas"},
		{"a replica", "replicaof 127.0.0.1 1", "replicaof no one", []any{"eval", returns, 1, "k"}, stores.FailAway, false, "is a replica"},
		{"no such database", "", "", []any{"select", 99}, stores.FailRejected, true, "lower db"},
		{"no Sentinel", "", "", []any{"sentinel", "masters"}, stores.FailRejected, true, "leave sentinel out"},
		{"no Cluster", "", "", []any{"cluster", "slots"}, stores.FailRejected, true, "leave cluster out"},
		{"no password there", "", "", []any{"auth", "x"}, stores.FailRejected, true, "leave password out"},
		{"another password", "", "", []any{"auth", "limited", "x"}, stores.FailRejected, false, "check username and password"},
	} {
		if c.before != "" {
			do(c.before)
		}
		o := &goredis.Options{Addr: srv.Addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1}
		if strings.Contains(c.before, "acl") {
			o.Username, o.Password = "limited", "secret"
		}
		client := goredis.NewClient(o)
		err := client.Do(context.Background(), c.command...).Err()
		_ = client.Close()
		if c.after != "" {
			do(c.after)
		}
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		class := classify(err)
		if advice := advice(class, err); class != c.class || mayHaveRun(err) != c.ran || !strings.Contains(advice, c.advice) {
			t.Errorf("%s: %v: %v, may have run %v, advice %q; want %v, %v, %q", c.name, err, class, mayHaveRun(err), advice, c.class, c.ran, c.advice)
		}
	}
}

// TestTimeOfACall has a server decide checks, and logs how long a call takes in it.
func TestTimeOfACall(t *testing.T) {
	srv := redistest.Start(t)
	s := newTestShared(t, srv, func() int64 { return time.Now().UnixMicro() })
	c := kit.TenPerHour(t, "z", false)
	for i := range uint64(2000) {
		k := testKey(i % 200)
		s.Decide(context.Background(), &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}})
	}
	info, err := srv.Client().InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	stats := info["Commandstats"]["cmdstat_evalsha"]
	_, per, found := strings.Cut(stats, "usec_per_call=")
	per, _, _ = strings.Cut(per, ",")
	if t.Logf("%s µs a call", per); !found {
		t.Errorf("commandstats has %q", stats)
	}
}
