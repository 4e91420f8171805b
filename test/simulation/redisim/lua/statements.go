package lua

import "github.com/yuin/gopher-lua/ast"

// setter returns a function that sets a local variable when it is declared.
func (l local) setter() func(f *frame, v Value) {
	slot := l.slot
	if l.cell {
		return func(f *frame, v Value) { f.s[slot] = newCell(v) }
	}
	return func(f *frame, v Value) { f.s[slot] = v }
}

func (c *compiler) localAssign(s *ast.LocalAssignStmt) statement {
	if len(s.Names) == 1 && len(s.Exprs) == 1 {
		if fn, is := s.Exprs[0].(*ast.FunctionExpr); is { // it may be a local function, which sees itself
			return c.localFunction(s.Names[0], fn)
		}
		value := c.expr(s.Exprs[0])
		l := c.declare(s.Names[0])
		slot := l.slot
		if l.cell {
			return func(f *frame) signal { f.s[slot] = newCell(value(f)); return proceed }
		}
		return func(f *frame) signal { f.s[slot] = value(f); return proceed }
	}
	values := c.list(s.Exprs)
	first := len(c.fn.locals)
	cells := false
	for _, name := range s.Names {
		cells = c.declare(name).cell || cells
	}
	declared := append([]local(nil), c.fn.locals[first:]...)
	n := len(declared)
	return func(f *frame) signal {
		top := f.m.top
		got := f.m.stack[top : top+min(n, values(f))]
		f.m.top = top
		copy(f.s[first:first+n], got)
		clear(f.s[first+len(got) : first+n])
		if cells {
			for i := range declared {
				if declared[i].cell {
					f.s[first+i] = newCell(f.s[first+i])
				}
			}
		}
		return proceed
	}
}

// localFunction compiles a local function. The parser does not tell it from a local
// variable whose value is a function; both see the variable here, which matters only to a
// function that means another variable of the same name.
func (c *compiler) localFunction(name string, e *ast.FunctionExpr) statement {
	l := c.declare(name)
	fn := c.functionExpr(e, false)
	slot := l.slot
	if !l.cell {
		return func(f *frame) signal { f.s[slot] = fn(f); return proceed }
	}
	return func(f *frame) signal {
		f.s[slot] = newCell(Value{})
		*f.s[slot].variable() = fn(f)
		return proceed
	}
}

func (c *compiler) assign(s *ast.AssignStmt) statement {
	if len(s.Lhs) == 1 && len(s.Rhs) == 1 {
		return c.assignOne(s.Lhs[0], c.expr(s.Rhs[0]))
	}
	targets := make([]func(f *frame) func(v Value), 0, len(s.Lhs))
	for _, e := range s.Lhs {
		targets = append(targets, c.target(e))
	}
	plain := c.plainTargets(s.Lhs)
	values, n := c.list(s.Rhs), len(s.Lhs)
	return func(f *frame) signal {
		m, top := f.m, f.m.top
		if plain != nil {
			got := values(f)
			for i := got; i < n; i++ {
				m.push(Value{})
			}
			for i := n - 1; i >= 0; i-- {
				plain[i](f, m.stack[top+i])
			}
			m.top = top
			return proceed
		}
		sets := make([]func(Value), n)
		for i := range targets {
			sets[i] = targets[i](f)
		}
		for i := values(f); i < n; i++ {
			m.push(Value{})
		}
		for i := n - 1; i >= 0; i-- {
			sets[i](m.stack[top+i])
		}
		m.top = top
		return proceed
	}
}

// plainTargets returns how to set variables and the named fields of local tables, which may
// be evaluated after the values; nil if a target is another one.
func (c *compiler) plainTargets(list []ast.Expr) (all []func(f *frame, v Value)) {
	assigned := make(map[string]bool)
	for _, e := range list {
		if id, is := e.(*ast.IdentExpr); is {
			assigned[id.Value] = true
		}
	}
	for _, e := range list {
		switch e := e.(type) {
		case *ast.IdentExpr:
			all = append(all, c.variableSetter(e))
		case *ast.AttrGetExpr:
			object, is := e.Object.(*ast.IdentExpr)
			key, constant := e.Key.(*ast.StringExpr)
			if !is || !constant || assigned[object.Value] {
				return nil
			}
			if l, own := c.fn.find(object.Value); !own || l.cell { // the values may change it
				return nil
			}
			from, name, line, at := c.expr(object), key.Value, e.Line(), c.siteOf(object)
			all = append(all, func(f *frame, v Value) { f.m.setIndex(from(f), Str(name), v, line, at) })
		}
	}
	return all
}

// variableSetter returns how to set a variable that was declared before, or a global one.
func (c *compiler) variableSetter(e *ast.IdentExpr) func(f *frame, v Value) {
	if l, is := c.fn.find(e.Value); is {
		slot := l.slot
		if l.cell {
			return func(f *frame, v Value) { *f.s[slot].variable() = v }
		}
		return func(f *frame, v Value) { f.s[slot] = v }
	}
	if i := c.upvalue(c.fn, e.Value); i >= 0 {
		return func(f *frame, v Value) { *f.up[i] = v }
	}
	name, line := Str(e.Value), e.Line()
	return func(f *frame, v Value) { f.m.setIndex(TableValue(f.m.Globals), name, v, line, nil) }
}

