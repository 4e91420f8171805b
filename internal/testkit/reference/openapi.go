package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// object is one of the JSON of the schema.
type object = map[string]any

// operation is a request of the admin API: what the comment of admin.API does not say of it.
type operation struct {
	does    string // method and path
	params  []string
	body    string // type of the request's body; empty: it has none
	answer  string // type of the answer
	content string // its media type; empty: JSON
}

// document is what stands for a document of rules, which the reference describes as a configuration.
const document = "Document"

var operations = []operation{
	{does: "GET /rate_limit/zones", params: []string{"fleet"}, answer: "cli.Zones"},
	{does: "GET /rate_limit/live", params: []string{"once", "open", "since", "have"}, answer: "cli.Live", content: "text/event-stream"},
	{does: "GET /rate_limit/history", params: []string{"range", "zone", "since"}, answer: "history.Past"},
	{does: "GET /rate_limit/zones/{zone}/key", params: []string{"part", "hash", "cost"}, answer: "limiter.Key"},
	{does: "DELETE /rate_limit/zones/{zone}/key", params: []string{"part", "hash"}, answer: "limiter.Key"},
	{does: "GET /rate_limit/zones/{zone}/top", params: []string{"fleet"}, answer: "cli.Top"},
	{does: "GET /rate_limit/top", params: []string{"fleet"}, answer: "cli.Tops"},
	{does: "GET /rate_limit/zones/{zone}/spend", params: []string{"fleet"}, answer: "cli.Spend"},
	{does: "GET /rate_limit/spend", params: []string{"fleet"}, answer: "cli.Spends"},
	{does: "GET /rate_limit/keys", params: []string{"part", "fleet"}, answer: "cli.Found"},
	{does: "GET /rate_limit/exceptions", params: []string{"zone"}, answer: "cli.Exceptions"},
	{does: "POST /rate_limit/explain", body: "cli.Request", answer: "cli.Explanation"},
	{does: "POST /rate_limit/rules/validate", body: document, answer: "cli.Validation"},
	{does: "GET /rate_limit/rules", answer: document},
	{does: "PUT /rate_limit/rules", params: []string{"If-Match", "who", "why", "what"}, body: document, answer: "cli.Validation"},
	{does: "GET /rate_limit/rules/changes", answer: "cli.Changes"},
	{does: "POST /rate_limit/rules/edit", body: "[]edit.Edit", answer: "cli.Edited"},
}

// parameter describes a parameter, wherever it is.
type parameter struct {
	in, doc  string
	schema   object
	required bool
}

var parameters = map[string]parameter{
	"zone":     {in: "query", doc: "only these zones; may be repeated", schema: list(object{"type": "string"})},
	"fleet":    {in: "query", doc: "of all instances that share the first store", schema: object{"type": "string", "enum": []string{""}}},
	"once":     {in: "query", doc: "one message as JSON instead of a stream", schema: object{"type": "string"}},
	"open":     {in: "query", doc: "the zone whose keys and costs are sent, too", schema: object{"type": "string"}},
	"since":    {in: "query", doc: "only steps after this one, such as the value of last", schema: object{"type": "integer", "minimum": 0}},
	"have":     {in: "query", doc: "the version of the zones that the client has", schema: object{"type": "string"}},
	"range":    {in: "query", doc: "5m has steps of 2 s, 1h of 10 s, 24h of 2 min", schema: object{"type": "string", "enum": []string{"5m", "1h", "24h"}, "default": "5m"}},
	"part":     {in: "query", doc: "a part of the key; repeated for each part, in their order", schema: list(object{"type": "string"})},
	"hash":     {in: "query", doc: "the hash of the key, instead of its parts", schema: object{"type": "string"}},
	"cost":     {in: "query", doc: "cost of the next request", schema: object{"type": "integer", "minimum": 1}},
	"If-Match": {in: "header", doc: "the ETag of the document that is replaced; * replaces any", schema: object{"type": "string"}, required: true},
	"who":      {in: "query", doc: "who makes the change, for the list of changes", schema: object{"type": "string"}},
	"why":      {in: "query", doc: "the reason", schema: object{"type": "string"}},
	"what":     {in: "query", doc: "the change in words", schema: object{"type": "string"}},
}

