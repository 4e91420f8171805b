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
	fieldHost        = "host"
	fieldAddress     = "the address of the client"
	fieldRemote      = "the address of the connection"
	fieldPort        = "the port of the connection"
	fieldLocal       = "the address of the server"
	fieldTLS         = "the connection's TLS"
	fieldCertificate = "the client's certificate"
	fieldTrusted     = "whether a trusted proxy sent it"
	fieldBody        = "the request's body"
	fieldResponse    = "the response"
	fieldTime        = "what {time...} was"
	fieldSet         = "what other handlers set"
)

// readBy are the fields that placeholders read, by how their names begin behind http. The longest
// that fits counts.
var readBy = map[string]string{
	"request.cookie.": "header Cookie", "request.host": fieldHost, "request.port": fieldHost, "request.body": fieldBody,
	"request.remote": fieldPort, "request.remote.host": fieldRemote, "request.local": fieldLocal,
	"request.scheme": fieldTLS, "request.tls.": fieldTLS, "request.tls.client.": fieldCertificate,
	"response.": fieldResponse, "reverse_proxy.": fieldResponse, "vars.": fieldSet, "auth.": fieldSet, "auth.user.id": "",
	"vars.client_ip": fieldAddress, "vars.trusted_proxy": fieldTrusted,
}

// fieldOf returns what a placeholder reads that a line may lack; empty: nothing.
func fieldOf(placeholder string) (field string) {
	name, ok := strings.CutPrefix(placeholder, "http.")
	if !ok {
		switch root, _, _ := strings.Cut(placeholder, "."); root {
		case "env", "file", "system":
			return ""
		case "time":
			return fieldTime
		}
		return fieldSet // a variable of map
	}
	if h, ok := strings.CutPrefix(name, "request.header."); ok {
		return "header " + http.CanonicalHeaderKey(h)
	}
	longest := 0
	for prefix, f := range readBy {
		if len(prefix) > longest && strings.HasPrefix(name, prefix) {
			longest, field = len(prefix), f
		}
	}
	return field
}

var (
	placeholder = regexp.MustCompile(`\{([A-Za-z_][\w./,-]*)\}`)
	celHeader   = regexp.MustCompile(`\bheader(?:_regexp)?\(\{?\s*['"]([\w-]+)['"]\s*(?:,\s*['"]([\w-]+)['"])?`)
	celMatcher  = regexp.MustCompile(`\b(host|tls|client_ip|remote_ip|protocol)\(\s*['"]?([\w/.]*)`)
	celVariable = regexp.MustCompile(`\bvars(?:_regexp)?\(\{?\s*['"]([\w.-]+)['"]\s*(?:,\s*['"]([\w.-]+)['"])?`)
)

// fieldOfMatcher returns what a matcher of a name reads that a line may lack; of protocol, with a
// value.
func fieldOfMatcher(name, value string) string {
	if name != "protocol" {
		return map[string]string{"host": fieldHost, "tls": fieldTLS, "client_ip": fieldAddress, "remote_ip": fieldRemote}[name]
	}
	return map[string]string{"http": fieldTLS, "https": fieldTLS, "grpc": "header Content-Type"}[strings.ToLower(value)]
}

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
			for _, name := range m[1:] { // the first may be the name of an expression
				if name != "" {
					add("header " + http.CanonicalHeaderKey(name))
				}
			}
		}
		for _, m := range celVariable.FindAllStringSubmatch(v, -1) {
			for _, name := range m[1:] { // likewise
				if name != "" {
					add(fieldOf("http.vars." + name))
				}
			}
		}
		for _, m := range celMatcher.FindAllStringSubmatch(v, -1) {
			add(fieldOfMatcher(m[1], m[2]))
		}
	case []any:
		for _, x := range v {
			collect(x, fields)
		}
	case map[string]any:
		for name, x := range v {
			members, _ := x.(map[string]any)
			for member := range members {
				switch name {
				case "header", "header_regexp":
					add("header " + http.CanonicalHeaderKey(member))
				case "vars", "vars_regexp":
					if !strings.HasPrefix(member, "{") {
						add(fieldOf("http.vars." + member))
					}
				}
			}
			value, _ := x.(string)
			add(fieldOfMatcher(name, value))
			if strings.Contains(value, "://") && (name == "pattern" || name == "base_url") { // of url_pattern
				add(fieldHost)
				add(fieldTLS)
			}
			collect(name, fields)
			collect(x, fields)
		}
	}
}

// zoneFields returns the fields that the decision of a zone reads. matchers are the ones of the routes that lead to
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
