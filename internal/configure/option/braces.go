package option

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// directives are words that stand after a block of this plugin: in the block, a } is missing before them.
var directives = strings.Fields("abort basic_auth bind copy_response encode file_server forward_auth fs handle handle_errors handle_path" +
	" import intercept invoke log log_append metrics php_fastcgi push rate_limit rate_limit_page rate_limit_quota redir request_body request_header" +
	" respond reverse_proxy rewrite root route templates tracing try_files uri vars")

// opened adds to the error about an unknown word where the block begins, if the word stands after it.
func (s *Set) opened(word string, err error) error {
	if s.at.Line == 0 || !slices.Contains(directives, word) {
		return err
	}
	return fmt.Errorf("%w; if it stands after the block that begins at %s:%d, a } is missing before it", err, s.at.File, s.at.Line)
}

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
		all = append(all, At(b.Token, errors.New("{ without }: want the } that ends this block")))
	}
	return Join(all...)
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