func list(of object) object { return object{"type": "array", "items": of} }

// OpenAPI returns the text of docs/openapi.json, the schema of the admin API.
func OpenAPI(root string) (string, error) {
	s, err := readSource(root, "config", "rules", "internal/ops/admin", "internal/ops/cli", "internal/ops/edit", "internal/limiter", "internal/follow/lists", "internal/metrics", "internal/topk", "internal/history")
	if err != nil {
		return "", err
	}
	a := &schema{source: s, types: object{
		document: object{"type": "object", "description": "A document of rules: docs/rules.md.", "required": []string{"zones"}, "properties": object{"zones": object{"type": "object"}}},
		"Error":  object{"type": "object", "required": []string{"error"}, "properties": object{"error": object{"type": "string"}}},
	}}
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "The admin API of Diana", "version": "1", "license": object{"name": "Apache 2.0", "identifier": "Apache-2.0"},
			"description": "At Caddy's admin endpoint, which protects it. Durations are in seconds.",
		},
		"servers": []object{{"url": "http://{address}", "variables": object{"address": object{
			"default": "localhost:2019", "description": "the address of Caddy's admin endpoint",
		}}}},
		"security":   []object{},
		"paths":      a.paths(),
		"components": object{"schemas": a.types},
	}
	if len(a.missing) > 0 {
		return "", fmt.Errorf("internal/testkit/reference/openapi.go is incomplete:\n%s", strings.Join(a.missing, "\n"))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(doc)
	return b.String(), err
}

// schema collects the types that the paths use, and what is missing.
type schema struct {
	source  *source
	types   object
	missing []string
}

// route matches a line of the comment of admin.API.
var route = regexp.MustCompile(`(?m)^\s*(GET|POST|PUT|DELETE)\s+(\S+)\s+(.*)$`)

func (a *schema) paths() object {
	all, summaries := object{}, make(map[string]string)
	for _, m := range route.FindAllStringSubmatch(a.source.docs["admin.API"], -1) {
		does := m[1] + " " + strings.NewReplacer("<", "{", ">", "}").Replace(m[2])
		summaries[does] = m[3]
		if does == "GET /rate_limit/" {
			continue // the page, for people
		}
		if !slices.ContainsFunc(operations, func(o operation) bool { return o.does == does }) {
			a.missing = append(a.missing, does+" has no operation")
		}
	}
	for _, o := range operations {
		method, path, _ := strings.Cut(o.does, " ")
		if all[path] == nil {
			all[path] = object{}
		}
		all[path].(object)[strings.ToLower(method)] = a.operation(o, summaries[o.does])
	}
	return all
}

// notWord matches what cannot stand in the name of an operation.
var notWord = regexp.MustCompile(`\W+`)

func (a *schema) operation(o operation, summary string) object {
	if summary == "" {
		a.missing = append(a.missing, "the comment of admin.API does not name "+o.does)
	}
	_, path, _ := strings.Cut(o.does, " ")
	params := []object{}
	if strings.Contains(path, "{zone}") {
		params = append(params, object{"name": "zone", "in": "path", "required": true, "description": "name of the zone", "schema": object{"type": "string"}})
	}
	for _, name := range o.params {
		p := parameters[name]
		params = append(params, object{"name": name, "in": p.in, "description": p.doc, "schema": p.schema, "required": p.required})
	}
	media := o.content
	if media == "" {
		media = "application/json"
	}
	wrong := object{"description": "an error", "content": object{"application/json": object{"schema": ref("Error")}}}
	made := object{
		"operationId": strings.Trim(notWord.ReplaceAllString(strings.ToLower(o.does), "_"), "_"), "summary": summary, "parameters": params,
		"responses": object{
			"200": object{"description": "the answer", "content": object{media: object{"schema": a.named(o.answer)}}},
			"4XX": wrong, "5XX": wrong,
		},
	}
	if o.body != "" {
		made["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": a.named(o.body)}}}
	}
	return made
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// named returns the schema of a type of an operation.
func (a *schema) named(name string) object {
	if of, ok := strings.CutPrefix(name, "[]"); ok {
		return list(a.named(of))
	}
	pkg, typ, ok := strings.Cut(name, ".")
	if !ok {
		return ref(name)
	}
	return a.of(pkg, &ast.Ident{Name: typ})
}

