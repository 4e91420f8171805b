package lua

import (
	"math"

	"github.com/yuin/gopher-lua/ast"
)

// operator compiles an operator.
func (c *compiler) operator(e ast.Expr) expr {
	switch e := e.(type) {
	case *ast.LogicalOpExpr:
		a, b := c.expr(e.Lhs), c.expr(e.Rhs)
		if e.Operator == "and" {
			return func(f *frame) Value {
				if v := a(f); !v.Bool() {
					return v
				}
				return b(f)
			}
		}
		return func(f *frame) Value {
			if v := a(f); v.Bool() {
				return v
			}
			return b(f)
		}
	case *ast.RelationalOpExpr, *ast.UnaryNotOpExpr:
		is := c.condition(e)
		return func(f *frame) Value { return Bool(is(f)) }
	case *ast.StringConcatOpExpr:
		return c.concat(e)
	case *ast.ArithmeticOpExpr:
		return c.arithmetic(e)
	case *ast.UnaryMinusOpExpr:
		a, line, at := c.expr(e.Expr), e.Line(), c.siteOf(e.Expr)
		return func(f *frame) Value {
			v := a(f)
			n, is := v.tonumber()
			if !is {
				f.m.failAt(line, "attempt to perform arithmetic on %s", at.describe(v))
			}
			return Num(-n)
		}
	case *ast.UnaryLenOpExpr:
		a, line, at := c.expr(e.Expr), e.Line(), c.siteOf(e.Expr)
		return func(f *frame) Value {
			switch v := a(f); v.kind {
			case String:
				return Num(float64(v.n))
			case TableKind:
				return Num(float64(v.Table().Len()))
			default:
				f.m.failAt(line, "attempt to get length of %s", at.describe(v))
			}
			return Value{}
		}
	}
	panic(unsupported(e))
}

// condition compiles an expression of which only the truth matters.
func (c *compiler) condition(e ast.Expr) func(f *frame) bool {
	switch e := e.(type) {
	case *ast.LogicalOpExpr:
		a, b := c.condition(e.Lhs), c.condition(e.Rhs)
		if e.Operator == "and" {
			return func(f *frame) bool { return a(f) && b(f) }
		}
		return func(f *frame) bool { return a(f) || b(f) }
	case *ast.UnaryNotOpExpr:
		a := c.condition(e.Expr)
		return func(f *frame) bool { return !a(f) }
	case *ast.RelationalOpExpr:
		return c.comparison(e)
	}
	a := c.expr(e)
	return func(f *frame) bool { return a(f).Bool() }
}

func (c *compiler) comparison(e *ast.RelationalOpExpr) func(f *frame) bool {
	a, b, line := c.expr(e.Lhs), c.expr(e.Rhs), e.Line()
	if k, is := e.Rhs.(*ast.NumberExpr); is {
		if n, is := parseNumber(k.Value); is && e.Operator == "==" {
			return func(f *frame) bool { v := a(f); return v.kind == Number && v.Num() == n }
		}
	}
	switch e.Operator {
	case "==":
		return func(f *frame) bool { v := a(f); return v.equal(b(f)) }
	case "~=":
		return func(f *frame) bool { v := a(f); return !v.equal(b(f)) }
	case "<":
		return func(f *frame) bool {
			v, w := a(f), b(f)
			if v.kind == Number && w.kind == Number {
				return v.Num() < w.Num()
			}
			return f.m.less(v, w, line)
		}
	case ">":
		return func(f *frame) bool {
			v, w := a(f), b(f)
			if v.kind == Number && w.kind == Number {
				return v.Num() > w.Num()
			}
			return f.m.less(w, v, line)
		}
	case "<=":
		return func(f *frame) bool {
			v, w := a(f), b(f)
			if v.kind == Number && w.kind == Number {
				return v.Num() <= w.Num()
			}
			return !f.m.less(w, v, line)
		}
	case ">=":
		return func(f *frame) bool {
			v, w := a(f), b(f)
			if v.kind == Number && w.kind == Number {
				return v.Num() >= w.Num()
			}
			return !f.m.less(v, w, line)
		}
	}
	panic(unsupported(e))
}

