// Package option parses options from Caddyfiles. Every error has the position and the
// value, and says what is expected.
package option

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Parse parses what follows an option's name, which is d's current token.
type Parse func(d *caddyfile.Dispenser) error

// Set is the options of a block.
type Set struct {
	// One are the options that may be given once, Many the options that may be repeated.
	One, Many map[string]Parse

	// Check, if set, runs after every line of a block, so that an invalid combination
	// of options is reported at the line that completes it.
	Check func() error

	// Within, if set, names the places inside this one, in which an unknown word is looked for first.
	Within []string

	// Unknown, if set, returns a specific error for an unknown option, or nil.
	Unknown func(word string) error

	at       caddyfile.Token // the block's option
	seen     map[string]caddyfile.Token
	failed   []string        // the invalid options, including the ones that misspelt words probably meant
	reported map[string]bool // the errors of Check
}

// Has reports whether a word is one of the options.
func (s *Set) Has(word string) bool { return s.One[word] != nil || s.Many[word] != nil }

// Given records that an option was given at t.
func (s *Set) Given(word string, t caddyfile.Token) {
	if s.seen == nil {
		s.seen = make(map[string]caddyfile.Token)
	}
	s.seen[word] = t
}

// Position returns the position of a given option; of a repeated option, the first.
func (s *Set) Position(word string) (caddyfile.Token, bool) {
	t, ok := s.seen[word]
	return t, ok
}

// Read parses the option whose name is d's current token.
func (s *Set) Read(d *caddyfile.Dispenser) error {
	word := d.Val()
	t, again := s.seen[word]
	if parse := s.Many[word]; parse != nil {
		if !again {
			s.Given(word, d.Token())
		}
		return parse(d)
	}
	parse := s.One[word]
	if parse == nil {
		return s.opened(word, s.unknown(d, word))
	}
	if again {
		return d.Errf("%s is given twice, first at %s:%d: want it once", word, t.File, t.Line)
	}
	s.Given(word, d.Token())
	return parse(d)
}

func (s *Set) unknown(d *caddyfile.Dispenser, word string) error {
	if s.Unknown != nil {
		if err := s.Unknown(word); err != nil {
			return d.WrapErr(err)
		}
	}
	names := slices.Concat(slices.Collect(maps.Keys(s.One)), slices.Collect(maps.Keys(s.Many)))
	near, where := Nearest(word, names), elsewhere(word, s.Within)
	switch {
	case near != "" && where != "":
		s.failed = append(s.failed, near)
		return d.Errf("unknown option %q: did you mean %s; otherwise, %s", word, near, where)
	case near != "":
		s.failed = append(s.failed, near)
	case where != "":
		return d.Errf("unknown option %q: %s", word, where)
	case synonym(word) != "" && elsewhere(synonym(word), s.Within) != "":
		return d.Errf("unknown option %q: did you mean %s: %s", word, synonym(word), elsewhere(synonym(word), s.Within))
	case len(names) == 0:
		return d.Errf("unknown option %q: none is wanted here", word)
	}
	return d.Errf("unknown option %q: %s", word, Want(word, names))
}

// Failed reports whether one of the options was invalid; without options, whether any was.
func (s *Set) Failed(options ...string) bool {
	return len(options) == 0 && len(s.failed) > 0 ||
		slices.ContainsFunc(options, func(o string) bool { return slices.Contains(s.failed, o) })
}

// Block parses the block that follows, if there is one, with an option per line. Tokens
// that an option leaves over are an error. After an error it goes on with the next line.
func (s *Set) Block(d *caddyfile.Dispenser) error {
	var all []error
	s.at = d.Token()
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		l := line(d)
		l.Next()
		at := l.Token()
		err := s.Read(l)
		if err == nil {
			err = End(l, at.Text)
		}
		if combined := s.check(); err == nil { // after another error, errors of the combination are skipped
			err = At(at, combined)
		}
		if err != nil {
			s.failed = append(s.failed, at.Text)
			all = append(all, err)
		}
	}
	return Join(all...)
}

// check returns the errors of Check that it did not return before.
func (s *Set) check() error {
	if s.Check == nil {
		return nil
	}
	if s.reported == nil {
		s.reported = make(map[string]bool)
	}
	return Each(s.Check(), func(err error) error {
		if text := err.Error(); !s.reported[text] {
			s.reported[text] = true
			return err
		}
		return nil
	})
}

// line returns a dispenser of an option's line and block. Unlike Caddy's it keeps a block
// that is empty.
func line(d *caddyfile.Dispenser) *caddyfile.Dispenser {
	_, empty := OpensBlock(d)
	open, end := d.Token(), d.Token()
	open.Text, end.Text = "{", "}"
	end.Line++
	tokens := d.NextSegment()
	if empty {
		tokens = append(tokens, open, end)
	}
	return caddyfile.NewDispenser(tokens)
}

// OpensBlock reports whether a block follows d's current token, and whether it is empty.
func OpensBlock(d *caddyfile.Dispenser) (block, empty bool) {
	if !d.Next() {
		return false, false
	}
	defer d.Prev()
	if block = d.Val() == "{" && !d.Token().Quoted(); block && d.Next() {
		defer d.Prev()
		empty = d.Val() == "}" && !d.Token().Quoted()
	}
	return block, empty
}

// End returns an error if tokens are left after the values of an option.
func End(d *caddyfile.Dispenser, name string) error {
	switch {
	case !d.Next():
		return nil
	case d.Val() == "{" && !d.Token().Quoted():
		return d.Errf("%s: unexpected block: want none here", name)
	}
	return d.Errf("%s: unexpected %q: want nothing more here", name, d.Val())
}

