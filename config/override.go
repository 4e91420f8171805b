package config

import (
	"fmt"
	"iter"
	"strings"
	"time"
)

// Override replaces the zone's rules for some keys: the ones in key, or the ones in keys and
// keys_file. Each key is counted on its own.
type Override struct {
	// A pattern for each part of the zone's key: "*" matches any value, a CIDR the
	// addresses in it, and any other text the equal value; {env.*} and {file.*} are
	// errors. The most specific override wins. Required, unless there are keys.
	Key []string `json:"key,omitempty"`

	// Many keys, each like key; one of a single part may be a string. Duplicates are
	// ignored. Of keys of several parts with "*" or a network, a zone may have 1000.
	// Default: none.
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

	// Who made it, as the client of the change claimed. Default: nobody said so.
	Who string `json:"who,omitempty"`

	// Why it was made. Default: no reason was given.
	Why string `json:"why,omitempty"`
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
