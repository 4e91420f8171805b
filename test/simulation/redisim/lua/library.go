package lua

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

func maths1(f func(float64) float64) func(m *Machine, args []Value) {
	return func(m *Machine, args []Value) { m.ReturnOne(Num(f(m.checkNumber(args, 1)))) }
}

func maths2(f func(a, b float64) float64) func(m *Machine, args []Value) {
	return func(m *Machine, args []Value) { m.ReturnOne(Num(f(m.checkNumber(args, 1), m.checkNumber(args, 2)))) }
}

var mathFunctions = map[string]func(m *Machine, args []Value){
	"floor": maths1(math.Floor), "ceil": maths1(math.Ceil), "abs": maths1(math.Abs), "sqrt": maths1(math.Sqrt),
	"exp": maths1(math.Exp), "log": maths1(math.Log), "pow": maths2(math.Pow), "fmod": maths2(math.Mod),
	"max": func(m *Machine, args []Value) {
		most := m.checkNumber(args, 1)
		for i := 2; i <= len(args); i++ {
			if n := m.checkNumber(args, i); n > most {
				most = n
			}
		}
		m.ReturnOne(Num(most))
	},
	"min": func(m *Machine, args []Value) {
		least := m.checkNumber(args, 1)
		for i := 2; i <= len(args); i++ {
			if n := m.checkNumber(args, i); n < least {
				least = n
			}
		}
		m.ReturnOne(Num(least))
	},
}

var tableFunctions = map[string]func(m *Machine, args []Value){
	"concat": tableConcat,
	"insert": tableInsert,
	"remove": tableRemove,
	"sort":   tableSort,
	"getn":   func(m *Machine, args []Value) { m.ReturnOne(Num(float64(m.checkTable(args).Len()))) },
}

func tableConcat(m *Machine, args []Value) {
	t, between := m.checkTable(args), ""
	if m.arg(args, 2).kind != Nil {
		between = m.CheckString(args, 2)
	}
	i, j := m.optInt(args, 3, 1), m.optInt(args, 4, t.Len())
	b := m.buf[:0]
	for x := i; x <= j; x++ {
		v := t.At(x)
		s, is := v.tostring()
		if !is {
			m.Fail("invalid value (%s) at index %d in table for 'concat'", v.kind, x)
		}
		b = append(b, s...)
		if x < j {
			b = append(b, between...)
		}
	}
	m.buf = b
	m.ReturnOne(Str(string(b)))
}

func tableInsert(m *Machine, args []Value) {
	t := m.checkTable(args)
	if t.ReadOnly {
		m.Fail("Attempt to modify a readonly table")
	}
	switch len(args) {
	case 2:
		t.Append(args[1])
	case 3:
		i := m.checkInt(args, 2)
		for x := t.Len(); x >= i; x-- {
			t.set(Num(float64(x+1)), t.At(x))
		}
		t.set(Num(float64(i)), args[2])
	default:
		m.Fail("wrong number of arguments to 'insert'")
	}
}

func tableRemove(m *Machine, args []Value) {
	t := m.checkTable(args)
	n := t.Len()
	i := m.optInt(args, 2, n)
	if i < 1 || i > n {
		return
	}
	v := t.At(i)
	for ; i < n; i++ {
		t.set(Num(float64(i)), t.At(i+1))
	}
	t.set(Num(float64(n)), Value{})
	m.ReturnOne(v)
}

func tableSort(m *Machine, args []Value) {
	t := m.checkTable(args)
	by := m.arg(args, 2)
	less := func(v, w Value) bool {
		if v.kind == Number && w.kind == Number {
			return v.Num() < w.Num()
		}
		return m.less(v, w, m.siteLine())
	}
	if by.kind == FunctionKind {
		less = func(v, w Value) bool {
			base := m.top
			m.push(v)
			m.push(w)
			n := m.call(by, base, 2, &site{})
			m.top = base
			return n > 0 && m.stack[base].Bool()
		}
	}
	slices.SortFunc(t.list, func(v, w Value) int {
		switch {
		case less(v, w):
			return -1
		case less(w, v):
			return 1
		}
		return 0
	})
	m.out = m.out[:0]
}

var stringFunctions = map[string]func(m *Machine, args []Value){
	"len":     func(m *Machine, args []Value) { m.ReturnOne(Num(float64(len(m.CheckString(args, 1))))) },
	"lower":   func(m *Machine, args []Value) { m.ReturnOne(Str(strings.ToLower(m.CheckString(args, 1)))) },
	"upper":   func(m *Machine, args []Value) { m.ReturnOne(Str(strings.ToUpper(m.CheckString(args, 1)))) },
	"rep":     stringRep,
	"byte":    stringByte,
	"char":    stringChar,
	"find":    stringFind,
	"format":  stringFormat,
	"sub":     stringSub,
	"reverse": stringReverse,
}

