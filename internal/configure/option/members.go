package option

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// Unmarshal decodes JSON into a pointer to a struct as Caddy does, and says of an unknown member where it is
// and what was meant. It rejects one that is given twice, in two cases: what repeats a name in one case, Caddy has
// lost before.
func Unmarshal(text []byte, into any) error {
	if err := wrongMember(text, reflect.TypeOf(into), ""); err != nil {
		return err
	}
	return caddy.StrictUnmarshalJSON(text, into)
}

// wrongMember returns an error about the first member of a value that its type does not have, or has already;
// nil: there is none, or the value is of another kind. at is a JSON pointer to the value.
func wrongMember(text json.RawMessage, t reflect.Type, at string) error {
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	var members map[string]json.RawMessage
	switch {
	case decodesItself(t) || t == reflect.TypeFor[json.RawMessage]():
		return nil
	case t.Kind() == reflect.Slice:
		var list []json.RawMessage
		_ = json.Unmarshal(text, &list) // what is no list is said when it is decoded
		for i, v := range list {
			if err := wrongMember(v, t.Elem(), fmt.Sprintf("%s/%d", at, i)); err != nil {
				return err
			}
		}
		return nil
	case t.Kind() != reflect.Struct && t.Kind() != reflect.Map || json.Unmarshal(text, &members) != nil:
		return nil //nolint:nilerr // Caddy says what is wrong with it
	}
	fields := make(map[string]reflect.Type)
	if t.Kind() == reflect.Struct {
		fields = fieldsByName(t)
	}
	given := make(map[string]string) // by field
	for _, name := range slices.Sorted(maps.Keys(members)) {
		of, is := fields[name], name
		for field, other := range fields { // encoding/json ignores the case
			if of == nil && strings.EqualFold(field, name) {
				of, is = other, field
			}
		}
		if twice := given[is]; twice != "" {
			return fmt.Errorf("%sfields %q and %q: want it once", strings.TrimPrefix(at+": ", ": "), twice, name)
		}
		given[is] = name
		if t.Kind() == reflect.Map {
			of = t.Elem()
		}
		if of == nil {
			names := slices.Collect(maps.Keys(fields))
			return fmt.Errorf("%sunknown field %q: %s", strings.TrimPrefix(at+": ", ": "), name[:min(len(name), 64)], Want(name, names))
		}
		if err := wrongMember(members[name], of, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name)); err != nil {
			return err
		}
	}
	return nil
}

func decodesItself(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Unmarshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// fieldsByName returns the types of the fields of a struct by their names in JSON.
func fieldsByName(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && !f.Anonymous && f.IsExported() {
			name = f.Name
		}
		if name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}