// plain are the schemas of types without fields.
var plain = map[string]object{
	"string": {"type": "string"}, "bool": {"type": "boolean"}, "float32": {"type": "number"}, "float64": {"type": "number"}, "config.Value": {"type": "string"},
	"int": {"type": "integer"}, "int64": {"type": "integer"}, "uint32": {"type": "integer"}, "uint64": {"type": "integer"},
	"time.Time": {"type": "string", "format": "date-time"}, "json.RawMessage": {},
	"config.Parts": {"type": []string{"array", "string"}, "items": object{"type": "string"}},
	"config.Rule":  {"type": "object", "description": "a rule as in a configuration: docs/reference.md#rule"},
}

// of returns the schema of a type that a package writes as an expression.
func (a *schema) of(pkg string, e ast.Expr) object {
	switch e := e.(type) {
	case *ast.StarExpr:
		return a.of(pkg, e.X)
	case *ast.ArrayType:
		return list(a.of(pkg, e.Elt))
	case *ast.MapType:
		return object{"type": "object", "additionalProperties": a.of(pkg, e.Value)}
	case *ast.SelectorExpr:
		return a.typ(e.X.(*ast.Ident).Name, e.Sel.Name)
	case *ast.Ident:
		if p, ok := plain[e.Name]; ok {
			return p
		}
		return a.typ(pkg, e.Name)
	}
	a.missing = append(a.missing, fmt.Sprintf("%s: no schema of %T", pkg, e))
	return nil
}

// typ returns a reference to a named type, which becomes one of the schema's.
func (a *schema) typ(pkg, name string) object {
	full, shown := pkg+"."+name, name
	if p, ok := plain[full]; ok {
		return p
	}
	if pkg == "config" {
		shown = "Configured" + name
	}
	if a.types[shown] == nil {
		made := object{"type": "object", "description": strings.Join(strings.Fields(a.source.docs[full]), " ")}
		a.types[shown] = made // a type may contain itself
		properties, required := object{}, []string{}
		a.fields(full, properties, &required)
		made["properties"], made["required"] = properties, required
		if len(properties) == 0 {
			a.missing = append(a.missing, full+" has no fields")
		}
	}
	return ref(shown)
}

// fields adds the fields of a type, and those of the types that it embeds.
func (a *schema) fields(full string, properties object, required *[]string) {
	pkg, _, _ := strings.Cut(full, ".")
	for _, e := range a.source.embedded[full] {
		if star, ok := e.(*ast.StarExpr); ok {
			e = star.X
		}
		switch e := e.(type) {
		case *ast.SelectorExpr:
			a.fields(e.X.(*ast.Ident).Name+"."+e.Sel.Name, properties, required)
		case *ast.Ident:
			a.fields(pkg+"."+e.Name, properties, required)
		}
	}
	for _, f := range a.source.fields[full] {
		made := object{}
		for k, v := range a.of(pkg, f.expr) {
			made[k] = v
		}
		if _, is := f.expr.(*ast.MapType); is && !f.optional {
			made["type"] = []string{"object", "null"}
		}
		doc := strings.ReplaceAll(f.doc, "`", "")
		if f.def != "" {
			doc = strings.TrimSpace(doc + " Default: " + f.def)
		}
		if made["description"] == nil && doc != "" {
			made["description"] = doc
		}
		properties[f.name] = made
		if !f.optional && pkg != "config" && full != "cli.Request" {
			*required = append(*required, f.name)
		}
	}
}
