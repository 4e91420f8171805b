package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/option"
)

// allZones is the name that stands for every zone.
const allZones = "*"

// pointer joins names to a JSON pointer, with control characters escaped as in Go and
// long names truncated.
func pointer(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(shown([]byte(name))))
	}
	return b.String()
}

// maxShown is the number of bytes of a name that errors show.
const maxShown = 100

// Parse parses a document. Every error has a position, as a [config.Error] if it is JSON.
func Parse(text []byte) (*config.Document, error) {
	if len(text) > MaxSize {
		return nil, ErrTooLarge
	}
	if err := CheckUTF8(text); err != nil {
		return nil, err
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // a byte order mark
	var bad *json.SyntaxError
	if err := json.Unmarshal(text, new(json.RawMessage)); errors.As(err, &bad) {
		line, column := behind(text[:at(bad, text)])
		return nil, fmt.Errorf("line %d, column %d: not JSON: %w", line, column, err)
	}
	d := new(config.Document)
	if err := checkSurrogates(text); err != nil {
		return nil, err
	}
	if err := read(text, reflect.ValueOf(d).Elem()); err != nil {
		return nil, err
	}
	if d.Zones == nil {
		return nil, errors.New(`no "zones": want an object such as {"zones": {}}`)
	}
	if all := d.Zones[allZones]; all != nil {
		if err := checkAll(all); err != nil {
			return nil, config.At(pointer("zones", allZones), err)
		}
		if all.Enabled != nil || all.Shadow != nil {
			d.All = all
		}
	}
	delete(d.Zones, allZones)
	return d, nil
}

// CheckUTF8 returns an error with the position of the first byte of a text that is not UTF-8.
// encoding/json would read another character in its place, so that a key would be another's.
func CheckUTF8(text []byte) error {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			line, column := behind(text[:at])
			return fmt.Errorf("line %d, column %d: byte 0x%x: want UTF-8", line, column, text[at])
		}
		at += size
	}
	return nil
}

// at returns the index at which a syntax error is reported: a character, or the end of the text.
func at(bad *json.SyntaxError, text []byte) int64 {
	if bad.Error() == "unexpected end of JSON input" {
		return int64(len(text))
	}
	return max(0, bad.Offset-1)
}

// checkSurrogates returns an error with the position of the first escape in valid JSON that is half of
// a pair. As with what is not UTF-8, another character would be read in its place.
func checkSurrogates(text []byte) error {
	for at := 0; at < len(text); at++ {
		if text[at] != '\\' {
			continue
		}
		size := 2
		if high := escaped(text[at:]); utf16.IsSurrogate(high) {
			size = 12
			if utf16.DecodeRune(high, escaped(text[at+6:])) == utf8.RuneError {
				line, column := behind(text[:at])
				return fmt.Errorf("line %d, column %d: %s: half of a surrogate pair: want both", line, column, text[at:at+6])
			}
		}
		at += size - 1
	}
	return nil
}

// escaped returns the code unit of the escape \uXXXX that a text begins with; 0: there is none.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n)
}

// behind returns the position behind the beginning of a text.
func behind(before []byte) (line, column int) {
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// checkAll checks the zone "*", a switch for an incident: it turns limits off and on again, and
// cannot turn on what is off in one zone.
func checkAll(z *config.Changes) error {
	switch {
	case z.Rules != nil || z.Overrides != nil || z.Exceptions != nil:
		return errors.New("rules, overrides or exceptions: want only enabled and shadow, for all zones")
	case z.Enabled != nil && *z.Enabled:
		return config.At("/enabled", errors.New("true: want only false, for all zones"))
	case z.Shadow != nil && !*z.Shadow:
		return config.At("/shadow", errors.New("false: want only true, for all zones"))
	}
	return nil
}

// onlyConfigured are the members of the types of the configuration that a document cannot have.
var onlyConfigured = []string{"keys_file", "limit_from"}

// read decodes a text as encoding/json does, but rejects members that are unknown or stand twice,
// and its errors have a position. null is ignored.
func read(text json.RawMessage, into reflect.Value) error {
	if string(text) == "null" {
		return nil
	}
	t, to := into.Type(), into.Addr().Interface()
	_, special := to.(json.Unmarshaler)
	switch {
	case t == reflect.TypeFor[json.RawMessage](): // a Caddy module
		if err := members(text, func(string, json.RawMessage) error { return nil }); err != nil {
			return err
		}
	case special:
	case t.Kind() == reflect.Pointer:
		into.Set(reflect.New(t.Elem()))
		return read(text, into.Elem())
	case t.Kind() == reflect.Struct:
		fields := fieldsOf(into)
		return members(text, func(name string, value json.RawMessage) error {
			if f, ok := fields[name]; ok {
				return read(value, f)
			}
			return errors.New("unknown: " + option.Want(name, slices.Collect(maps.Keys(fields))))
		})
	case t.Kind() == reflect.Map:
		into.Set(reflect.MakeMap(t))
		return members(text, func(name string, value json.RawMessage) error {
			v := reflect.New(t.Elem()).Elem()
			err := read(value, v)
			into.SetMapIndex(reflect.ValueOf(name), v)
			return err
		})
	case t.Kind() == reflect.Slice:
		var list []json.RawMessage
		if err := decode(text, &list); err != nil {
			return err
		}
		into.Set(reflect.MakeSlice(t, len(list), len(list)))
		for i, value := range list {
			if err := read(value, into.Index(i)); err != nil {
				return config.At("/"+strconv.Itoa(i), err)
			}
		}
		return nil
	}
	return decode(text, to)
}

// fieldsOf returns the fields of a struct by their names in a document.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	fields := make(map[string]reflect.Value)
	for f, value := range v.Fields() {
		if f.Anonymous {
			maps.Copy(fields, fieldsOf(value))
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "-" && !slices.Contains(onlyConfigured, name) {
			fields[name] = value
		}
	}
	return fields
}

// members calls each for every member of an object in valid JSON, in order.
func members(text json.RawMessage, each func(name string, value json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%s: want an object", shown(text))
	}
	seen := make(map[string]bool)
	for dec.More() {
		t, err := dec.Token()
		name, _ := t.(string)
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		switch {
		case err != nil:
		case seen[name]:
			err = errors.New("is given twice: want it once")
		default:
			err = each(name, value)
		}
		if err != nil {
			return config.At(pointer(name), err)
		}
		seen[name] = true
	}
	return nil
}

func decode(value json.RawMessage, into any) error {
	err := json.Unmarshal(value, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: want %s", shown(value), option.Wanted(wrong))
	}
	if _, ok := into.(*time.Time); ok && err != nil {
		return fmt.Errorf("%s: want an instant such as \"2027-01-02T03:04:05Z\"", shown(value))
	}
	if _, ok := into.(*caddy.Duration); ok && err != nil {
		return fmt.Errorf("%s: want a duration such as 10s, 1m, 1h30m or 1d", shown(value))
	}
	return err
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
