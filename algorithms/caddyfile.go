package algorithms

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
)

// In a Caddyfile, the options of an algorithm are on the line of its rule, in its
// block, or in both. A module reads them in UnmarshalCaddyfile from a dispenser
// whose first token is the algorithm's name:
//
//	gcra burst 20
//	gcra {
//		burst 20
//	}

// RuleWords are the words of a rule's line that belong to no algorithm.
var RuleWords = []string{"algorithm", "name", "block", "max_wait", "notify", "else"}

// readOptions reads all options of an algorithm.
func readOptions(d *caddyfile.Dispenser, options map[string]option.Parse) error {
	d.Next() // the algorithm's name
	return readMore(d, d.Val(), options)
}

// readMore reads the options that follow.
func readMore(d *caddyfile.Dispenser, name string, options map[string]option.Parse) error {
	s := option.Set{One: options, Unknown: func(word string) error { return unknownWord(name, word, options) }}
	for d.NextArg() || d.NextBlock(0) {
		if err := s.Read(d); err != nil {
			return err
		}
	}
	return nil
}

// unknownWord returns the error of a word that is not an option of the algorithm:
// it is an option of others, or misspelled.
func unknownWord(algorithm, word string, options map[string]option.Parse) error {
	if name, value, _ := strings.Cut(word, "="); option.Bare(word) != word && (len(WithOption(option.Bare(word))) > 0 || slices.Contains(RuleWords, name)) {
		return fmt.Errorf("%q: did you mean %s", word, strings.TrimSpace(option.Bare(word)+" "+value))
	}
	if with := WithOption(word); len(with) > 0 {
		return fmt.Errorf("%s: %s has no such option: want %s for it", word, algorithm, option.Or(with))
	}
	if err := option.OwnLine(word, "a zone", "a site's rate_limit"); err != nil {
		return err
	}
	names := slices.Concat(option.Modules(Namespace), slices.Collect(maps.Keys(options)), RuleWords)
	if near := option.Nearest(word, names); near != "" {
		return fmt.Errorf("%q: did you mean %s", word, near)
	}
	known := "none"
	if len(options) > 0 {
		known = option.Or(slices.Sorted(maps.Keys(options)))
	}
	return fmt.Errorf("%q is neither an option of %s nor an algorithm: want an option (%s) or an algorithm (%s)", word, algorithm, known, option.Or(option.Modules(Namespace)))
}

// WithOption returns the names of the algorithms whose JSON has an option.
func WithOption(option string) []string {
	var names []string
	for _, m := range caddy.GetModules(Namespace) {
		t := reflect.TypeOf(m.New())
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == option {
				names = append(names, m.ID.Name())
			}
		}
	}
	return names
}

func burstOption(dst *int64) map[string]option.Parse {
	return map[string]option.Parse{"burst": option.Whole(dst, 1, option.Max)}
}
