package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// schema is one of docs/openapi.json.
type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"`
	Items      *schema           `json:"items"`
	Properties map[string]schema `json:"properties"`
	Additional *schema           `json:"additionalProperties"`
	Required   []string          `json:"required"`
}

// openAPI is the part of docs/openapi.json that describes answers.
type openAPI struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct {
				Schema schema `json:"schema"`
			} `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

// differences returns where a value is not as a schema says.
func (o *openAPI) differences(at string, s schema, v any) (found []string) {
	if name, is := strings.CutPrefix(s.Ref, "#/components/schemas/"); is {
		named, ok := o.Components.Schemas[name]
		if !ok {
			return []string{at + ": no schema " + name}
		}
		return o.differences(at, named, v)
	}
	is := ""
	switch v := v.(type) {
	case map[string]any:
		is = "object"
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				found = append(found, at+" lacks "+name)
			}
		}
		for name, member := range v {
			of, ok := s.Properties[name]
			switch {
			case ok:
				found = append(found, o.differences(at+"."+name, of, member)...)
			case s.Additional != nil:
				found = append(found, o.differences(at+"."+name, *s.Additional, member)...)
			case s.Properties != nil:
				found = append(found, at+" has "+name+", which no schema has")
			}
		}
	case []any:
		is = "array"
		for i, e := range v {
			found = append(found, o.differences(fmt.Sprintf("%s[%d]", at, i), *s.Items, e)...)
		}
	case float64:
		is = "number"
		if v == float64(int64(v)) && s.Type == "integer" {
			is = "integer"
		}
	case string:
		is = "string"
	case bool:
		is = "boolean"
	case nil:
		is = "null"
	}
	types, _ := s.Type.([]any)
	if s.Type != nil && s.Type != is && !slices.Contains(types, any(is)) {
		found = append(found, fmt.Sprintf("%s: %v is no %v", at, v, s.Type))
	}
	return found
}

// TestAnswersAreAsTheSchemaSays compares answers of the admin API with docs/openapi.json.
func TestAnswersAreAsTheSchemaSays(t *testing.T) {
	var o openAPI
	if err := json.Unmarshal([]byte(textOf(t, "docs/openapi.json")), &o); err != nil {
		t.Fatal(err)
	}
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 3/100h block 1h\nsettle {http.response.header.X-Tokens}\ngroup_by {client_ip}\noverride 10.0.0.9 unlimited"))
		s.want(req{ip: "10.0.0.1"}, 200, 200, 200, 429)
		for _, c := range []struct{ method, path, query, body string }{
			{"get", "zones", "", ""},
			{"get", "zones", "?fleet", ""},
			{"get", "live", "?once&open=z", ""},
			{"get", "history", "?range=1h", ""},
			{"get", "zones/{zone}/key", "?part=10.0.0.1", ""},
			{"get", "zones/{zone}/top", "", ""},
			{"get", "zones/{zone}/spend", "", ""},
			{"get", "top", "?fleet", ""},
			{"get", "spend", "", ""},
			{"get", "keys", "?part=10.0.0.1&fleet", ""},
			{"get", "exceptions", "", ""},
			{"post", "explain", "", `{"url": "http://localhost/", "client_ip": "10.0.0.1"}`},
			{"post", "rules/validate", "", `{"zones": {"z": {"shadow": true}}}`},
			{"delete", "zones/{zone}/key", "?part=10.0.0.1", ""},
		} {
			var answer any
			path := strings.ReplaceAll(c.path, "{zone}", "z")
			if status, text := s.admin(strings.ToUpper(c.method), path+c.query, c.body, &answer); status != 200 {
				t.Fatalf("%s: %d %s", path, status, text)
			}
			for _, media := range o.Paths["/rate_limit/"+c.path][c.method].Responses["200"].Content {
				for _, d := range o.differences(path+c.query, media.Schema, answer) {
					t.Error(d)
				}
			}
			if len(o.Paths["/rate_limit/"+c.path][c.method].Responses["200"].Content) != 1 {
				t.Errorf("%s %s: no answer in the schema", c.method, c.path)
			}
		}
	})
}
