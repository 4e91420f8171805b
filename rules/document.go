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

	"github.com/caddyserver/caddy/v2"
)

// Document is the parsed document of a rule source.
type Document struct {
	Zones map[string]*Zone // by name
	All   *Zone            // the zone "*", which wins over every zone; nil: it says nothing
}

// allZones is the name that stands for every zone.
const allZones = "*"

// Of returns the changes to a zone, with those to all zones; nil: none.
func (d *Document) Of(zone string) *Zone {
	if d == nil {
		return nil
	}
	z := d.Zones[zone]
	if d.All == nil {
		return z
	}
	var all Zone
	if z != nil {
		all = *z
	}
	if d.All.Enabled != nil {
		all.Enabled = d.All.Enabled
	}
	if d.All.Shadow != nil {
		all.Shadow = d.All.Shadow
	}
	all.Text = slices.Concat(d.All.Text, all.Text)
	return &all
}

// Zone is the changes to one zone. Options that are nil are not changed.
type Zone struct {
	// Enabled, if false, lets every request pass the zone uncounted.
	Enabled *bool

	// Shadow replaces the zone's shadow.
	Shadow *bool

	// Rules and Overrides replace the zone's, each in JSON.
	Rules, Overrides []json.RawMessage

	// HasRules and HasOverrides distinguish an empty list from a missing one.
	HasRules, HasOverrides bool

	// Text is the JSON of the whole zone, behind that of the zone "*" if there is one:
	// a zone with the same text has the same changes.
	Text json.RawMessage
}

// Error is an error in a document, with its position as a JSON pointer (RFC 6901).
type Error struct {
	Pointer string // empty: the whole document
	Err     error  // the error itself
}

// Error implements error.
func (e *Error) Error() string {
	if e.Pointer == "" {
		return e.Err.Error()
	}
	return e.Pointer + ": " + e.Err.Error()
}

// Unwrap returns the error without its pointer.
func (e *Error) Unwrap() error { return e.Err }

// At adds a pointer to an error, or prepends it to the pointer that it has.
func At(pointer string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{pointer + e.Pointer, e.Err}
	}
	return &Error{pointer, err}
}

// Pointer joins names to a JSON pointer, with control characters escaped as in Go and
// long names truncated.
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

// maxShown is the number of bytes of a name that errors show.
const maxShown = 100

// maxDepth is the greatest nesting depth of a document. A valid one has a depth of 8: the
// algorithm of an override's rule.
const maxDepth = 32

// Parse parses a document. Every error has a position.
func Parse(text []byte) (*Document, error) {
	if len(text) > MaxSize {
		return nil, ErrTooLarge
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
	err := members(zones, func(name string, text json.RawMessage) (err error) {
		if name == allZones {
			d.All, err = parseAll(text)
			return err
		}
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

// parseAll parses the zone "*", a switch for an incident: it turns limits off and on
// again, and cannot turn on what is off in one zone.
func parseAll(text json.RawMessage) (*Zone, error) {
	z := &Zone{Text: text}
	if err := Fields(text, map[string]any{"enabled": &z.Enabled, "shadow": &z.Shadow}); err != nil {
		return nil, At(Pointer(allZones), err)
	}
	switch {
	case z.Enabled != nil && *z.Enabled:
		return nil, &Error{Pointer(allZones, "enabled"), errors.New("true: want only false, for all zones")}
	case z.Shadow != nil && !*z.Shadow:
		return nil, &Error{Pointer(allZones, "shadow"), errors.New("false: want only true, for all zones")}
	case z.Enabled == nil && z.Shadow == nil:
		return nil, nil
	}
	return z, nil
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

// wellFormed rejects invalid JSON, duplicate members and nesting deeper than maxDepth.
func wellFormed(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber() // numbers are checked when their member is decoded
	here := func(err error) error {
		line, column := place(text, dec.InputOffset())
		return fmt.Errorf("line %d, column %d: %w", line, column, err)
	}
	var in levels
	for values := 0; ; {
		t, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF) && values == 1 && len(in) == 0:
			return nil
		case err != nil:
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return here(fmt.Errorf("not JSON: %w", err))
		}
		if len(in) == 0 {
			if values++; values > 1 {
				return here(errors.New("more than one document: want one"))
			}
		}
		if err := in.take(t); err != nil {
			return err
		}
		if len(in) > maxDepth {
			return here(fmt.Errorf("nests deeper than %d: want {\"zones\": {...}}", maxDepth))
		}
	}
}

// levels are the objects and lists that contain a position in a document, the outermost
// first.
type levels []level

type level struct {
	names map[string]bool // members of an object so far; nil: a list
	name  string          // the last member
	n     int             // number of names and values so far
}

// pointer returns the JSON pointer to the position.
func (l levels) pointer() string {
	names := make([]string, len(l))
	for i, in := range l {
		if names[i] = in.name; in.names == nil {
			names[i] = strconv.Itoa(in.n - 1)
		}
	}
	return Pointer(names...)
}

// take advances the position by one token.
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

// Fields decodes an object's members into the values that fields point to, and rejects
// unknown members. A member that is null is ignored.
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

// members calls each for every member of an object, in order.
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
	if _, ok := into.(*caddy.Duration); ok && err != nil {
		return fmt.Errorf("%s: want a duration such as 10s, 1m, 1h30m or 1d", shown(value))
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

// shown returns the beginning of a text, escaped to one line.
func shown(text []byte) string {
	s := string(text[:min(len(text), maxShown)])
	if len(text) > maxShown {
		s += "..."
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
