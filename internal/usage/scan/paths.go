package scan

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of a path.
const (
	maxSegments = 32
	maxName     = 256 // bytes
)

// each is the name of every member of an array that no other path names by its index.
const each = "[]"

// unnamed is the name of every member of an object that no other path names.
const unnamed = "{}"

// Paths are the places that a [Scanner] reports, each as the names on the way to it. The name of
// a member of an array is its index, or [] for any; {} is any member of an object that no other path names, of
// which strings are reported that stand anywhere in it. It is safe for concurrent use.
type Paths struct {
	root    node
	longest int // name, in bytes
	deepest int // path, in names
	len     int
}

// Len returns how many paths there are.
func (p *Paths) Len() int { return p.len }

// node is a place on the way to what is reported.
type node struct {
	path     int  // number of the path that ends here; -1: none does
	sign     sign // that what stands here may be
	children map[string]*node
}

// matters reports whether the value at a place is reported; nil: no path leads to the place.
func (n *node) matters() bool { return n != nil && (n.path >= 0 || n.sign != 0) }

// NewPaths returns the paths of texts such as usage.total_tokens, in their order. A dot that
// belongs to a name is written \. and a backslash \\.
func NewPaths(texts ...string) (*Paths, error) {
	p := &Paths{root: node{path: -1}, len: len(texts)}
	for i, text := range texts {
		at, err := p.add(text)
		if err != nil {
			return nil, fmt.Errorf("path %q: %w", text, err)
		}
		if at.path < 0 {
			at.path = i
		}
	}
	for _, e := range ends {
		at, err := p.add(e.path)
		if err != nil {
			return nil, err
		}
		at.sign = e.sign
	}
	return p, nil
}

// add adds the places on the way to the end of a path, which it returns.
func (p *Paths) add(text string) (*node, error) {
	names := split(text)
	if len(names) > maxSegments {
		return nil, fmt.Errorf("%d names: want at most %d", len(names), maxSegments)
	}
	at := &p.root
	for _, name := range names {
		switch {
		case name == "":
			return nil, fmt.Errorf("an empty name: want names with dots between them, such as usage.total_tokens")
		case len(name) > maxName:
			return nil, fmt.Errorf("a name of %d bytes: want at most %d", len(name), maxName)
		case !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError):
			return nil, fmt.Errorf("name %q: want valid UTF-8", name)
		}
		next := at.children[name]
		if next == nil {
			next = &node{path: -1}
			if at.children == nil {
				at.children = make(map[string]*node)
			}
			at.children[name] = next
		}
		at, p.longest = next, max(p.longest, len(name))
	}
	p.deepest = max(p.deepest, len(names))
	return at, nil
}

// split returns the names of a path.
func split(text string) (names []string) {
	var name strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text) && (text[i+1] == '.' || text[i+1] == '\\'):
			i++
			name.WriteByte(text[i])
		case c == '.':
			names = append(names, name.String())
			name.Reset()
		default:
			name.WriteByte(c)
		}
	}
	return append(names, name.String())
}
