package config

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// Value is a number or a text: in JSON a number or a string.
type Value string

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(v))
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("%s: want a number or a string", b)
	}
	*v = Value(n)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return strconv.AppendInt(nil, n, 10), nil
	}
	return json.Marshal(string(v))
}

// Parts are the parts of a key: in JSON a list of strings, or a string for one part.
type Parts []string

// UnmarshalJSON implements json.Unmarshaler.
func (p *Parts) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*p = Parts{""}
		return json.Unmarshal(b, &(*p)[0])
	}
	return json.Unmarshal(b, (*[]string)(p))
}

// Expand replaces the Caddyfile's placeholder shorthands by their full names. Caddy
// itself does so only in site blocks.
func Expand(s string) string {
	segment := caddyfile.Segment{{Text: s}}
	shorthands.ApplyToSegment(&segment)
	return segment[0].Text
}

var shorthands = httpcaddyfile.NewShorthandReplacer()
