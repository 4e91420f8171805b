package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed inspect.lua
var inspectScript string

// scriptCommands are what the script runs of Redis.
var scriptCommands = []any{"time", "get", "set", "setrange", "getrange", "del", "pexpire"}

// inspect looks at Redis once, beside requests, and tells what an operator
// should know. It asks for no right that a decision does not need, and says
// nothing of what it may not ask. done says that it need not be tried again.
func (s *Store) inspect(ctx context.Context) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	key := s.conn.prefix + ":{instances}:try"
	sha, err := s.conn.client.ScriptLoad(ctx, inspectScript).Result()
	if err != nil {
		return isAnswer(err)
	}
	said, err := s.conn.client.EvalSha(ctx, sha, []string{key}, scriptCommands...).StringSlice()
	if err != nil || len(said) != 4 {
		return isAnswer(err)
	}
	about := server{name: said[0], version: said[1]}
	if mayInfo := said[2]; mayInfo != "0" {
		text, err := s.conn.client.Info(ctx).Result()
		switch {
		case err == nil:
			about = readInfo(text)
		case !isAnswer(err):
			return false
		}
	}
	if missing := said[3]; missing != "" {
		s.watch().StoreWarning(s.o.Name, "the user lacks rights in Redis: +"+missing, missingRight)
	}
	for _, what := range about.faults() {
		s.watch().StoreWarning(s.o.Name, what[0], what[1])
	}
	return true
}

func isAnswer(err error) bool {
	var answered goredis.Error
	return errors.As(err, &answered)
}

// server is what is known of a Redis, or of what speaks like one.
type server struct {
	name    string // redis or valkey
	version string // its own; empty: not known
	policy  string // of eviction; empty: not known
}

// readInfo reads the answer to INFO. Valkey gives a version of Redis, too.
func readInfo(text string) server {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	s := server{name: "redis", version: fields["redis_version"], policy: fields["maxmemory_policy"]}
	if v, is := fields["valkey_version"]; is {
		s.name, s.version = "valkey", v
	}
	return s
}

// mended are the first versions of each line of releases without the known holes
// in Lua: CVE-2024-31449, CVE-2024-46981, CVE-2025-46817, CVE-2025-46818,
// CVE-2025-46819 and CVE-2025-49844. Newer lines never had them; older ones
// between these were given up.
var mended = map[string][][3]int{
	"redis":  {{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}},
	"valkey": {{7, 2, 11}, {8, 0, 6}, {8, 1, 4}},
}

// compatible is the version of Redis that all of Valkey say they are.
const compatible = "7.2.4"

// faults are what is wrong with a server, and what to do about each.
func (s server) faults() (all [][2]string) {
	if s.policy != "" && s.policy != "noeviction" {
		all = append(all, [2]string{
			"Redis may evict counts when its memory is full: maxmemory-policy is " + s.policy,
			"set maxmemory-policy noeviction; a client whose count is evicted starts anew",
		})
	}
	v, ok := readVersion(s.version)
	if !ok || s.policy == "" && s.version == compatible { // without INFO that may be any Valkey
		return all
	}
	if s.name == "redis" && less(v, [3]int{6, 2, 0}) {
		return append(all, [2]string{"this Redis is too old: " + s.version, "Diana needs Redis 6.2 or newer, or Valkey"})
	}
	if to := s.safe(v); to != "" {
		all = append(all, [2]string{
			fmt.Sprintf("%s %s has known security holes in Lua, CVE-2025-49844 among them", s.name, s.version),
			"update to " + to + " or newer, unless your distribution has mended them in this version; let nobody else run scripts in it",
		})
	}
	return all
}

// safe is the version to update to, empty if v is as safe as is known.
func (s server) safe(v [3]int) string {
	lines := mended[s.name]
	for _, m := range lines {
		if less(v, m) {
			return fmt.Sprintf("%d.%d.%d", m[0], m[1], m[2])
		}
		if v[0] == m[0] && v[1] == m[1] {
			return ""
		}
	}
	return ""
}

func readVersion(text string) (v [3]int, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(strings.TrimRight(p, "-abcdefghijklmnopqrstuvwxyz"))
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
