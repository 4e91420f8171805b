package lua

import (
	"fmt"

	"github.com/yuin/gopher-lua/ast"
)

// expr compiles an expression of one value.
func (c *compiler) expr(e ast.Expr) expr {
	switch e := e.(type) {
	case *ast.NilExpr:
		return constant(Value{})
	case *ast.TrueExpr:
		return constant(Bool(true))
	case *ast.FalseExpr:
		return constant(Bool(false))
	case *ast.StringExpr:
		return constant(Str(e.Value))
	case *ast.NumberExpr:
		n, is := parseNumber(e.Value)
		if !is {
			panic(compileError("malformed number near '" + e.Value + "'"))
		}
		return constant(Num(n))
	case *ast.Comma3Expr:
		return func(f *frame) Value {
			if len(f.varargs) == 0 {
				return Value{}
			}
			return f.varargs[0]
		}
	case *ast.IdentExpr:
		return c.variable(e)
	case *ast.AttrGetExpr:
		return c.index(e)
	case *ast.TableExpr:
		return c.table(e)
	case *ast.FuncCallExpr:
		return c.callOne(e)
	case *ast.FunctionExpr:
		return c.functionExpr(e, false)
	}
	return c.operator(e)
}

func constant(v Value) expr { return func(*frame) Value { return v } }

func (c *compiler) variable(e *ast.IdentExpr) expr {
	if l, is := c.fn.find(e.Value); is {
		slot := l.slot
		if l.cell {
			return func(f *frame) Value { return *f.s[slot].variable() }
		}
		return func(f *frame) Value { return f.s[slot] }
	}
	if i := c.upvalue(c.fn, e.Value); i >= 0 {
		return func(f *frame) Value { return *f.up[i] }
	}
	name, line := e.Value, e.Line()
	return func(f *frame) Value {
		g := f.m.Globals
		if i := g.find(name); i >= 0 {
			return g.fields[i].value
		}
		return f.m.missing(g, Str(name), line)
	}
}

// missing returns what a field is that does not exist.
func (m *Machine) missing(t *Table, key Value, line int) Value {
	if t.Strict {
		name, _ := key.tostring()
		m.failAt(line, "Script attempted to access nonexistent global variable '%s'", name)
	}
	return Value{}
}

// siteOf describes an expression in an error message, as the field's or variable's name;
// nil if Lua knows none.
func (c *compiler) siteOf(e ast.Expr) *site {
	switch e := e.(type) {
	case *ast.IdentExpr:
		kind := "global"
		if _, is := c.fn.find(e.Value); is {
			kind = "local"
		} else if c.upvalue(c.fn, e.Value) >= 0 {
			kind = "upvalue"
		}
		return &site{e.Line(), kind, e.Value}
	case *ast.AttrGetExpr:
		if key, is := e.Key.(*ast.StringExpr); is {
			return &site{e.Line(), "field", key.Value}
		}
	case *ast.FuncCallExpr:
		if e.Method != "" {
			return &site{e.Line(), "method", e.Method}
		}
	}
	return &site{line: e.Line()}
}

// describe describes a value in an error message.
func (at *site) describe(v Value) string {
	if at == nil {
		return describe("", "", v)
	}
	return describe(at.kind, at.name, v)
}

func (c *compiler) index(e *ast.AttrGetExpr) expr {
	object, line, at := c.expr(e.Object), e.Line(), c.siteOf(e.Object)
	if key, is := e.Key.(*ast.StringExpr); is {
		name := key.Value
		return func(f *frame) Value {
			o := object(f)
			if o.kind == TableKind {
				t := o.Table()
				if i := t.find(name); i >= 0 {
					return t.fields[i].value
				}
			}
			return f.m.index(o, Str(name), line, at)
		}
	}
	key := c.expr(e.Key)
	return func(f *frame) Value {
		o := object(f)
		k := key(f)
		if o.kind == TableKind && k.kind == Number {
			t, n := o.Table(), k.Num()
			if i := int(n); float64(i) == n && uint(i-1) < uint(len(t.list)) {
				return t.list[i-1]
			}
		}
		return f.m.index(o, k, line, at)
	}
}

func (m *Machine) index(o, key Value, line int, at *site) Value {
	switch o.kind {
	case TableKind:
		t := o.Table()
		v := t.get(key)
		if v.kind == Nil && t.Strict {
			return m.missing(t, key, line)
		}
		return v
	case String:
		return m.str.get(key)
	}
	m.failAt(line, "attempt to index %s", at.describe(o))
	return Value{}
}

