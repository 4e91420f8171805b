package lua

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/yuin/gopher-lua/ast"
)

// proto is a function before it is created.
type proto struct {
	params         int
	varargs        bool
	slots          int
	capturedParams []int
	body           statement
}

type (
	statement func(f *frame) signal
	expr      func(f *frame) Value
	multi     func(f *frame) int // pushes values, and returns their number
)

// signal is how a statement ends.
type signal uint8

const (
	proceed signal = iota
	breaking
	returning
)

// compiler compiles a script, twice: at first to find out which variables functions
// capture, which need a place of their own.
type compiler struct {
	captured []bool // by the number of the variable's declaration
	declared int
	second   bool
	fn       *function
}

// function is a function that is being compiled.
type function struct {
	outer  *function
	locals []local
	slots  int
	ups    []upvalue
	proto  proto
}

type local struct {
	name   string
	slot   int
	number int // of its declaration
	cell   bool
}

// upvalue is a variable of an outer function.
type upvalue struct {
	name  string
	local bool // it is a local variable of the function around this one, or else an upvalue of that
	index int
}

func compile(chunk []ast.Stmt) (p *proto, err error) {
	defer func() {
		if e := recover(); e != nil {
			text, is := e.(compileError)
			if !is {
				panic(e)
			}
			err = text
		}
	}()
	c := &compiler{}
	c.main(chunk)
	c.declared, c.second = 0, true
	return c.main(chunk), nil
}

type compileError string

func (e compileError) Error() string { return string(e) }

func (c *compiler) main(chunk []ast.Stmt) *proto {
	c.fn = &function{proto: proto{varargs: true}}
	c.fn.proto.body = c.block(chunk)
	c.fn.proto.slots = c.fn.slots
	return &c.fn.proto
}

// declare adds a local variable and returns it.
func (c *compiler) declare(name string) local {
	if !c.second {
		c.captured = append(c.captured, false)
	}
	l := local{name, len(c.fn.locals), c.declared, c.second && c.captured[c.declared]}
	c.declared++
	c.fn.locals = append(c.fn.locals, l)
	c.fn.slots = max(c.fn.slots, len(c.fn.locals))
	return l
}

// scoped runs do and ends the scope of what it declares.
func (c *compiler) scoped(do func()) {
	fn, n := c.fn, len(c.fn.locals)
	do()
	fn.locals = fn.locals[:n]
}

func (fn *function) find(name string) (local, bool) {
	for _, l := range slices.Backward(fn.locals) {
		if l.name == name {
			return l, true
		}
	}
	return local{}, false
}

// upvalue returns the index of a variable of an outer function, -1 if there is none.
func (c *compiler) upvalue(fn *function, name string) int {
	if i := slices.IndexFunc(fn.ups, func(u upvalue) bool { return u.name == name }); i >= 0 {
		return i
	}
	if fn.outer == nil {
		return -1
	}
	if l, is := fn.outer.find(name); is {
		c.captured[l.number] = true
		fn.ups = append(fn.ups, upvalue{name, true, l.slot})
		return len(fn.ups) - 1
	}
	i := c.upvalue(fn.outer, name)
	if i < 0 {
		return -1
	}
	fn.ups = append(fn.ups, upvalue{name, false, i})
	return len(fn.ups) - 1
}

func newCell(v Value) Value {
	p := new(Value)
	*p = v
	return Value{p: unsafe.Pointer(p), kind: cell} //nolint:gosec // variable is its inverse
}

func (v Value) variable() *Value { return (*Value)(v.p) }

// functionExpr compiles a function.
func (c *compiler) functionExpr(e *ast.FunctionExpr, method bool) expr {
	fn := &function{outer: c.fn}
	c.fn = fn
	names := e.ParList.Names
	if method {
		names = append([]string{"self"}, names...)
	}
	for i, name := range names {
		if c.declare(name).cell {
			fn.proto.capturedParams = append(fn.proto.capturedParams, i)
		}
	}
	fn.proto.params, fn.proto.varargs = len(names), e.ParList.HasVargs
	fn.proto.body = c.block(e.Stmts)
	fn.proto.slots = max(fn.slots, len(names))
	c.fn = fn.outer
	p, ups := &fn.proto, fn.ups
	return func(f *frame) Value {
		all := make([]*Value, len(ups))
		for i, u := range ups {
			if u.local {
				all[i] = f.s[u.index].variable()
			} else {
				all[i] = f.up[u.index]
			}
		}
		return functionValue(&Function{proto: p, up: all})
	}
}

// block compiles statements with a scope of their own.
func (c *compiler) block(list []ast.Stmt) (all statement) {
	c.scoped(func() { all = c.statements(list) })
	return all
}

func (c *compiler) statements(list []ast.Stmt) statement {
	all := make([]statement, 0, len(list))
	for _, s := range list {
		all = append(all, c.statement(s))
	}
	switch len(all) {
	case 0:
		return func(*frame) signal { return proceed }
	case 1:
		return all[0]
	case 2:
		first, second := all[0], all[1]
		return func(f *frame) signal {
			if s := first(f); s != proceed {
				return s
			}
			return second(f)
		}
	}
	return func(f *frame) signal {
		for _, run := range all {
			if s := run(f); s != proceed {
				return s
			}
		}
		return proceed
	}
}

func (c *compiler) statement(s ast.Stmt) statement {
	switch s := s.(type) {
	case *ast.LocalAssignStmt:
		return c.localAssign(s)
	case *ast.AssignStmt:
		return c.assign(s)
	case *ast.FuncCallStmt:
		call := c.call(s.Expr.(*ast.FuncCallExpr)) //nolint:forcetypeassert // the grammar has nothing else
		return func(f *frame) signal {
			top := f.m.top
			call(f)
			f.m.top = top
			return proceed
		}
	case *ast.DoBlockStmt:
		return c.block(s.Stmts)
	case *ast.IfStmt:
		return c.ifStatement(s)
	case *ast.WhileStmt:
		return c.while(s)
	case *ast.RepeatStmt:
		return c.repeat(s)
	case *ast.NumberForStmt:
		return c.numberFor(s)
	case *ast.GenericForStmt:
		return c.genericFor(s)
	case *ast.FuncDefStmt:
		return c.functionStatement(s)
	case *ast.ReturnStmt:
		values := c.list(s.Exprs)
		return func(f *frame) signal {
			f.ret = values(f)
			return returning
		}
	case *ast.BreakStmt:
		return func(*frame) signal { return breaking }
	}
	panic(compileError(fmt.Sprintf("user_script:%d: %T is not supported", s.Line(), s)))
}
