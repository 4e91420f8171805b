package redisim

import (
	"math"
	"strings"
)

var keyCommands = []command{
	{name: "del", arity: -2, flags: writes, keys: [3]int{1, -1, 1}, run: del},
	{name: "unlink", arity: -2, flags: writes, keys: [3]int{1, -1, 1}, run: del},
	{name: "exists", arity: -2, keys: [3]int{1, -1, 1}, run: exists},
	{name: "expire", arity: -3, flags: writes, keys: [3]int{1, 1, 1}, run: expire(1000)},
	{name: "pexpire", arity: -3, flags: writes, keys: [3]int{1, 1, 1}, run: expire(1)},
	{name: "ttl", arity: 2, keys: [3]int{1, 1, 1}, run: ttl(1000)},
	{name: "pttl", arity: 2, keys: [3]int{1, 1, 1}, run: ttl(1)},
	{name: "type", arity: 2, keys: [3]int{1, 1, 1}, run: typeOf},
	{name: "rpush", arity: -3, flags: writes | needsRoom, keys: [3]int{1, 1, 1}, run: rpush},
	{name: "keys", arity: 2, run: keys},
	{name: "dbsize", arity: 1, run: dbSize},
	{name: "flushall", arity: -1, flags: writes, run: flushAll},
	{name: "flushdb", arity: -1, flags: writes, run: flushAll},
}

// put sets the value of a key.
func (x *execution) put(key string, v *value) {
	x.s.keys.values[key] = v
	x.s.replicate(key)
}

// remove deletes a key.
func (x *execution) remove(key string) { x.s.delete(key) }

func del(x *execution, args []string) reply {
	n := int64(0)
	for _, k := range args[1:] {
		if x.s.keys.get(k, x.now) != nil {
			x.remove(k)
			n++
		}
	}
	return number(n)
}

func exists(x *execution, args []string) reply {
	n := int64(0)
	for _, k := range args[1:] {
		if x.s.keys.get(k, x.now) != nil {
			n++
		}
	}
	return number(n)
}

// expire returns EXPIRE for a unit in milliseconds.
func expire(unit int64) func(*execution, []string) reply {
	name := "expire"
	if unit == 1 {
		name = "pexpire"
	}
	return func(x *execution, args []string) reply {
		if len(args) > 3 {
			return fail("ERR Unsupported option " + args[3])
		}
		n, valid := parseInteger(args[2])
		if !valid {
			return fail(errInteger)
		}
		if n > math.MaxInt64/unit || n < math.MinInt64/unit || n*unit > math.MaxInt64-x.now {
			return fail("ERR invalid expire time in '" + name + "' command")
		}
		v := x.s.keys.get(args[1], x.now)
		if v == nil {
			return number(0)
		}
		if n <= 0 {
			x.remove(args[1])
			return number(1)
		}
		v.expires = x.now + n*unit
		x.s.replicate(args[1])
		return number(1)
	}
}

// ttl returns TTL for a unit in milliseconds.
func ttl(unit int64) func(*execution, []string) reply {
	return func(x *execution, args []string) reply {
		v := x.s.keys.get(args[1], x.now)
		switch {
		case v == nil:
			return number(-2)
		case v.expires == 0:
			return number(-1)
		}
		return number((v.expires - x.now + unit/2) / unit)
	}
}

func typeOf(x *execution, args []string) reply {
	v := x.s.keys.get(args[1], x.now)
	switch {
	case v == nil:
		return reply{kind: status, text: "none"}
	case v.isList:
		return reply{kind: status, text: "list"}
	}
	return reply{kind: status, text: "string"}
}

func rpush(x *execution, args []string) reply {
	v := x.s.keys.get(args[1], x.now)
	if v == nil {
		v = &value{isList: true}
	}
	if !v.isList {
		return fail(errWrongType)
	}
	v.list = append(v.list, args[2:]...)
	x.put(args[1], v)
	return number(int64(len(v.list)))
}

func keys(x *execution, args []string) reply {
	prefix, all := strings.CutSuffix(args[1], "*")
	var found []string
	for _, k := range x.s.keys.names(x.now) {
		if k == args[1] || all && strings.HasPrefix(k, prefix) {
			found = append(found, k)
		}
	}
	return texts(found...)
}

func dbSize(x *execution, _ []string) reply { return number(int64(len(x.s.keys.values))) }

func flushAll(x *execution, _ []string) reply {
	for _, k := range x.s.keys.names(x.now) {
		x.remove(k)
	}
	return ok
}
