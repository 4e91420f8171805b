package redisim

import (
	"math"
	"strings"
)

var stringCommands = []command{
	{name: "get", arity: 2, keys: [3]int{1, 1, 1}, run: get},
	{name: "set", arity: -3, flags: writes | needsRoom, keys: [3]int{1, 1, 1}, run: set},
	{name: "setrange", arity: 4, flags: writes | needsRoom, keys: [3]int{1, 1, 1}, run: setRange},
	{name: "getrange", arity: 4, keys: [3]int{1, 1, 1}, run: getRange},
	{name: "strlen", arity: 2, keys: [3]int{1, 1, 1}, run: strLen},
}

// lookup returns the value of a key that has to be a string, nil if there is none.
func (x *execution) lookup(key string) (*value, bool) {
	v := x.s.keys.get(key, x.now)
	return v, v == nil || !v.isList
}

func get(x *execution, args []string) reply {
	v, isString := x.lookup(args[1])
	switch {
	case !isString:
		return fail(errWrongType)
	case v == nil:
		return reply{kind: null}
	}
	return text(string(v.data))
}

// setOptions are the options of SET.
type setOptions struct {
	expires, unit string // of EX, PX, EXAT, PXAT
	nx, xx        bool
	keepTTL, get  bool
}

// parseSet parses the options of SET; false: they contradict each other or are none.
func parseSet(args []string) (o setOptions, valid bool) {
	for i := 0; i < len(args); i++ {
		switch opt := strings.ToLower(args[i]); {
		case opt == "nx" && !o.xx:
			o.nx = true
		case opt == "xx" && !o.nx:
			o.xx = true
		case opt == "get":
			o.get = true
		case opt == "keepttl" && o.unit == "":
			o.keepTTL = true
		case (opt == "ex" || opt == "px" || opt == "exat" || opt == "pxat") && o.unit == "" && !o.keepTTL && i+1 < len(args):
			i++
			o.unit, o.expires = opt, args[i]
		default:
			return o, false
		}
	}
	return o, true
}

func set(x *execution, args []string) reply {
	o, valid := parseSet(args[3:])
	if !valid {
		return fail(errSyntax)
	}
	var expires int64
	if o.unit != "" {
		var r reply
		if expires, r = x.expiry("set", o.unit, o.expires); r.kind != none {
			return r
		}
	}
	done := ok
	old := x.s.keys.get(args[1], x.now)
	if o.get {
		if done = get(x, args[:2]); done.kind == failure {
			return done
		}
	}
	if o.nx && old != nil || o.xx && old == nil {
		if o.get {
			return done
		}
		return reply{kind: null}
	}
	if o.keepTTL && old != nil {
		expires = old.expires
	}
	x.put(args[1], &value{data: []byte(args[2]), expires: expires})
	return done
}

// expiry returns when a key expires that is set with an option of SET.
func (x *execution) expiry(cmd, unit, amount string) (int64, reply) {
	n, valid := parseInteger(amount)
	if !valid {
		return 0, fail(errInteger)
	}
	wrong := fail("ERR invalid expire time in '" + cmd + "' command")
	seconds, relative := strings.HasPrefix(unit, "ex"), !strings.HasSuffix(unit, "at")
	if n <= 0 || seconds && n > math.MaxInt64/1000 {
		return 0, wrong
	}
	if seconds {
		n *= 1000
	}
	if relative {
		if n > math.MaxInt64-x.now {
			return 0, wrong
		}
		n += x.now
	}
	return n, reply{}
}

func setRange(x *execution, args []string) reply {
	offset, valid := parseInteger(args[2])
	if !valid {
		return fail(errInteger)
	}
	if offset < 0 {
		return fail("ERR offset is out of range")
	}
	v, isString := x.lookup(args[1])
	if !isString {
		return fail(errWrongType)
	}
	add := args[3]
	if add == "" {
		if v == nil {
			return number(0)
		}
		return number(int64(len(v.data)))
	}
	if offset > maxBulk-int64(len(add)) {
		return fail("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
	}
	if v == nil {
		v = &value{}
	}
	if end := int(offset) + len(add); end > len(v.data) {
		v.data = append(v.data, make([]byte, end-len(v.data))...)
	}
	copy(v.data[offset:], add)
	x.put(args[1], v)
	return number(int64(len(v.data)))
}

func getRange(x *execution, args []string) reply {
	start, valid := parseInteger(args[2])
	end, also := parseInteger(args[3])
	if !valid || !also {
		return fail(errInteger)
	}
	v, isString := x.lookup(args[1])
	switch {
	case !isString:
		return fail(errWrongType)
	case v == nil || start < 0 && end < 0 && start > end:
		return text("")
	}
	size := int64(len(v.data))
	if start < 0 {
		start = max(0, start+size)
	}
	if end < 0 {
		end = max(0, end+size)
	}
	end = min(end, size-1)
	if start > end || size == 0 {
		return text("")
	}
	return text(string(v.data[start : end+1]))
}

func strLen(x *execution, args []string) reply {
	v, isString := x.lookup(args[1])
	switch {
	case !isString:
		return fail(errWrongType)
	case v == nil:
		return number(0)
	}
	return number(int64(len(v.data)))
}
