package replay

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/limiter"
)

// The fields that a line may lack are these, and "header <Name>".
const (
	fieldHost     = "host"
	fieldAddress  = "the address of the client"
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
	if name == "vars.client_ip" {
		return fieldAddress
	}
	for prefix, field := range map[string]string{
		"request.cookie.": "header Cookie", "request.remote": fieldAddress, "request.host": fieldHost, "request.port": fieldHost, "request.body": fieldBody,
		"request.tls.": "the connection's TLS", "response.": fieldResponse, "reverse_proxy.": fieldResponse, "vars.": fieldSet, "auth.": fieldSet,
	} {
		if _, ok := after(prefix); ok && name != "auth.user.id" {
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
			add(map[string]string{"host": fieldHost, "tls": "the connection's TLS", "client_ip": fieldAddress, "remote_ip": fieldAddress}[name])
			collect(name, fields)
			collect(x, fields)
		}
	}
}

// zoneFields returns what the decision of a zone reads. matchers are those of the routes that lead to
// its handler, changing the options of the handlers that run.
func zoneFields(zone *limiter.Zone, matchers, changing []json.RawMessage) (fields []string) {
	read := func(texts ...json.RawMessage) {
		for _, t := range texts {
			fields = append(fields, fieldsIn(t)...)
		}
	}
	read(matchers...)
	for _, name := range zone.Config.Plan.Placeholders() {
		fields = append(fields, fieldOf(name))
	}
	options := []any{zone.MatcherSetsRaw, zone.ExemptRaw, zone.Cost, zone.Rules}
	for _, o := range zone.Overrides {
		options = append(options, o.Rules)
	}
	text, _ := json.Marshal(options) // they were read from JSON
	read(text)
	if zone.Settle != "" || zone.Tokens != nil {
		fields = append(fields, fieldResponse)
	}
	if d := zone.PreventDuplicates; d != nil && d.Body {
		fields = append(fields, fieldBody)
	}
	if slices.Contains(fields, fieldSet) {
		read(changing...)
	}
	slices.Sort(fields)
	return slices.DeleteFunc(slices.Compact(fields), func(field string) bool { return field == "" })
}
