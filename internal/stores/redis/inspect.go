package redis

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"
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
	if err != nil || len(said) != 3 {
		return isAnswer(err)
	}
	about := serverInfo{version: said[0]}
	if mayInfo := said[1]; mayInfo != "0" {
		text, err := client.Info(ctx).Result()
		switch {
		case err == nil:
			about = readInfo(text)
		case !isAnswer(err):
			return false
		}
	}
	if missing := said[2]; missing != "" {
		warn("the Redis user lacks permissions: +"+missing, missingRight)
	}
	for _, what := range about.faults() {
		warn(what[0], what[1])
	}
	return true
}

// serverInfo describes a Redis or a compatible server.
type serverInfo struct {
	version string // of Redis, that a compatible server says it is; empty: unknown
	policy  string // of eviction; empty: unknown
}

// readInfo parses the reply of INFO.
func readInfo(text string) (s serverInfo) {
	for line := range strings.Lines(text) {
		switch k, v, _ := strings.Cut(strings.TrimSpace(line), ":"); k {
		case "redis_version":
			s.version = v
		case "maxmemory_policy":
			s.policy = v
		}
	}
	return s
}

// faults returns the problems of a server, each with what to do about it.
func (s serverInfo) faults() (all [][2]string) {
	if s.policy != "" && s.policy != "noeviction" {
		all = append(all, [2]string{
			"Redis may evict counts when its memory is full: maxmemory-policy is " + s.policy,
			"set maxmemory-policy noeviction; a count that is evicted is put back only as far as living instances know it",
		})
	}
	var major, minor int
	if _, err := fmt.Sscanf(s.version, "%d.%d.", &major, &minor); err == nil && (major < 6 || major == 6 && minor < 2) {
		all = append(all, [2]string{"this Redis is too old: " + s.version, needed})
	}
	return all
}
