package redisim

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"strings"
)

var scriptCommands = []command{
	{name: "eval", arity: -3, flags: noScript | evaluates, run: eval},
	{name: "evalsha", arity: -3, flags: noScript | evaluates, run: evalSHA},
	{name: "script", arity: -2, flags: noScript, run: scriptCommand},
}

// running is a script that is being executed.
type running struct {
	sha   string
	wrote bool
}

func sha1hex(s string) string {
	sum := sha1.Sum([]byte(s)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// scriptKeys returns the keys of EVAL's arguments.
func scriptKeys(args []string) (keys []string, r reply) {
	n, valid := parseInteger(args[2])
	switch {
	case !valid:
		return nil, fail(errInteger)
	case n > int64(len(args)-3):
		return nil, fail("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return nil, fail("ERR Number of keys can't be negative")
	}
	return args[3 : 3+n], reply{}
}

func eval(x *execution, args []string) reply {
	keys, r := scriptKeys(args)
	if r.kind != none {
		return r
	}
	sha, r := x.s.lua.load(args[1])
	if r.kind != none {
		return r
	}
	return x.s.lua.run(x, sha, keys, args[3+len(keys):])
}

func evalSHA(x *execution, args []string) reply {
	sha := strings.ToLower(args[1])
	if len(sha) != 40 {
		return fail(errNoScript)
	}
	keys, r := scriptKeys(args)
	if r.kind != none {
		return r
	}
	if !x.s.lua.has(sha) {
		return fail(errNoScript)
	}
	return x.s.lua.run(x, sha, keys, args[3+len(keys):])
}

const errNoScript = "NOSCRIPT No matching script. Please use EVAL."

func scriptCommand(x *execution, args []string) reply {
	switch sub := strings.ToLower(args[1]); {
	case sub == "load" && len(args) == 3:
		sha, r := x.s.lua.load(args[2])
		if r.kind != none {
			return r
		}
		return text(sha)
	case sub == "exists" && len(args) > 2:
		var found []reply
		for _, sha := range args[2:] {
			n := int64(0)
			if x.s.lua.has(strings.ToLower(sha)) {
				n = 1
			}
			found = append(found, number(n))
		}
		return many(found...)
	case sub == "flush" && len(args) == 3 && !strings.EqualFold(args[2], "sync") && !strings.EqualFold(args[2], "async"):
		return fail("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	case sub == "flush" && len(args) <= 3:
		x.s.lua.flush()
		return ok
	case sub == "load" || sub == "exists" || sub == "flush":
		return fail("ERR wrong number of arguments for 'script|" + sub + "' command")
	}
	return fail("ERR unknown subcommand '" + args[1] + "'. Try SCRIPT HELP.")
}

// call executes a command of a script, or refuses it.
func (x *execution) call(args []string) reply {
	cmd := find(args[0])
	if r := x.refuseInScript(cmd, args); r.kind != none {
		return r
	}
	if cmd.flags&writes != 0 {
		x.script.wrote = true
	}
	return cmd.run(x, args)
}

func (x *execution) refuseInScript(cmd *command, args []string) reply {
	switch {
	case cmd == nil:
		return fail("ERR Unknown Redis command called from script")
	case !cmd.takes(len(args)):
		return fail("ERR Wrong number of args calling Redis command from script")
	case cmd.flags&noScript != 0:
		return fail("ERR This Redis command is not allowed from script")
	case x.s.denied[cmd.name]:
		return fail("ERR The user executing the script can't run this command or subcommand")
	case cmd.flags&writes != 0 && x.s.refused != "":
		return fail(x.s.refused)
	case cmd.flags&writes != 0 && x.s.readOnly:
		return fail("READONLY You can't write against a read only replica.")
	case cmd.flags&needsRoom != 0 && x.s.oom && !x.script.wrote:
		return fail("OOM command not allowed when used memory > 'maxmemory'.")
	}
	return x.refuseForeignKey(cmd, args)
}

// refuseForeignKey refuses a script's command with a key of another node of a Cluster.
func (x *execution) refuseForeignKey(cmd *command, args []string) reply {
	if x.s.cluster == nil {
		return reply{}
	}
	switch r := x.s.cluster.redirect(x.s, x.c, cmd, args, x.asked); {
	case r.kind == none:
		return r
	case strings.HasPrefix(r.text, "CLUSTERDOWN"):
		return fail("ERR Script attempted to execute a command while the cluster is down")
	}
	return fail("ERR Script attempted to access a non local key in a cluster node")
}