// less compares strings; other values cannot be compared.
func (m *Machine) less(v, w Value, line int) bool {
	switch {
	case v.kind == String && w.kind == String:
		return v.Text() < w.Text()
	case v.kind == w.kind && v.kind != Number:
		m.failAt(line, "attempt to compare two %s values", v.kind)
	}
	m.failAt(line, "attempt to compare %s with %s", v.kind, w.kind)
	return false
}

func (c *compiler) arithmetic(e *ast.ArithmeticOpExpr) expr {
	a, b := c.expr(e.Lhs), c.expr(e.Rhs)
	x := &operation{e.Line(), c.siteOf(e.Lhs), c.siteOf(e.Rhs)}
	switch e.Operator {
	case "+":
		return func(f *frame) Value {
			v, w := a(f), b(f)
			if v.kind != Number || w.kind != Number {
				v, w = x.numbers(f.m, v, w)
			}
			return Num(v.Num() + w.Num())
		}
	case "-":
		return func(f *frame) Value {
			v, w := a(f), b(f)
			if v.kind != Number || w.kind != Number {
				v, w = x.numbers(f.m, v, w)
			}
			return Num(v.Num() - w.Num())
		}
	case "*":
		return func(f *frame) Value {
			v, w := a(f), b(f)
			if v.kind != Number || w.kind != Number {
				v, w = x.numbers(f.m, v, w)
			}
			return Num(v.Num() * w.Num())
		}
	case "/":
		return func(f *frame) Value {
			v, w := a(f), b(f)
			if v.kind != Number || w.kind != Number {
				v, w = x.numbers(f.m, v, w)
			}
			return Num(v.Num() / w.Num())
		}
	case "%":
		return func(f *frame) Value {
			v, w := a(f), b(f)
			if v.kind != Number || w.kind != Number {
				v, w = x.numbers(f.m, v, w)
			}
			return Num(modulo(v.Num(), w.Num()))
		}
	case "^":
		return func(f *frame) Value {
			v, w := x.numbers(f.m, a(f), b(f))
			return Num(math.Pow(v.Num(), w.Num()))
		}
	}
	panic(unsupported(e))
}

// modulo is Lua 5.1's a - floor(a/b)*b, which for large numbers is not the remainder. The
// conversion keeps the product from being fused with the difference.
func modulo(a, b float64) float64 { return a - float64(math.Floor(a/b)*b) }

// operation is where an arithmetic operation is, and what it is applied to.
type operation struct {
	line int
	a, b *site
}

// numbers converts operands that are texts of numbers. It fails on others.
func (x *operation) numbers(m *Machine, v, w Value) (Value, Value) {
	p, isNumber := v.tonumber()
	q, also := w.tonumber()
	bad, at := w, x.b
	if v.kind != Number && (v.kind != String || !isNumber) {
		bad, at = v, x.a
	}
	if !isNumber || !also {
		m.failAt(x.line, "attempt to perform arithmetic on %s", at.describe(bad))
	}
	return Num(p), Num(q)
}

// concat compiles a chain of concatenations, which is made at once.
func (c *compiler) concat(e *ast.StringConcatOpExpr) expr {
	var parts []expr
	var sites []*site
	var last ast.Expr = e
	for {
		x, is := last.(*ast.StringConcatOpExpr)
		if !is {
			break
		}
		parts, sites = append(parts, c.expr(x.Lhs)), append(sites, c.siteOf(x.Lhs))
		last = x.Rhs
	}
	parts, sites = append(parts, c.expr(last)), append(sites, c.siteOf(last))
	line := e.Line()
	return func(f *frame) Value {
		m, top, size := f.m, f.m.top, 0
		for _, part := range parts {
			v := part(f)
			if v.kind == Number {
				s, _ := v.tostring()
				v = Str(s)
			}
			size += int(v.n)
			m.push(v)
		}
		all := m.stack[top:m.top]
		m.top = top
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].kind != String {
				m.failAt(line, "attempt to concatenate %s", sites[i].describe(all[i]))
			}
		}
		b := make([]byte, 0, size)
		for i := range all {
			b = append(b, all[i].Text()...)
		}
		return bytesValue(b)
	}
}
