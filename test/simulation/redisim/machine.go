package redisim

import (
	"errors"
	"strconv"
	"strings"

	"github.com/dianalimiter/diana/test/simulation/redisim/lua"
)

// machine runs the scripts of a server.
type machine struct {
	s          *Server
	l          *lua.Machine
	scripts    map[string]lua.Value // by their SHA-1
	compiled   map[string]lua.Value // also those that were forgotten
	keys, argv *lua.Table
	x          *execution // that the running script is a part of
	args       []string
}

func newMachine(s *Server) *machine {
	m := &machine{s: s, l: lua.New(), keys: lua.NewTable(0), argv: lua.NewTable(0), compiled: make(map[string]lua.Value)}
	library := lua.Library(map[string]func(l *lua.Machine, args []lua.Value){
		"call":  func(_ *lua.Machine, args []lua.Value) { m.call(args, true) },
		"pcall": func(_ *lua.Machine, args []lua.Value) { m.call(args, false) },
		"sha1hex": func(l *lua.Machine, args []lua.Value) {
			if len(args) != 1 {
				m.raise("ERR wrong number of arguments")
			}
			l.ReturnOne(lua.Str(sha1hex(l.CheckString(args, 1))))
		},
		"error_reply":   singleField("err"),
		"status_reply":  singleField("ok"),
		"log":           func(*lua.Machine, []lua.Value) {},
		"acl_check_cmd": func(l *lua.Machine, args []lua.Value) { l.ReturnOne(lua.Bool(m.allowed(args))) },
	})
	library.SetField("REDIS_VERSION", lua.Str(s.o.Version))
	for i, level := range []string{"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"} {
		library.SetField(level, lua.Num(float64(i)))
	}
	m.l.Globals.SetField("redis", lua.TableValue(library))
	m.l.Globals.SetField("KEYS", lua.TableValue(m.keys))
	m.l.Globals.SetField("ARGV", lua.TableValue(m.argv))
	m.l.Protect()
	m.keys.ReadOnly, m.argv.ReadOnly, m.l.Globals.ReadOnly = false, false, true
	m.flush()
	return m
}

// singleField returns redis.error_reply or redis.status_reply.
func singleField(name string) func(l *lua.Machine, args []lua.Value) {
	return func(l *lua.Machine, args []lua.Value) {
		if len(args) != 1 || args[0].Kind() != lua.String {
			l.ReturnOne(single("err", lua.Str("ERR wrong number or type of arguments")))
			return
		}
		text := args[0].Text()
		if name == "err" {
			text = strings.TrimPrefix(text, "-")
		}
		l.ReturnOne(single(name, lua.Str(text)))
	}
}

func single(name string, v lua.Value) lua.Value {
	t := lua.NewTable(0)
	t.SetField(name, v)
	return lua.TableValue(t)
}

func (m *machine) flush() { m.scripts = make(map[string]lua.Value) }

func (m *machine) has(sha string) bool {
	_, is := m.scripts[sha]
	return is
}

// load compiles a script, and returns its hash.
func (m *machine) load(script string) (string, reply) {
	sha := sha1hex(script)
	if m.has(sha) {
		return sha, reply{}
	}
	fn, is := m.compiled[sha]
	if !is {
		var err error
		if fn, err = m.l.Compile(script); err != nil {
			return "", fail("ERR Error compiling script (new function): " + err.Error())
		}
		m.compiled[sha] = fn
	}
	m.scripts[sha] = fn
	return sha, reply{}
}

// run runs a script that is loaded.
func (m *machine) run(x *execution, sha string, keys, argv []string) reply {
	x.script = &running{sha: sha}
	m.x = x
	m.keys.SetList(keys)
	m.argv.SetList(argv)
	v, err := m.l.Run(m.scripts[sha])
	if err != nil {
		return m.failed(err, sha)
	}
	return toReply(v)
}

// failed returns the reply to a script that raised an error.
func (m *machine) failed(err error, sha string) reply {
	var raised *lua.Error
	if !errors.As(err, &raised) {
		return fail("ERR " + err.Error())
	}
	message := "ERR nil"
	switch v := raised.Value; v.Kind() {
	case lua.String:
		message = "ERR " + v.Text()
	case lua.Number:
		message = "ERR " + lua.FormatNumber(v.Num())
	case lua.Boolean:
		message = "ERR " + strconv.FormatBool(v.Bool())
	case lua.TableKind:
		if text := v.Table().Field("err"); text.Kind() == lua.String {
			message = text.Text()
		}
	}
	return fail(message + " script: " + sha + ", on @user_script:" + strconv.Itoa(raised.Line) + ".")
}

func (m *machine) raise(message string) { m.l.Raise(single("err", lua.Str(message))) }

// strings returns the arguments of a command, or what is wrong with them.
func (m *machine) strings(args []lua.Value) ([]string, string) {
	if len(args) == 0 {
		return nil, "ERR Please specify at least one argument for this redis lib call"
	}
	all := m.args[:0]
	for _, a := range args {
		switch a.Kind() {
		case lua.String:
			all = append(all, a.Text())
		case lua.Number:
			all = append(all, lua.FormatNumber(a.Num()))
		default:
			return nil, "ERR Lua redis lib command arguments must be strings or integers"
		}
	}
	m.args = all
	return all, ""
}

// call is redis.call, which raises errors, or redis.pcall.
func (m *machine) call(args []lua.Value, raises bool) {
	var r reply
	if all, wrong := m.strings(args); wrong != "" {
		r = fail(wrong)
	} else {
		r = m.x.call(all)
	}
	v := fromReply(r)
	if raises && r.kind == failure {
		m.l.Raise(v)
	}
	m.l.ReturnOne(v)
}

// allowed is redis.acl_check_cmd.
func (m *machine) allowed(args []lua.Value) bool {
	all, wrong := m.strings(args)
	if wrong != "" {
		m.raise(wrong)
	}
	cmd := find(all[0])
	if cmd == nil {
		m.raise("ERR Invalid command passed to redis.acl_check_cmd()")
	}
	return !m.s.denied[cmd.name]
}

// fromReply converts the reply to a command of a script.
func fromReply(r reply) lua.Value {
	switch r.kind {
	case bulk:
		return lua.Str(r.text)
	case integer:
		return lua.Num(float64(r.n))
	case status:
		return single("ok", lua.Str(r.text))
	case failure:
		return single("err", lua.Str(r.text))
	case array, mapping:
		t := lua.NewTable(len(r.list))
		for i := range r.list {
			t.Append(fromReply(r.list[i]))
		}
		return lua.TableValue(t)
	}
	return lua.Bool(false)
}

// toReply converts the result of a script.
func toReply(v lua.Value) reply {
	switch v.Kind() {
	case lua.String:
		return text(v.Text())
	case lua.Number:
		return number(lua.Integer(v.Num()))
	case lua.Boolean:
		if v.Bool() {
			return number(1)
		}
	case lua.TableKind:
		t := v.Table()
		if e := t.Field("err"); e.Kind() == lua.String {
			return fail(e.Text())
		}
		if s := t.Field("ok"); s.Kind() == lua.String {
			return reply{kind: status, text: s.Text()}
		}
		r := reply{kind: array}
		for i := 1; t.At(i).Kind() != lua.Nil; i++ {
			r.list = append(r.list, toReply(t.At(i)))
		}
		return r
	}
	return reply{kind: null}
}
