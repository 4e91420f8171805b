package config

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dianalimiter/diana/internal/key"
)

// Override replaces the zone's rules for some keys: those of key, or those of keys and
// keys_file. Each key is counted on its own.
type Override struct {
	// A pattern for each part of the zone's key: "*" matches any value, a CIDR the
	// addresses in it, and any other text the equal value. The most specific
	// override wins. Required, unless there are keys.
	Key []string `json:"key,omitempty"`

	// Many keys, each like key; one of a single part may be a string. Duplicates are
	// ignored. A request takes no longer with 100,000 keys than with a few, except for keys
	// of several parts with "*" or a network: these are tried one after the other, so that
	// a zone may have 1000 of them. Default: none.
	Keys []Parts `json:"keys,omitempty"`

	// The path of a file of more keys, for a zone whose key has one part: a pattern per line.
	// Empty lines and lines that begin with # are ignored. {env.*} placeholders are replaced.
	// If the file changes, its keys are replaced within a second; if it is then invalid or
	// missing, the previous keys stay in force. At most 64 MiB. A key in the configuration
	// takes precedence over the same key in a file. Default: none.
	KeysFile string `json:"keys_file,omitempty"`

	// Let requests with these keys pass uncounted. Default: false.
	Unlimited bool `json:"unlimited,omitempty"`

	// The rules for these keys. A limit of 0 denies every request. Default: none.
	Rules []*Rule `json:"rules,omitempty"`
}

// Exception is an override that precedes all others until it ends. Only documents have
// exceptions.
type Exception struct {
	Override

	// When it ends, by the clock of each instance, such as "2027-01-02T03:04:05Z". Default:
	// never.
	Until time.Time `json:"until,omitzero"`
}

// CheckedOverride is a valid override, parsed for deciding.
type CheckedOverride struct {
	*Override
	Set       *RuleSet   // nil: unlimited
	Exception *Exception // nil: it is none

	plan *key.Plan
}

// Many reports whether the override is for a list of keys.
func (o *Override) Many() bool { return len(o.Keys) > 0 || o.KeysFile != "" }

// name returns what errors call the override.
func (o *Override) name() string {
	switch {
	case o.KeysFile != "":
		return fmt.Sprintf("of the file %q", o.KeysFile)
	case o.Many():
		return fmt.Sprintf("of a list of %d", len(o.Keys))
	}
	return fmt.Sprintf("%q", o.Key)
}

// Patterns returns the patterns of the override's keys, except those of its file. They are
// parsed anew each time: there may be many.
func (c *CheckedOverride) Patterns() iter.Seq2[*key.Pattern, error] {
	return func(yield func(*key.Pattern, error) bool) {
		if !c.Many() {
			yield(c.pattern(c.Key))
			return
		}
		for _, parts := range c.Keys {
			if !yield(c.pattern(parts)) {
				return
			}
		}
	}
}

// pattern parses a key, and adds it to an error.
func (c *CheckedOverride) pattern(parts []string) (*key.Pattern, error) {
	p, err := c.plan.Pattern(parts)
	if err != nil {
		return nil, fmt.Errorf("override %q: %w", parts, err)
	}
	return p, nil
}

// PatternsOf returns the patterns of the text of the override's file.
func (c *CheckedOverride) PatternsOf(text string) iter.Seq2[*key.Pattern, error] {
	return func(yield func(*key.Pattern, error) bool) {
		part := make([]string, 1)
		for n, line := range listLines(text) {
			part[0] = line
			p, err := c.plan.Pattern(part)
			if err != nil {
				err = fmt.Errorf("line %d: %w", n, err)
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// CountKeys returns the number of keys in the text of an override's file.
func CountKeys(text string) (n int) {
	for range listLines(text) {
		n++
	}
	return n
}

// listLines returns the lines of a list with their numbers, except comments.
func listLines(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
			n++
			line = strings.TrimSpace(line)
			if line != "" && line[0] != '#' && !yield(n, line) {
				return
			}
		}
	}
}
