package lua

import (
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// bytesValue returns bytes, which must not change any more, as a string.
func bytesValue(b []byte) Value {
	return Value{p: unsafe.Pointer(unsafe.SliceData(b)), n: uint64(len(b)), kind: String} //nolint:gosec // see Str
}

// Library returns a table of functions.
func Library(functions map[string]func(m *Machine, args []Value)) *Table {
	t := &Table{}
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.SetField(name, Native(functions[name]))
	}
	return t
}

func (m *Machine) openLibraries() {
	m.Globals = Library(baseFunctions)
	m.str = Library(stringFunctions)
	maths := Library(mathFunctions)
	maths.SetField("huge", Num(math.Inf(1)))
	maths.SetField("pi", Num(math.Pi))
	m.Globals.SetField("string", TableValue(m.str))
	m.Globals.SetField("table", TableValue(Library(tableFunctions)))
	m.Globals.SetField("math", TableValue(maths))
	m.Globals.SetField("struct", TableValue(Library(structFunctions)))
	m.Globals.SetField("_G", TableValue(m.Globals))
}

// Protect makes the globals and their tables read-only, and the read of a global that does
// not exist fail.
func (m *Machine) Protect() {
	for _, f := range m.Globals.fields {
		if f.value.kind == TableKind {
			f.value.Table().ReadOnly = true
		}
	}
	m.Globals.Strict = true
}

// ReturnOne sets the result of a function in Go.
func (m *Machine) ReturnOne(v Value) { m.out = append(m.out[:0], v) }

func (m *Machine) arg(args []Value, i int) Value {
	if i > len(args) {
		return Value{}
	}
	return args[i-1]
}

// wrong fails because argument i is of another type.
func (m *Machine) wrong(args []Value, i int, want string) {
	got := "no value"
	if i <= len(args) {
		got = args[i-1].kind.String()
	}
	m.ArgError(i, want+" expected, got "+got)
}

// CheckString returns argument i, which has to be a string or a number.
func (m *Machine) CheckString(args []Value, i int) string {
	if i <= len(args) && args[i-1].kind == String {
		return args[i-1].Text()
	}
	s, is := m.arg(args, i).tostring()
	if !is {
		m.wrong(args, i, "string")
	}
	return s
}

func (m *Machine) checkNumber(args []Value, i int) float64 {
	if i <= len(args) && args[i-1].kind == Number {
		return args[i-1].Num()
	}
	n, is := m.arg(args, i).tonumber()
	if !is {
		m.wrong(args, i, "number")
	}
	return n
}

func (m *Machine) checkInt(args []Value, i int) int { return int(Integer(m.checkNumber(args, i))) }

// Integer converts a number as C does on 64-bit x86.
func Integer(f float64) int64 {
	if !(math.Abs(f) < 1<<63) {
		return math.MinInt64
	}
	return int64(f)
}

func (m *Machine) optInt(args []Value, i, other int) int {
	if m.arg(args, i).kind == Nil {
		return other
	}
	return m.checkInt(args, i)
}

// checkTable returns the first argument, which has to be a table.
func (m *Machine) checkTable(args []Value) *Table {
	v := m.arg(args, 1)
	if v.kind != TableKind {
		m.wrong(args, 1, "table")
	}
	return v.Table()
}

func (m *Machine) checkAny(args []Value, i int) Value {
	if i > len(args) {
		m.ArgError(i, "value expected")
	}
	return args[i-1]
}

// text returns what tostring does.
func (m *Machine) text(v Value) string {
	switch v.kind {
	case Nil:
		return "nil"
	case Boolean:
		if v.Bool() {
			return "true"
		}
		return "false"
	case String, Number:
		s, _ := v.tostring()
		return s
	}
	return fmt.Sprintf("%s: %p", v.kind, v.p)
}

var baseFunctions = map[string]func(m *Machine, args []Value){
	"type":     func(m *Machine, args []Value) { m.ReturnOne(Str(m.checkAny(args, 1).kind.String())) },
	"tostring": func(m *Machine, args []Value) { m.ReturnOne(Str(m.text(m.checkAny(args, 1)))) },
	"tonumber": func(m *Machine, args []Value) {
		if n, is := m.checkAny(args, 1).tonumber(); is {
			m.ReturnOne(Num(n))
		} else {
			m.ReturnOne(Value{})
		}
	},
	"rawequal": func(m *Machine, args []Value) { m.ReturnOne(Bool(m.arg(args, 1).equal(m.arg(args, 2)))) },
	"rawget":   func(m *Machine, args []Value) { m.ReturnOne(m.checkTable(args).get(m.checkAny(args, 2))) },
	"error":    baseError,
	"assert":   baseAssert,
	"pcall":    basePcall,
	"select":   baseSelect,
	"unpack":   baseUnpack,
	"next": func(m *Machine, args []Value) {
		k, v, is := m.checkTable(args).next(m.arg(args, 2))
		if !is {
			m.Fail("invalid key to 'next'")
		}
		m.Return(k, v)
	},
	"pairs": func(m *Machine, args []Value) {
		m.Return(m.Globals.Field("next"), TableValue(m.checkTable(args)), Value{})
	},
	"ipairs": func(m *Machine, args []Value) {
		m.Return(inextFunction, TableValue(m.checkTable(args)), Num(0))
	},
}

var inextFunction = Native(func(m *Machine, args []Value) {
	i := m.checkInt(args, 2) + 1
	if v := m.checkTable(args).At(i); v.kind != Nil {
		m.Return(Num(float64(i)), v)
	}
})

func baseError(m *Machine, args []Value) {
	v := m.arg(args, 1)
	if v.kind == String && m.optInt(args, 2, 1) > 0 {
		m.Fail("%s", v.Text())
	}
	m.Raise(v)
}

func baseAssert(m *Machine, args []Value) {
	if m.checkAny(args, 1).Bool() {
		m.Return(args...)
		return
	}
	if m.arg(args, 2).kind != Nil {
		m.Fail("%s", m.CheckString(args, 2))
	}
	m.Fail("assertion failed!")
}

// basePcall is that of Redis, which returns the message of an error that is a table.
func basePcall(m *Machine, args []Value) {
	fn := m.checkAny(args, 1)
	base := m.top
	for _, a := range args[1:] {
		m.push(a)
	}
	n := len(args) - 1
	err := m.protect(func() { n = m.call(fn, base, n, &site{}) })
	if err == nil {
		m.out = append(append(m.out[:0], Bool(true)), m.stack[base:base+n]...)
		return
	}
	v := err.(*Error).Value //nolint:forcetypeassert,errorlint // protect returns no other
	if v.kind == TableKind {
		if text := v.Table().Field("err"); text.kind == String || text.kind == Number {
			v = text
		}
	}
	m.Return(Bool(false), v)
}

func baseSelect(m *Machine, args []Value) {
	if v := m.arg(args, 1); v.kind == String && v.Text() == "#" {
		m.ReturnOne(Num(float64(len(args) - 1)))
		return
	}
	i := m.checkInt(args, 1)
	if i < 0 {
		i += len(args)
	}
	if i < 1 {
		m.ArgError(1, "index out of range")
	}
	m.Return(args[min(i, len(args)):]...)
}

func baseUnpack(m *Machine, args []Value) {
	t := m.checkTable(args)
	i, j := m.optInt(args, 2, 1), m.optInt(args, 3, t.Len())
	if j-i >= stackSize/4 {
		m.Fail("too many results to unpack")
	}
	m.out = m.out[:0]
	for ; i <= j; i++ {
		m.out = append(m.out, t.At(i))
	}
}
