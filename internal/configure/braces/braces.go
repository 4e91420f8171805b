// Package braces finds the { of a Caddyfile that no } closes.
package braces

import (
	"errors"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
)

// Unclosed returns an error for each { in a Caddyfile that no } closes, as the indentation has it, which nobody but
// the parser of the whole file would find. nil: there is none. with is a token of the file: it is another if that is not
// there. Without a line, any will do.
func Unclosed(file string, with caddyfile.Token) error {
	text, err := os.ReadFile(file) //nolint:gosec // the user's own file
	if err != nil {
		return nil //nolint:nilerr // it is not there, or no file: what is wrong is told without it
	}
	tokens, err := caddyfile.Tokenize(text, file)
	if err != nil {
		return nil //nolint:nilerr // Caddy says it
	}
	var open, unclosed []brace
	lines, found, level := strings.Split(string(text), "\n"), with.Line == 0, 0
	for i, t := range tokens {
		found = found || t.Line == with.Line && t.Text == with.Text
		first, within := i == 0 || tokens[i-1].Line != t.Line, len(open) > 0 && open[len(open)-1].Line == t.Line
		switch {
		case t.Quoted():
		case t.Text == "{":
			level++
			open = append(open, brace{t, indentation(lines, t.Line)})
		case t.Text == "}" && within:
			level--
			open = open[:len(open)-1]
		case t.Text == "}" && first:
			level--
			var lost []brace
			open, lost = closes(open, indentation(lines, t.Line))
			unclosed = append(unclosed, lost...)
		}
	}
	if !found || level <= 0 {
		return nil
	}
	var all []error
	for _, b := range append(unclosed, open...) {
		all = append(all, option.At(b.Token, errors.New("{ without }: want the } that ends this block")))
	}
	return option.Join(all...)
}

// brace is a { and how far its line is indented.
type brace struct {
	caddyfile.Token
	indented int
}

func indentation(lines []string, line int) int {
	if line < 1 || line > len(lines) {
		return 0
	}
	return len(lines[line-1]) - len(strings.TrimLeft(lines[line-1], " \t"))
}

// closes returns the braces that are open after a }, and those that it leaves without one: it belongs to the last brace
// whose line is indented as its own, if there is one.
func closes(open []brace, indented int) (rest, lost []brace) {
	last := len(open) - 1
	if last < 0 {
		return nil, nil
	}
	for i := last; i >= 0 && open[i].indented >= indented; i-- {
		if open[i].indented == indented {
			return open[:i], open[i+1:]
		}
	}
	return open[:last], nil
}
