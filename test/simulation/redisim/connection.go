package redisim

import (
	"fmt"
	"strconv"
	"strings"
)

var serverCommands = []command{
	{name: "ping", arity: -1, flags: subscribed, run: ping},
	{name: "echo", arity: 2, flags: loads | stale, run: func(_ *execution, args []string) reply { return text(args[1]) }},
	{name: "quit", arity: -1, flags: noAuth | loads | stale | noScript | subscribed | whileBusy, run: quit},
	{name: "hello", arity: -1, flags: noAuth | loads | stale | noScript | whileBusy, run: hello},
	{name: "auth", arity: -2, flags: noAuth | loads | stale | noScript | whileBusy, run: auth},
	{name: "select", arity: 2, flags: loads | stale, run: selectDB},
	{name: "client", arity: -2, flags: loads | stale | noScript, run: clientCommand},
	{name: "time", arity: 1, flags: loads | stale, run: timeCommand},
	{name: "info", arity: -1, flags: loads | stale, run: info},
}

func ping(x *execution, args []string) reply {
	if len(args) > 2 {
		return fail("ERR wrong number of arguments for 'ping' command")
	}
	said := ""
	if len(args) == 2 {
		said = args[1]
	}
	switch {
	case len(x.c.channels) > 0 && x.c.resp < 3:
		return texts("pong", said)
	case len(args) == 2:
		return text(said)
	}
	return reply{kind: status, text: "PONG"}
}

func quit(x *execution, _ []string) reply {
	x.c.quit = true
	return ok
}

// authenticate checks a user and a password. The only user is the default one.
func (x *execution) authenticate(user, password string) reply {
	if user != "default" || password != x.s.o.Password && x.s.o.Password != "" {
		return fail("WRONGPASS invalid username-password pair or user is disabled.")
	}
	x.c.user = true
	return reply{}
}

func auth(x *execution, args []string) reply {
	switch {
	case len(args) > 3:
		return fail(errSyntax)
	case len(args) == 3:
	case x.s.o.Password == "":
		return fail("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	default:
		args = []string{"auth", "default", args[1]}
	}
	if r := x.authenticate(args[1], args[2]); r.kind != none {
		return r
	}
	return ok
}

func hello(x *execution, args []string) reply {
	resp := x.c.resp
	if len(args) > 1 {
		n, valid := parseInteger(args[1])
		if !valid {
			return fail("ERR Protocol version is not an integer or out of range")
		}
		if n < 2 || n > 3 {
			return fail("NOPROTO unsupported protocol version")
		}
		resp = int(n)
	}
	name := x.c.name
	for i := 2; i < len(args); {
		switch opt, more := strings.ToLower(args[i]), len(args)-i-1; {
		case opt == "auth" && more >= 2:
			if r := x.authenticate(args[i+1], args[i+2]); r.kind != none {
				return r
			}
			i += 3
		case opt == "setname" && more >= 1:
			name = args[i+1]
			i += 2
		default:
			return fail("ERR Syntax error in HELLO option '" + args[i] + "'")
		}
	}
	if !x.c.user {
		return fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	x.c.resp, x.c.name = resp, name
	return fields(
		text("server"), text("redis"), text("version"), text(x.s.o.Version), text("proto"), number(int64(resp)),
		text("id"), number(x.c.id), text("mode"), text(x.s.mode()), text("role"), text(x.s.role()), text("modules"), many(),
	)
}

func (s *Server) mode() string {
	switch {
	case s.cluster != nil:
		return "cluster"
	case s.sentinels != nil:
		return "sentinel"
	}
	return "standalone"
}

func (s *Server) role() string {
	if s.readOnly {
		return "replica"
	}
	return "master"
}

func selectDB(_ *execution, args []string) reply {
	n, valid := parseInteger(args[1])
	switch {
	case !valid:
		return fail("ERR value is not an integer or out of range")
	case n < 0 || n > 15:
		return fail("ERR DB index is out of range")
	}
	return ok
}

func clientCommand(x *execution, args []string) reply {
	switch sub := strings.ToLower(args[1]); {
	case sub == "setname" && len(args) == 3:
		x.c.name = args[2]
		return ok
	case sub == "getname" && len(args) == 2:
		if x.c.name == "" {
			return reply{kind: null}
		}
		return text(x.c.name)
	case sub == "id" && len(args) == 2:
		return number(x.c.id)
	}
	return fail("ERR unknown subcommand '" + fmt.Sprintf("%.128s", args[1]) + "'. Try CLIENT HELP.")
}

func timeCommand(x *execution, _ []string) reply {
	now := x.s.now()
	return texts(strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond()/1000))
}

func info(x *execution, _ []string) reply {
	role := "master"
	if x.s.readOnly {
		role = "slave"
	}
	return text(fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:%s\r\n\r\n# Memory\r\nmaxmemory_policy:%s\r\n\r\n# Replication\r\nrole:%s\r\n",
		x.s.o.Version, x.s.mode(), x.s.o.Policy, role))
}
