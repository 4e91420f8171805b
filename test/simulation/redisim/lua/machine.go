package lua

import (
	"fmt"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// Machine runs scripts, one at a time.
type Machine struct {
	// Globals are the global variables.
	Globals *Table

	stack  []Value
	top    int // of the stack; what is above is unused
	depth  int
	frames []*frame
	out    []Value // results of the last function in Go
	site   *site   // of the last call of such a function
	str    *Table  // the library that methods of strings are in
	buf    []byte
}

// Function is a function of Lua, or one in Go.
type Function struct {
	native func(m *Machine, args []Value)
	proto  *proto
	up     []*Value
}

// site is a place in a script at which a function is called.
type site struct {
	line       int
	kind, name string // of what is called: "local", "a"
}

const (
	stackSize = 1 << 14
	maxDepth  = 200 // of calls
	maxNative = 64  // slots that the arguments and results of a function in Go may need besides
)

// New returns a machine with the libraries of Lua and struct.
func New() *Machine {
	m := &Machine{Globals: &Table{}, stack: make([]Value, stackSize)}
	m.openLibraries()
	return m
}

// Error is an error that a script raised.
type Error struct {
	Value Value // that was raised
	Line  int   // at which it was raised
}

// Error implements error.
func (e *Error) Error() string {
	s, _ := e.Value.tostring()
	return s
}

// Native returns a function in Go. It calls Return with its results.
func Native(run func(m *Machine, args []Value)) Value { return functionValue(&Function{native: run}) }

// Return sets the results of a function in Go.
func (m *Machine) Return(results ...Value) { m.out = append(m.out[:0], results...) }

// Raise raises an error with a value.
func (m *Machine) Raise(v Value) { panic(&Error{v, m.siteLine()}) }

// Fail raises an error with a message, at the place at which the running function in Go
// was called.
func (m *Machine) Fail(format string, args ...any) {
	m.failAt(m.siteLine(), format, args...)
}

// ArgError raises an error about argument i.
func (m *Machine) ArgError(i int, message string) {
	name := "?"
	if m.site != nil && m.site.name != "" {
		name = m.site.name
	}
	m.Fail("bad argument #%d to '%s' (%s)", i, name, message)
}

func (m *Machine) siteLine() int {
	if m.site == nil {
		return 0
	}
	return m.site.line
}

const chunkName = "user_script"

func (m *Machine) failAt(line int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if line > 0 { // or else a function in Go has called it
		text = fmt.Sprintf("%s:%d: %s", chunkName, line, text)
	}
	panic(&Error{Str(text), line})
}

// Compile compiles a script.
func (m *Machine) Compile(text string) (Value, error) {
	chunk, err := parse.Parse(strings.NewReader(text), chunkName)
	if err != nil {
		return Value{}, err
	}
	p, err := compile(chunk)
	if err != nil {
		return Value{}, err
	}
	return functionValue(&Function{proto: p}), nil
}

// Run runs a compiled script, and returns its first result. The error is an *Error.
func (m *Machine) Run(script Value) (result Value, err error) {
	m.top, m.depth, m.site = 0, 0, nil
	err = m.protect(func() {
		if m.call(script, 0, 0, nil) > 0 {
			result = m.stack[0]
		}
	})
	return result, err
}

// protect runs a function and returns the error that it raises.
func (m *Machine) protect(run func()) (err error) {
	top, depth := m.top, m.depth
	defer func() {
		if e := recover(); e != nil {
			raised, is := e.(*Error)
			if !is {
				panic(e)
			}
			err = raised
			m.top, m.depth = top, depth
		}
	}()
	run()
	return nil
}

func (m *Machine) push(v Value) {
	m.stack[m.top] = v
	m.top++
}

// call calls a function with the n arguments at base of the stack, which its results
// replace. It returns their number. The top of the stack is behind the arguments before,
// and behind the results afterwards.
func (m *Machine) call(fn Value, base, n int, at *site) int {
	if fn.kind != FunctionKind {
		m.failAt(at.line, "attempt to call %s", describe(at.kind, at.name, fn))
	}
	f := fn.function()
	if f.native != nil {
		m.site, m.out = at, m.out[:0]
		f.native(m, m.stack[base:base+n:base+n])
		if base+len(m.out) >= len(m.stack)-maxNative {
			m.failAt(at.line, "stack overflow")
		}
		copy(m.stack[base:], m.out)
		m.top = base + len(m.out)
		return len(m.out)
	}
	return m.callLua(f, base, n, at)
}

func (m *Machine) callLua(f *Function, base, n int, at *site) int {
	p := f.proto
	if m.depth++; m.depth > maxDepth || base+p.slots+n > len(m.stack)-maxNative {
		line := 0
		if at != nil {
			line = at.line
		}
		m.failAt(line, "stack overflow")
	}
	for len(m.frames) <= m.depth {
		m.frames = append(m.frames, &frame{m: m})
	}
	x := m.frames[m.depth]
	x.up, x.varargs, x.ret = f.up, nil, 0
	if p.varargs && n > p.params {
		x.varargs = append([]Value(nil), m.stack[base+p.params:base+n]...)
	}
	x.s = m.stack[base : base+p.slots : base+p.slots]
	clear(x.s[min(n, p.params):])
	for _, i := range p.capturedParams {
		x.s[i] = newCell(x.s[i])
	}
	m.top = base + p.slots
	from := m.top
	if p.body(x) != returning {
		x.ret = 0
	} else {
		from = m.top - x.ret
	}
	copy(m.stack[base:], m.stack[from:from+x.ret])
	m.depth--
	m.top = base + x.ret
	return x.ret
}

// frame is a call of a Lua function.
type frame struct {
	m       *Machine
	s       []Value // its local variables
	up      []*Value
	varargs []Value
	ret     int // how many results are on the stack
}

func describe(kind, name string, v Value) string {
	if kind == "" {
		return "a " + v.kind.String() + " value"
	}
	return fmt.Sprintf("%s '%s' (a %s value)", kind, name, v.kind)
}