// Or joins words to "a, b or c".
func Or(words []string) string { return join(words, " or ") }

// And joins words to "a, b and c".
func And(words []string) string { return join(words, " and ") }

func join(words []string, last string) string {
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + last + words[n]
	}
	return strings.Join(words, "")
}

// At adds the position of a token to an error, or to each of several; nil: there is none.
func At(t caddyfile.Token, err error) error {
	d := caddyfile.NewDispenser([]caddyfile.Token{t})
	d.Next()
	return Each(err, d.WrapErr)
}

// arg returns the name and the value of an option.
func arg(d *caddyfile.Dispenser, want string) (name, value string, err error) {
	name = d.Val()
	if !d.NextArg() || d.Val() == "" {
		return name, "", d.Errf("%s: want %s", name, want)
	}
	return name, d.Val(), nil
}

// Text parses a value that is not empty.
func Text[T ~string](dst *T, want string) Parse {
	return func(d *caddyfile.Dispenser) error {
		_, v, err := arg(d, want)
		*dst = T(v)
		return err
	}
}

// Secret parses a value that never appears in an error.
func Secret(dst *string) Parse {
	return func(d *caddyfile.Dispenser) error {
		name, v, err := arg(d, "a value")
		if err == nil && d.NextArg() {
			return d.Errf("%s: want one value, in quotes if it has spaces", name)
		}
		*dst = v
		return err
	}
}

// Value parses a value as parse does, which reports whether it is valid.
func Value[T any](dst *T, want string, parse func(string) (T, bool)) Parse {
	return func(d *caddyfile.Dispenser) error {
		name, v, err := arg(d, want)
		if err != nil {
			return err
		}
		n, ok := parse(v)
		if !ok {
			return d.Errf("%s %q: want %s", name, v, want)
		}
		*dst = n
		return nil
	}
}

// Max as the upper bound of [Whole] means no upper bound.
const Max = math.MaxInt64

// Range is what a whole number is wanted to be that does not fit into 64 bits.
const Range = "a number below 2^63"

// IsWhole reports whether a text is a whole number without a sign, as people write it.
func IsWhole(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

// WholeMeant returns the whole number that was meant by a text that is none, such as 1000 for 1,000 and for 1k, or 64
// for /64; empty: nobody knows.
func WholeMeant(s string) string {
	plain := strings.NewReplacer(",", "", "_", "", "'", "").Replace(strings.TrimPrefix(s, "/"))
	if n := len(plain) - 1; n > 0 {
		zeros := map[byte]string{'k': "000", 'm': "000000", 'g': "000000000", 'b': "000000000"}[plain[n]|0x20]
		if zeros != "" {
			plain = plain[:n] + zeros
		}
	}
	if plain != s && IsWhole(plain) {
		return plain
	}
	return ""
}

// Wanted says what a value in JSON is wanted to be.
func Wanted(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "slice", "array":
		return "a list"
	case "struct", "map":
		return "an object"
	case "bool":
		return "true or false"
	case "int", "int64":
		if IsWhole(strings.TrimPrefix(strings.TrimPrefix(e.Value, "number "), "-")) {
			return Range
		}
		return "a whole number"
	}
	return "a " + e.Type.Kind().String()
}

// Whole parses a whole number.
func Whole[T ~int | ~int64](dst *T, least, most int64) Parse {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	if most == Max {
		want = fmt.Sprintf("a whole number of at least %d", least)
	}
	return func(d *caddyfile.Dispenser) error {
		name, v, err := arg(d, want)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(v, 10, 64)
		switch {
		case most == Max && err != nil && IsWhole(v):
			return d.Errf("%s %q: want %s", name, v, Range)
		case err != nil && WholeMeant(v) != "":
			return d.Errf("%s %q: want a whole number; did you mean %s", name, v, WholeMeant(v))
		case err != nil || n < least || n > most || int64(T(n)) != n || !IsWhole(strings.TrimPrefix(v, "-")):
			return d.Errf("%s %q: want %s", name, v, want)
		}
		*dst = T(n)
		return nil
	}
}

// Duration parses a duration above zero.
func Duration(dst *caddy.Duration) Parse {
	const want = "a duration above zero, such as 10s, 1h30m or 1d"
	return func(d *caddyfile.Dispenser) error {
		name, v, err := arg(d, want)
		if err != nil {
			return err
		}
		n, err := caddy.ParseDuration(v)
		switch {
		case err != nil && TooLong(v):
			return d.Errf("%s %q: want at most %s", name, v, Longest)
		case err != nil || n <= 0:
			return d.Errf("%s %q: want %s", name, v, want)
		}
		*dst = caddy.Duration(n)
		return nil
	}
}

// Longest is the longest duration of an option, in whole days.
const Longest = "52124d"

var number = regexp.MustCompile(`[0-9]+`)

// TooLong reports whether a text is a duration but for its numbers, which are too great.
func TooLong(text string) bool {
	_, long := caddy.ParseDuration(text)
	_, short := caddy.ParseDuration(number.ReplaceAllString(text, "1"))
	return long != nil && short == nil
}

// Flag parses an option without a value.
func Flag(dst *bool) Parse {
	return func(*caddyfile.Dispenser) error {
		*dst = true
		return nil
	}
}

// Checked parses a value that check accepts.
func Checked[T ~string](dst *T, want string, check func(string) error) Parse {
	return func(d *caddyfile.Dispenser) error {
		_, v, err := arg(d, want)
		if err != nil {
			return err
		}
		if err := check(v); err != nil {
			return d.WrapErr(err)
		}
		*dst = T(v)
		return nil
	}
}