func (m *Machine) setIndex(o, key, v Value, line int, at *site) {
	if o.kind != TableKind {
		m.failAt(line, "attempt to index %s", at.describe(o))
	}
	t := o.Table()
	switch {
	case t.ReadOnly:
		m.failAt(line, "Attempt to modify a readonly table")
	case key.kind == Nil:
		m.failAt(line, "table index is nil")
	case !valid(key):
		m.failAt(line, "table index is NaN")
	}
	t.set(key, v)
}

// table compiles a constructor.
func (c *compiler) table(e *ast.TableExpr) expr {
	type entry struct{ key, value expr }
	var entries []entry
	var rest multi
	listed := 0
	for i, field := range e.Fields {
		if field.Key == nil {
			listed++
			if many := c.many(field.Value); many != nil && i == len(e.Fields)-1 {
				rest = many
				continue
			}
			entries = append(entries, entry{nil, c.expr(field.Value)})
			continue
		}
		entries = append(entries, entry{c.expr(field.Key), c.expr(field.Value)})
	}
	line, named := e.Line(), len(e.Fields)-listed
	return func(f *frame) Value {
		t, list := &Table{}, make([]Value, 0, listed)
		if named > 0 {
			t.fields = make([]field, 0, named)
		}
		for i := range entries {
			if x := &entries[i]; x.key == nil {
				list = append(list, x.value(f))
			} else {
				k := x.key(f)
				f.m.setIndex(TableValue(t), k, x.value(f), line, nil)
			}
		}
		if rest != nil {
			top := f.m.top
			n := rest(f)
			list = append(list, f.m.stack[top:top+n]...)
			f.m.top = top
		}
		for n := len(list); n > 0 && list[n-1].kind == Nil; n-- {
			list = list[:n-1]
		}
		if len(t.list) == 0 {
			t.list = list
			return TableValue(t)
		}
		for i, v := range list { // they replace what was set by a key
			t.set(Num(float64(i+1)), v)
		}
		return TableValue(t)
	}
}

// many compiles an expression that may have several values, nil if it has always one.
func (c *compiler) many(e ast.Expr) multi {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		if !e.AdjustRet {
			return c.call(e)
		}
	case *ast.Comma3Expr:
		if !e.AdjustRet {
			return func(f *frame) int {
				for _, v := range f.varargs {
					f.m.push(v)
				}
				return len(f.varargs)
			}
		}
	}
	return nil
}

// list compiles a list of expressions, whose values are pushed.
func (c *compiler) list(list []ast.Expr) multi {
	var singles []expr
	var rest multi
	for i, e := range list {
		if many := c.many(e); many != nil && i == len(list)-1 {
			rest = many
		} else {
			singles = append(singles, c.expr(e))
		}
	}
	n := len(singles)
	if n == 0 && rest != nil {
		return rest
	}
	return func(f *frame) int {
		for _, e := range singles {
			v := e(f) // which may push as well
			f.m.push(v)
		}
		if rest != nil {
			return n + rest(f)
		}
		return n
	}
}

// call compiles a call, whose results are pushed.
func (c *compiler) call(e *ast.FuncCallExpr) multi {
	args := c.list(e.Args)
	if e.Receiver != nil {
		object, name, at := c.expr(e.Receiver), Str(e.Method), c.siteOf(e)
		of := c.siteOf(e.Receiver)
		return func(f *frame) int {
			o := object(f)
			fn, base := f.m.index(o, name, at.line, of), f.m.top
			f.m.push(o)
			n := 1 + args(f)
			return f.m.call(fn, base, n, at)
		}
	}
	fn, at := c.expr(e.Func), c.siteOf(e.Func)
	at.line = e.Line()
	return func(f *frame) int {
		fv, base := fn(f), f.m.top
		n := args(f)
		return f.m.call(fv, base, n, at)
	}
}

// callOne compiles a call of which one result is used.
func (c *compiler) callOne(e *ast.FuncCallExpr) expr {
	call := c.call(e)
	return func(f *frame) Value {
		top := f.m.top
		n := call(f)
		f.m.top = top
		if n == 0 {
			return Value{}
		}
		return f.m.stack[top]
	}
}

func unsupported(what any) error { return compileError(fmt.Sprintf("%T is not supported", what)) }
