package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/dianalimiter/diana/internal/option"
)

// Document is what a source says of zones.
type Document struct {
	Zones map[string]*Zone // by name
}

// Of is what the document says of a zone; nil if nothing, or there is none.
func (d *Document) Of(zone string) *Zone {
	if d == nil {
		return nil
	}
	return d.Zones[zone]
}

// Zone is what a document says of one zone. What is nil it leaves alone.
type Zone struct {
	// Enabled false lets every request pass the zone uncounted.
	Enabled *bool

	// Shadow decides and reports, but never denies.
	Shadow *bool

	// Rules and Overrides, each as its JSON, replace the zone's.
	Rules, Overrides []json.RawMessage

	// HasRules and HasOverrides tell an empty list from none.
	HasRules, HasOverrides bool

	// Text is all of it.
	Text json.RawMessage
}

// Error says where in a document something is wrong, as a JSON pointer (RFC
// 6901), and what.
type Error struct {
	Pointer string // empty: the whole document
	Err     error  // what was wrong, and what is wanted
}

// Error implements error.
func (e *Error) Error() string {
	if e.Pointer == "" {
		return e.Err.Error()
	}
	return e.Pointer + ": " + e.Err.Error()
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// At puts an error at a pointer, below which it may already lie.
func At(pointer string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{pointer + e.Pointer, e.Err}
	}
	return &Error{pointer, err}
}

// Pointer joins names to a JSON pointer. What would make a log line unreadable
// is escaped as in Go.
func Pointer(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteByte('/')
		if len(name) > maxShown {
			name = name[:maxShown] + "..."
		}
		quoted := strconv.Quote(name)
		quoted = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(quoted))
	}
	return b.String()
}

// maxShown is how much of a name an error shows.
const maxShown = 100

// maxDepth is how deep a document may nest: a rule's algorithm lies at 8.
const maxDepth = 32

// Parse reads a document. Every error says where it is.
func Parse(text []byte) (*Document, error) {
	if len(text) > MaxSize {
		return nil, errTooLarge
	}
	if err := wellFormed(text); err != nil {
		return nil, err
	}
	d := &Document{Zones: make(map[string]*Zone)}
	var zones json.RawMessage
	if err := Fields(text, map[string]any{"zones": &zones}); err != nil {
		return nil, err
	}
	if zones == nil {
		return nil, &Error{"", errors.New(`no "zones": want an object such as {"zones": {}}`)}
	}
	err := members(zones, func(name string, text json.RawMessage) error {
		z, err := parseZone(text)
		if err != nil {
			return At(Pointer(name), err)
		}
		d.Zones[name] = z
		return nil
	})
	if err != nil {
		return nil, At("/zones", err)
	}
	return d, nil
}

func parseZone(text json.RawMessage) (*Zone, error) {
	z := &Zone{Text: text}
	var list, overrides json.RawMessage
	err := Fields(text, map[string]any{
		"enabled": &z.Enabled, "shadow": &z.Shadow, "rules": &list, "overrides": &overrides,
	})
	if err != nil {
		return nil, err
	}
	if z.HasRules = list != nil; z.HasRules {
		if err := decode(list, &z.Rules); err != nil {
			return nil, At("/rules", err)
		}
	}
	if z.HasOverrides = overrides != nil; z.HasOverrides {
		if err := decode(overrides, &z.Overrides); err != nil {
			return nil, At("/overrides", err)
		}
	}
	return z, nil
}

// wellFormed refuses what is no JSON, has a member twice, or nests deeper than
// any document can mean to, and says where.
func wellFormed(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber() // one that is too large is for its member to refuse
	var in levels
	for values := 0; ; {
		t, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF) && values == 1 && len(in) == 0:
			return nil
		case err != nil:
			line, column := place(text, dec.InputOffset())
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("line %d, column %d: no JSON: %w", line, column, err)
		}
		if len(in) == 0 {
			if values++; values > 1 {
				line, column := place(text, dec.InputOffset())
				return fmt.Errorf("line %d, column %d: more than one document: want one", line, column)
			}
		}
		if err := in.take(t); err != nil {
			return err
		}
		if len(in) > maxDepth {
			line, column := place(text, dec.InputOffset())
			return fmt.Errorf("line %d, column %d: nests deeper than %d: want {\"zones\": {...}}", line, column, maxDepth)
		}
	}
}

// levels are the objects and lists that a place in a document lies in.
type levels []level

type level struct {
	names map[string]bool // seen in an object; nil: a list
	name  string          // the last of them
	n     int             // names and values so far
}

// pointer is where the place is.
func (l levels) pointer() string {
	names := make([]string, len(l))
	for i, in := range l {
		if names[i] = in.name; in.names == nil {
			names[i] = strconv.Itoa(in.n - 1)
		}
	}
	return Pointer(names...)
}

// take goes on by one token.
func (l *levels) take(t json.Token) error {
	switch t {
	case json.Delim('}'), json.Delim(']'):
		*l = (*l)[:len(*l)-1]
		return nil
	}
	if n := len(*l); n > 0 {
		in := &(*l)[n-1]
		in.n++
		if name, is := t.(string); is && in.names != nil && in.n%2 == 1 {
			if in.name = name; in.names[name] {
				return &Error{l.pointer(), errors.New("stands twice: want it once")}
			}
			in.names[name] = true
			return nil
		}
	}
	switch t {
	case json.Delim('{'):
		*l = append(*l, level{names: make(map[string]bool)})
	case json.Delim('['):
		*l = append(*l, level{})
	}
	return nil
}

func place(text []byte, offset int64) (line, column int) {
	before := text[:min(int64(len(text)), offset)]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// Fields reads an object's members into the values that fields point to, and
// refuses others. A member that is null is as if it were not there.
func Fields(text json.RawMessage, fields map[string]any) error {
	return members(text, func(name string, value json.RawMessage) error {
		into := fields[name]
		if into == nil {
			known := make([]string, 0, len(fields))
			for f := range fields {
				known = append(known, f)
			}
			slices.Sort(known)
			return &Error{Pointer(name), errors.New("unknown: want " + option.Or(known))}
		}
		if string(value) == "null" {
			return nil
		}
		if err := decode(value, into); err != nil {
			return &Error{Pointer(name), err}
		}
		return nil
	})
}

// members calls each for every member of an object, in their order.
func members(text json.RawMessage, each func(name string, value json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return &Error{"", fmt.Errorf("%s: want an object", shown(text))}
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return &Error{"", err}
		}
		name, _ := t.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return &Error{Pointer(name), err}
		}
		if err := each(name, value); err != nil {
			return err
		}
	}
	return nil
}

func decode(value json.RawMessage, into any) error {
	err := json.Unmarshal(value, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s: want %s", shown(value), wanted(wrong))
	}
	return err
}

func wanted(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "slice", "array":
		return "a list"
	case "struct", "map":
		return "an object"
	case "bool":
		return "true or false"
	case "int", "int64":
		return "a whole number"
	}
	return "a " + e.Type.Kind().String()
}

// shown is the beginning of a text on one line.
func shown(text []byte) string {
	s := string(text[:min(len(text), maxShown)])
	if len(text) > maxShown {
		s += "..."
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
