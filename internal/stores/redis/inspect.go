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

// scriptCommands are the commands that the script calls.
var scriptCommands = []any{"time", "get", "set", "setrange", "getrange", "del", "pexpire"}

// inspect checks the version and the configuration of a node, and warns of
// problems. It needs no right that a decision does not need, and does not warn
// of what it may not read. tag is a hash tag that the node serves. done says that it
// need not be repeated.
func inspect(ctx context.Context, c *conn, n *node, tag string) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client, err := c.clientAt(ctx, tag)
	if err != nil {
		return false
	}
	warn := func(what, advice string) {
		if n.address != "" {
			what += " (node " + n.address + ")"
		}
		c.observer.get().StoreWarning(c.observer.name, what, advice)
	}
	key := c.o.Prefix + ":{" + tag + "}:try"
	sha, err := client.ScriptLoad(ctx, inspectScript).Result()
	if err != nil {
		return isAnswer(err)
	}
	args := append([]any{resetChannel(c.o.Prefix)}, scriptCommands...)
	said, err := client.EvalSha(ctx, sha, []string{key}, args...).StringSlice()
	if err != nil || len(said) != 4 {
		return isAnswer(err)
	}
	about := server{name: said[0], version: said[1]}
	if mayInfo := said[2]; mayInfo != "0" {
		text, err := client.Info(ctx).Result()
		switch {
		case err == nil:
			about = readInfo(text)
		case !isAnswer(err):
			return false
		}
	}
	if missing := said[3]; missing != "" {
		warn("the user lacks rights in Redis: +"+missing, missingRight)
	}
	for _, what := range about.faults() {
		warn(what[0], what[1])
	}
	return true
}

func isAnswer(err error) bool {
	var answered goredis.Error
	return errors.As(err, &answered)
}

// server is what is known of a Redis or a compatible server.
type server struct {
	name    string // redis or valkey
	version string // empty: unknown
	policy  string // of eviction; empty: unknown
}

// readInfo parses the reply of INFO. Valkey has the field redis_version, too.
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

// patched are the first versions of each release line without the known
// vulnerabilities in Lua: CVE-2024-31449, CVE-2024-46981, CVE-2025-46817,
// CVE-2025-46818, CVE-2025-46819 and CVE-2025-49844. Newer lines never had
// them; older lines that are missing are not maintained.
var patched = map[string][][3]int{
	"redis":  {{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}},
	"valkey": {{7, 2, 11}, {8, 0, 6}, {8, 1, 4}},
}

// compatible is the version of Redis that all of Valkey report.
const compatible = "7.2.4"

// faults returns the problems of a server, each with what to do about it.
func (s server) faults() (all [][2]string) {
	if s.policy != "" && s.policy != "noeviction" {
		all = append(all, [2]string{
			"Redis may evict counts when its memory is full: maxmemory-policy is " + s.policy,
			"set maxmemory-policy noeviction; a count that is evicted is put back only as far as living instances know it",
		})
	}
	v, ok := readVersion(s.version)
	if !ok || s.policy == "" && s.version == compatible { // without INFO this may be any Valkey
		return all
	}
	if s.name == "redis" && less(v, [3]int{6, 2, 0}) {
		return append(all, [2]string{"this Redis is too old: " + s.version, "Diana needs Redis 6.2 or newer, or Valkey"})
	}
	if to := s.safe(v); to != "" {
		all = append(all, [2]string{
			fmt.Sprintf("%s %s has known security holes in Lua, CVE-2025-49844 among them", s.name, s.version),
			"update to " + to + " or newer, unless your distribution has fixed them in this version; let nobody else run scripts in it",
		})
	}
	return all
}

// safe returns the version to update to, empty if v has no known vulnerability.
func (s server) safe(v [3]int) string {
	lines := patched[s.name]
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
