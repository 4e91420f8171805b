package replay

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/dianalimiter/diana/config"
)

// The fields that a line may lack are "host", "header <Name>", and what no log has.
const (
	fieldHost     = "host"
	fieldBody     = "the request's body"
	fieldResponse = "the response"
	fieldSet      = "what other handlers set"
)

// fieldOf returns what a placeholder reads that a line may lack; empty: nothing.
func fieldOf(placeholder string) string {
	name, ok := strings.CutPrefix(placeholder, "http.")
	if !ok {
		if root, _, _ := strings.Cut(placeholder, "."); slices.Contains([]string{"env", "file", "system", "time"}, root) {
			return ""
		}
		return fieldSet // a variable of map
	}
	after := func(prefix string) (rest string, ok bool) { return strings.CutPrefix(name, prefix) }
	if h, ok := after("request.header."); ok {
		return "header " + http.CanonicalHeaderKey(h)
	}
	for prefix, field := range map[string]string{
		"request.cookie.": "header Cookie", "request.host": fieldHost, "request.port": fieldHost, "request.body": fieldBody,
		"request.tls.": "the connection's TLS", "response.": fieldResponse, "reverse_proxy.": fieldResponse, "vars.": fieldSet, "auth.": fieldSet,
	} {
		if _, ok := after(prefix); ok && name != "auth.user.id" && name != "vars.client_ip" {
			return field
		}
	}
	return ""
}

var (
	placeholder = regexp.MustCompile(`\{([A-Za-z_][\w.-]*)\}`)
	celHeader   = regexp.MustCompile(`header(?:_regexp)?\(\{?\s*['"]([\w-]+)`)
)

// fieldsIn returns what is read by the strings and the matchers in a text of a configuration.
func fieldsIn(text json.RawMessage) (fields []string) {
	var v any
	if json.Unmarshal(text, &v) == nil {
		collect(v, &fields)
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

func collect(v any, fields *[]string) {
	add := func(field string) {
		if field != "" {
			*fields = append(*fields, field)
		}
	}
	switch v := v.(type) {
	case string:
		for _, m := range placeholder.FindAllStringSubmatch(config.Expand(v), -1) {
			add(fieldOf(m[1]))
		}
		for _, m := range celHeader.FindAllStringSubmatch(v, -1) {
			add("header " + http.CanonicalHeaderKey(m[1]))
		}
		if strings.Contains(v, "host(") {
			add(fieldHost)
		}
	case []any:
		for _, x := range v {
			collect(x, fields)
		}
	case map[string]any:
		for name, x := range v {
			if headers, ok := x.(map[string]any); ok && (name == "header" || name == "header_regexp") {
				for h := range headers {
					add("header " + http.CanonicalHeaderKey(h))
				}
			}
			if name == "host" || name == "tls" {
				add(map[string]string{"host": fieldHost, "tls": "the connection's TLS"}[name])
			}
			collect(name, fields)
			collect(x, fields)
		}
	}
}

// zoneFields returns what the decision of each zone of a handler reads, by name. texts are the
// matchers that lead to it and its options, changing the options of the handlers that run.
func zoneFields(texts, changing []json.RawMessage) map[string][]string {
	var around, set []string
	for _, t := range texts[:len(texts)-1] {
		around = append(around, fieldsIn(t)...)
	}
	for _, t := range changing {
		set = append(set, fieldsIn(t)...)
	}
	var h struct {
		Zones []map[string]json.RawMessage `json:"zones"`
	}
	_ = json.Unmarshal(texts[len(texts)-1], &h) // it was provisioned
	fields := make(map[string][]string)
	for _, z := range h.Zones {
		var name string
		_ = json.Unmarshal(z["name"], &name)
		list := slices.Clone(around)
		for _, option := range []string{"match", "exempt", "key", "cost", "rules"} {
			list = append(list, fieldsIn(z[option])...)
		}
		if z["settle"] != nil || z["tokens"] != nil {
			list = append(list, fieldResponse)
		}
		var d struct{ Body bool }
		if json.Unmarshal(z["prevent_duplicates"], &d) == nil && d.Body {
			list = append(list, fieldBody)
		}
		if slices.Contains(list, fieldSet) {
			list = append(list, set...)
		}
		slices.Sort(list)
		fields[name] = slices.Compact(list)
	}
	return fields
}