func (c *compiler) assignOne(to ast.Expr, value expr) statement {
	switch e := to.(type) {
	case *ast.IdentExpr:
		if l, is := c.fn.find(e.Value); is && !l.cell {
			slot := l.slot
			return func(f *frame) signal { f.s[slot] = value(f); return proceed }
		}
		set := c.variableSetter(e)
		return func(f *frame) signal { set(f, value(f)); return proceed }
	case *ast.AttrGetExpr:
		object, key, line, at := c.expr(e.Object), c.expr(e.Key), e.Line(), c.siteOf(e.Object)
		return func(f *frame) signal {
			o, k := object(f), key(f)
			f.m.setIndex(o, k, value(f), line, at)
			return proceed
		}
	}
	panic(compileError("cannot assign"))
}

// target compiles the left side of an assignment: it is evaluated before the values.
func (c *compiler) target(to ast.Expr) func(f *frame) func(v Value) {
	switch e := to.(type) {
	case *ast.IdentExpr:
		set := c.variableSetter(e)
		return func(f *frame) func(Value) { return func(v Value) { set(f, v) } }
	case *ast.AttrGetExpr:
		object, key, line, at := c.expr(e.Object), c.expr(e.Key), e.Line(), c.siteOf(e.Object)
		return func(f *frame) func(Value) {
			o, k := object(f), key(f)
			return func(v Value) { f.m.setIndex(o, k, v, line, at) }
		}
	}
	panic(compileError("cannot assign"))
}

func (c *compiler) functionStatement(s *ast.FuncDefStmt) statement {
	if s.Name.Func != nil {
		return c.assignOne(s.Name.Func, c.functionExpr(s.Func, false))
	}
	to := &ast.AttrGetExpr{Object: s.Name.Receiver, Key: &ast.StringExpr{Value: s.Name.Method}}
	to.SetLine(s.Line())
	return c.assignOne(to, c.functionExpr(s.Func, true))
}

func (c *compiler) ifStatement(s *ast.IfStmt) statement {
	condition, then := c.condition(s.Condition), c.block(s.Then)
	if len(s.Else) == 0 {
		return func(f *frame) signal {
			if condition(f) {
				return then(f)
			}
			return proceed
		}
	}
	other := c.block(s.Else)
	return func(f *frame) signal {
		if condition(f) {
			return then(f)
		}
		return other(f)
	}
}

func (c *compiler) while(s *ast.WhileStmt) statement {
	condition, body := c.condition(s.Condition), c.block(s.Stmts)
	return func(f *frame) signal {
		for condition(f) {
			if s := body(f); s == breaking {
				break
			} else if s == returning {
				return s
			}
		}
		return proceed
	}
}

// repeat compiles a loop whose condition sees the variables of its body.
func (c *compiler) repeat(s *ast.RepeatStmt) statement {
	var body statement
	var condition func(*frame) bool
	c.scoped(func() { body, condition = c.statements(s.Stmts), c.condition(s.Condition) })
	return func(f *frame) signal {
		for {
			if s := body(f); s == breaking {
				return proceed
			} else if s == returning {
				return s
			}
			if condition(f) {
				return proceed
			}
		}
	}
}

func (c *compiler) numberFor(s *ast.NumberForStmt) statement {
	from, to, line := c.expr(s.Init), c.expr(s.Limit), s.Line()
	step := func(*frame) Value { return Num(1) }
	if s.Step != nil {
		step = c.expr(s.Step)
	}
	var set func(*frame, Value)
	var body statement
	c.scoped(func() {
		set = c.declare(s.Name).setter()
		body = c.block(s.Stmts)
	})
	number := func(f *frame, v Value, what string) float64 {
		n, is := v.tonumber()
		if !is {
			f.m.failAt(line, "'for' %s must be a number", what)
		}
		return n
	}
	return func(f *frame) signal {
		a, b, d := from(f), to(f), step(f)
		i, last, by := number(f, a, "initial value"), number(f, b, "limit"), number(f, d, "step")
		for ; by > 0 && i <= last || by <= 0 && i >= last; i += by {
			set(f, Num(i))
			if s := body(f); s == breaking {
				break
			} else if s == returning {
				return s
			}
		}
		return proceed
	}
}

func (c *compiler) genericFor(s *ast.GenericForStmt) statement {
	values, at := c.list(s.Exprs), &site{line: s.Line()}
	var sets []func(*frame, Value)
	var body statement
	var state int // slots of the function, its state and its variable
	c.scoped(func() {
		state = c.declare("(for)").slot
		c.declare("(for)")
		c.declare("(for)")
		for _, name := range s.Names {
			sets = append(sets, c.declare(name).setter())
		}
		body = c.block(s.Stmts)
	})
	return func(f *frame) signal {
		m, top := f.m, f.m.top
		got := values(f)
		clear(f.s[state : state+3])
		copy(f.s[state:state+3], m.stack[top:top+got])
		for m.top = top; ; {
			m.push(f.s[state+1])
			m.push(f.s[state+2])
			n := m.call(f.s[state], top, 2, at)
			if n == 0 || m.stack[top].kind == Nil {
				break
			}
			for i, set := range sets {
				v := Value{}
				if i < n {
					v = m.stack[top+i]
				}
				set(f, v)
			}
			f.s[state+2], m.top = m.stack[top], top
			if s := body(f); s == breaking {
				break
			} else if s == returning {
				return s
			}
		}
		m.top = top
		return proceed
	}
}