// span returns the bytes of a string from i to j as Lua counts them.
func span(size, i, j int) (from, to int) {
	if i < 0 {
		i = max(1, i+size+1)
	}
	if j < 0 {
		j += size + 1
	}
	i, j = max(1, i), min(j, size)
	if i > j {
		return 0, 0
	}
	return i - 1, j
}

func stringSub(m *Machine, args []Value) {
	s := m.CheckString(args, 1)
	from, to := span(len(s), m.checkInt(args, 2), m.optInt(args, 3, -1))
	m.ReturnOne(Str(s[from:to]))
}

func stringByte(m *Machine, args []Value) {
	s := m.CheckString(args, 1)
	i := m.optInt(args, 2, 1)
	from, to := span(len(s), i, m.optInt(args, 3, i))
	m.out = m.out[:0]
	for _, b := range []byte(s[from:to]) {
		m.out = append(m.out, Num(float64(b)))
	}
}

func stringChar(m *Machine, args []Value) {
	b := make([]byte, len(args))
	for i := range args {
		n := m.checkInt(args, i+1)
		if n < 0 || n > 255 {
			m.ArgError(i+1, "invalid value")
		}
		b[i] = byte(n)
	}
	m.ReturnOne(bytesValue(b))
}

// zeros are what the scripts repeat most.
var zeros = strings.Repeat("\x00", 4096)

func stringRep(m *Machine, args []Value) {
	s, n := m.CheckString(args, 1), max(0, m.checkInt(args, 2))
	switch {
	case s == "\x00" && n <= len(zeros):
		m.ReturnOne(Str(zeros[:n]))
		return
	case len(s) > 0 && n > maxString/len(s):
		m.Fail("resulting string too large")
	}
	m.ReturnOne(Str(strings.Repeat(s, n)))
}

const maxString = 512 << 20

func stringReverse(m *Machine, args []Value) {
	b := []byte(m.CheckString(args, 1))
	slices.Reverse(b)
	m.ReturnOne(bytesValue(b))
}

// stringFind finds a text; patterns are not supported.
func stringFind(m *Machine, args []Value) {
	s, what, from := m.CheckString(args, 1), m.CheckString(args, 2), m.optInt(args, 3, 1)
	if !m.arg(args, 4).Bool() && strings.ContainsAny(what, "^$*+?.([%-") {
		m.Fail("patterns are not supported")
	}
	if from < 0 {
		from += len(s) + 1
	}
	from = min(max(1, from)-1, len(s))
	i := strings.Index(s[from:], what)
	if i < 0 {
		m.ReturnOne(Value{})
		return
	}
	m.Return(Num(float64(from+i+1)), Num(float64(from+i+len(what))))
}

// stringFormat formats as C's printf does.
func stringFormat(m *Machine, args []Value) {
	format := m.CheckString(args, 1)
	var b strings.Builder
	next := 1
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		from := i
		for i++; i < len(format) && strings.IndexByte("-+ #0123456789.", format[i]) >= 0; i++ {
		}
		if i == len(format) {
			m.Fail("invalid option '%%' to 'format'")
		}
		if format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		next++
		m.formatOne(&b, format[from:i], format[i], args, next)
	}
	m.ReturnOne(Str(b.String()))
}

func (m *Machine) formatOne(b *strings.Builder, flags string, verb byte, args []Value, i int) {
	switch verb {
	case 'd', 'i':
		fmt.Fprintf(b, flags+"d", Integer(m.checkNumber(args, i)))
	case 'u':
		fmt.Fprintf(b, flags+"d", uint64(Integer(m.checkNumber(args, i))))
	case 'c', 'x', 'X', 'o':
		fmt.Fprintf(b, flags+string(verb), Integer(m.checkNumber(args, i)))
	case 'e', 'E', 'f', 'g', 'G':
		f := m.checkNumber(args, i)
		if math.IsNaN(f) || math.IsInf(f, 0) { // which Go writes differently
			b.WriteString(formatNumber(f, 0))
			return
		}
		if (verb == 'g' || verb == 'G') && !strings.Contains(flags, ".") {
			flags = cmp.Or(flags, "%") + ".6"
		}
		fmt.Fprintf(b, flags+string(verb), f)
	case 's':
		fmt.Fprintf(b, flags+"s", m.CheckString(args, i))
	default:
		m.Fail("invalid option '%%%c' to 'format'", verb)
	}
}
