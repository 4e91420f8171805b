package option

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Semicolons returns an error for each word that ends with a semicolon, as in the files of nginx. A word
// in quotes may end with one. The error does not show the word, which may be a password.
func Semicolons(d *caddyfile.Dispenser) error {
	defer d.Reset()
	var all []error
	line, name := d.Token().Line, d.Val()
	for d.Next() {
		t := d.Token()
		if t.Line != line {
			line, name = t.Line, strings.TrimRight(t.Text, ";")
		}
		if strings.HasSuffix(t.Text, ";") && !t.Quoted() {
			all = append(all, d.Errf("%s: want no ; after it, and each option on a line of its own; a value that ends with ; in quotes", name))
		}
	}
	return Join(all...)
}

var environment = regexp.MustCompile(`\{env\.([^{}]+)\}`)

// Hint adds, to an error about a placeholder for the environment in place of a value, how a Caddyfile reads
// the environment. Of several errors, to each.
func Hint(err error) error {
	return Each(err, func(err error) error {
		value, _, _ := strings.Cut(err.Error(), ": want") // the rest is advice
		if m := environment.FindStringSubmatch(value); m != nil {
			return fmt.Errorf("%w; %s is replaced in each request: in the configuration, write {$%s}", err, m[0], m[1])
		}
		return err
	})
}

// OwnLine returns an error if a word, with a value or a sign behind it perhaps, is an option of a place that
// stands on a line of its own; nil: it is none.
func OwnLine(word string, in ...string) error {
	word = Bare(word)
	for _, p := range places {
		if slices.Contains(in, p.name) && p.has(word) {
			return fmt.Errorf("%q: an option of %s: want it on a line of its own; as a constant, in quotes", word, p.name)
		}
	}
	return nil
}

// ErrStoreInSite is the error of a store that is defined in a site.
var ErrStoreInSite = errors.New("store: want its address and options among the global options, at the head of the Caddyfile: " +
	"{ rate_limit { store redis localhost:6379 } }, with a line for each brace; in a zone, only its name, if there are several")

// directives are words that stand after a block of this plugin: in the block, a } is missing before them.
var directives = strings.Fields("abort basic_auth bind copy_response encode file_server forward_auth fs handle handle_errors handle_path" +
	" import intercept invoke log log_append metrics php_fastcgi push rate_limit rate_limit_page rate_limit_quota redir request_body request_header" +
	" respond reverse_proxy rewrite root route templates tracing try_files uri vars")

// opened adds to the error about an unknown word where the block begins, if the word stands after it.
func (s *Set) opened(word string, err error) error {
	if s.at.Line == 0 || !slices.Contains(directives, word) {
		return err
	}
	return fmt.Errorf("%w; want a } before it, if it stands after the block that begins at %s:%d", err, s.at.File, s.at.Line)
}
