package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
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

// MarshalJSON implements json.Marshaler. Only a number as people write it becomes a number: +007
// stays what a check rejects.
func (v Value) MarshalJSON() ([]byte, error) {
	if _, err := strconv.ParseInt(string(v), 10, 64); err == nil && option.IsWhole(string(v)) {
		return []byte(v), nil
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
// itself does so only in site blocks, and only where a name has no other characters than
// letters, digits, _ and -.
func Expand(s string) string {
	if strings.Count(s, "{") == strings.Count(s, "{http.") {
		return s // it has no shorthand: the expressions take longer than the rest of a zone
	}
	segment := caddyfile.Segment{{Text: s}}
	shorthands.ApplyToSegment(&segment)
	return otherNames.ReplaceAllStringFunc(segment[0].Text, func(shorthand string) string {
		family, name, _ := strings.Cut(shorthand[1:], ".")
		return "{" + families[family] + name
	})
}

var (
	shorthands = httpcaddyfile.NewShorthandReplacer()
	otherNames = regexp.MustCompile(`\{(?:header|cookie|query|path)\.[^{}]+\}`)
	families   = map[string]string{
		"header": "http.request.header.", "cookie": "http.request.cookie.", "query": "http.request.uri.query.", "path": "http.request.uri.path.",
	}
)
