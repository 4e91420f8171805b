package redisim

import (
	"fmt"
	"strings"
)

// command is a command that the server knows.
type command struct {
	name  string
	arity int // number of arguments with the name; negative: at least as many
	flags flags
	keys  [3]int // first, last (from the end if negative) and step; {} if there are none
	run   func(x *execution, args []string) reply
}

// flags say when a command may run.
type flags uint16

const (
	writes     flags = 1 << iota
	needsRoom        // not if memory is full
	noAuth           // before authentication
	loads            // while the server loads
	stale            // at a replica without a master
	noScript         // not from scripts
	subscribed       // in RESP2, after SUBSCRIBE
	evaluates        // a script, whose keys are counted by an argument
	whileBusy
)

// execution is one command being executed, by a client or by its script.
type execution struct {
	s      *Server
	c      *client
	script *running // nil: it is the client's own
	now    int64    // milliseconds
	asked  bool     // the client has sent ASKING before
}

var commands map[string]*command

func init() {
	commands = make(map[string]*command)
	for _, list := range [][]command{stringCommands, keyCommands, serverCommands, scriptCommands, pubsubCommands, clusterCommands, sentinelCommands} {
		for i := range list {
			commands[list[i].name] = &list[i]
		}
	}
}

// find returns the command of that name, nil if there is none.
func find(name string) *command {
	if cmd := commands[name]; cmd != nil {
		return cmd
	}
	return commands[strings.ToLower(name)]
}

// dispatch executes a client's command, or refuses it. s.mu is held.
func (s *Server) dispatch(c *client, args []string) reply {
	cmd := find(args[0])
	if cmd == nil || s.sentinels != nil && !atSentinel[cmd.name] || s.sentinels == nil && cmd.name == "sentinel" {
		return unknown(args)
	}
	if !cmd.takes(len(args)) {
		return fail("ERR wrong number of arguments for '" + cmd.name + "' command")
	}
	asked := c.asking
	c.asking = false
	if r := s.refuse(c, cmd, args, asked); r.kind != none {
		return r
	}
	x := &execution{s: s, c: c, now: s.ms(), asked: asked}
	if s.strange > 0 && cmd.flags&evaluates != 0 {
		return s.answerStrangely(x, cmd, args)
	}
	return cmd.run(x, args)
}

// answerStrangely executes a script and says so, executes none, or says of one that it executed that it failed.
func (s *Server) answerStrangely(x *execution, cmd *command, args []string) (r reply) {
	s.strange++
	if s.strange%3 > 0 {
		r = cmd.run(x, args)
	}
	if s.strange%3 < 2 {
		return fail("upstream failure")
	}
	return r
}

func (cmd *command) takes(args int) bool {
	return args == cmd.arity || cmd.arity < 0 && args >= -cmd.arity
}

// refuse returns the reply to a command that may not run now, in the order in which Redis
// looks for reasons; an empty one if it may.
func (s *Server) refuse(c *client, cmd *command, args []string, asked bool) reply {
	is := func(f flags) bool { return cmd.flags&f != 0 }
	switch {
	case !c.user && !is(noAuth):
		return fail("NOAUTH Authentication required.")
	case s.denied[cmd.name]:
		return fail("NOPERM this user has no permissions to run the '" + cmd.name + "' command")
	}
	if s.cluster != nil {
		if r := s.cluster.redirect(s, c, cmd, args, asked); r.kind != none {
			return r
		}
	}
	switch {
	case s.oom && is(needsRoom):
		return fail("OOM command not allowed when used memory > 'maxmemory'.")
	case s.refused != "" && is(writes):
		return fail(s.refused)
	case s.readOnly && is(writes):
		return fail("READONLY You can't write against a read only replica.")
	case len(c.channels) > 0 && c.resp < 3 && !is(subscribed):
		return fail("ERR Can't execute '" + cmd.name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
	case s.masterDown && !is(stale):
		return fail("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.")
	case s.loading && !is(loads):
		return fail("LOADING Redis is loading the dataset in memory")
	case s.busy && !is(whileBusy):
		return fail("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.")
	}
	return reply{}
}

const maxQuoted = 128 // bytes of a command that is not known, and of its arguments

func unknown(args []string) reply {
	var quoted strings.Builder
	for _, a := range args[1:] {
		if quoted.Len() >= maxQuoted {
			break
		}
		fmt.Fprintf(&quoted, "'%.*s' ", maxQuoted-quoted.Len(), cutAtZero(a))
	}
	return fail(fmt.Sprintf("ERR unknown command '%.128s', with args beginning with: %s", cutAtZero(args[0]), quoted.String()))
}

// cutAtZero returns what C prints of a string.
func cutAtZero(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

const (
	errSyntax    = "ERR syntax error"
	errInteger   = "ERR value is not an integer or out of range"
	errWrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
)

// parseInteger parses an integer as strictly as Redis.
func parseInteger(s string) (int64, bool) {
	if s == "0" {
		return 0, true
	}
	digits, negative := strings.CutPrefix(s, "-")
	if digits == "" || len(digits) > 19 || digits[0] < '1' || digits[0] > '9' {
		return 0, false
	}
	var n uint64
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		n = n*10 + uint64(digits[i]-'0')
	}
	switch {
	case negative && n <= 1<<63:
		return -int64(n), true
	case !negative && n < 1<<63:
		return int64(n), true
	}
	return 0, false
}

// keysOf returns the keys among the arguments of a command.
func (cmd *command) keysOf(args []string) []string {
	if cmd.flags&evaluates != 0 {
		if len(args) < 3 {
			return nil
		}
		keys, _ := scriptKeys(args)
		return keys
	}
	first, last := cmd.keys[0], cmd.keys[1]
	if first == 0 || first >= len(args) {
		return nil
	}
	if last < 0 {
		last += len(args)
	}
	return args[first : last+1]
}
