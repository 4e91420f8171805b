// Package lua runs scripts in Lua 5.1 as Redis does, as closures compiled from the
// syntax trees of gopher-lua's parser. It is fast where a script works with numbers and
// strings: neither is allocated, and a substring shares the bytes of its string.
//
// It has what scripts of Redis commonly use, with Lua's error messages. Patterns,
// metatables and coroutines are missing.
package lua

import (
	"math"
	"strconv"
	"strings"
	"unsafe"
)

// Value is a value of Lua. The zero Value is nil.
type Value struct {
	p    unsafe.Pointer // a string's bytes, a *Table, a *Function, or the *Value of a captured variable
	n    uint64         // a string's length, the bits of a number, or whether a boolean is true
	kind Kind
}

// Kind is the type of a value.
type Kind uint8

// The types of values.
const (
	Nil Kind = iota
	Boolean
	Number
	String
	TableKind
	FunctionKind
	cell // a variable that a function has captured
)

// String returns the name of the type.
func (k Kind) String() string {
	return [...]string{"nil", "boolean", "number", "string", "table", "function", "cell"}[k]
}

// Num returns a number.
func Num(f float64) Value { return Value{n: math.Float64bits(f), kind: Number} }

// Str returns a string.
func Str(s string) Value {
	return Value{p: unsafe.Pointer(unsafe.StringData(s)), n: uint64(len(s)), kind: String} //nolint:gosec // text is its inverse
}

// Bool returns a boolean.
func Bool(b bool) Value {
	if b {
		return Value{n: 1, kind: Boolean}
	}
	return Value{kind: Boolean}
}

// TableValue returns a table as a value.
func TableValue(t *Table) Value { return Value{p: unsafe.Pointer(t), kind: TableKind} } //nolint:gosec // Table is its inverse

func functionValue(f *Function) Value { return Value{p: unsafe.Pointer(f), kind: FunctionKind} } //nolint:gosec // function is its inverse

// Kind returns the value's type.
func (v Value) Kind() Kind { return v.kind }

// Num returns the number that the value is.
func (v Value) Num() float64 { return math.Float64frombits(v.n) }

// Text returns the string that the value is.
func (v Value) Text() string { return unsafe.String((*byte)(v.p), int(v.n)) } //nolint:gosec // Str is its inverse

// Bool says whether the value is neither nil nor false.
func (v Value) Bool() bool { return v.kind > Boolean || v.n != 0 }

// Table returns the table that the value is.
func (v Value) Table() *Table { return (*Table)(v.p) }

func (v Value) function() *Function { return (*Function)(v.p) }

// equal compares as Lua's == does.
func (v Value) equal(w Value) bool {
	if v.kind != w.kind {
		return false
	}
	switch v.kind {
	case Number:
		return v.Num() == w.Num()
	case String:
		return v.n == w.n && (v.p == w.p || v.Text() == w.Text())
	}
	return v.n == w.n && v.p == w.p
}

// tonumber converts a number or the text of one.
func (v Value) tonumber() (float64, bool) {
	switch v.kind {
	case Number:
		return v.Num(), true
	case String:
		return parseNumber(v.Text())
	}
	return 0, false
}

// tostring converts a string or a number.
func (v Value) tostring() (string, bool) {
	switch v.kind {
	case String:
		return v.Text(), true
	case Number:
		return formatNumber(v.Num(), 14), true
	}
	return "", false
}

// parseNumber parses a number as Lua does: decimal or hexadecimal, with space around it.
func parseNumber(s string) (float64, bool) {
	s, _, _ = strings.Cut(s, "\x00") // C's strings end there
	s = strings.Trim(s, " \t\n\v\f\r")
	digits := strings.TrimLeft(s, "+-")
	if len(digits) > 2 && (digits[:2] == "0x" || digits[:2] == "0X") {
		n, err := strconv.ParseUint(digits[2:], 16, 64)
		if len(s) > len(digits) && s[0] == '-' {
			return -float64(n), err == nil
		}
		return float64(n), err == nil
	}
	if strings.ContainsAny(s, "_xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// FormatNumber formats a number as an argument of a command of Redis.
func FormatNumber(f float64) string { return formatNumber(f, 17) }

// formatNumber formats a number as C's %.*g does.
func formatNumber(f float64, precision int) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return nan(f)
	case f == math.Trunc(f) && math.Abs(f) < 1e14 && (f != 0 || !math.Signbit(f)):
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', precision, 64)
}

// nan returns what C prints of a NaN. The one that 0/0 gives on x86 is negative.
func nan(f float64) string {
	if math.Signbit(f) {
		return "-nan"
	}
	return "nan"
}
