// Package httpapp looks through the configuration of the app http: for readers of placeholders, for map and
// for tracing.
package httpapp

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// own begins the placeholders of rate_limit.
const own = "http.rate_limit."

// plain are Caddy's handlers that read only the placeholders that their options name. templates
// is none of them, because its files may name any.
var plain = strings.Fields(`acme_server authentication copy_response copy_response_headers diana encode error file_server headers
	intercept invoke log_append map metrics push rate_limit rate_limit_page rate_limit_quota request_body reverse_proxy rewrite
	static_response subroute timeouts tracing vars`)

// Config is what handlers ask of the configuration of the app http. It is read once for all of them.
type Config struct {
	// Reads reports whether the configuration may read placeholders of rate_limit: it names one, or has a handler
	// whose code or files may. Whatever is not as it is expected to be counts as a reader.
	Reads bool

	// Traced reports whether requests may have spans: the configuration has the handler tracing.
	Traced bool

	// Mapped are the names of the placeholders that map defines.
	Mapped map[string]bool
}

// Of returns what the configuration of the app http says with which a handler is provisioned.
func Of(ctx caddy.Context) *Config {
	inHTTP := func(m caddy.Module) bool { _, ok := m.(*caddyhttp.App); return ok }
	only := slices.ContainsFunc(ctx.Modules(), inHTTP) // else another app has routes, too
	c := &Config{Mapped: make(map[string]bool)}
	app, known := httpApp(ctx)
	if known {
		addMapped(c.Mapped, app)
	}
	c.Reads, c.Traced = !only || !known || reads(app), !known || hasTracing(app)
	return c
}

// httpApp returns the configuration of the http app, decoded. It is in a private field of Caddy's, for which
// there is no public accessor.
func httpApp(ctx caddy.Context) (app any, known bool) {
	cfg := reflect.Indirect(reflect.ValueOf(ctx).FieldByName("cfg"))
	if cfg.Kind() != reflect.Struct {
		return nil, false
	}
	apps := cfg.FieldByName("AppsRaw")
	if !apps.IsValid() || apps.Type() != reflect.TypeFor[caddy.ModuleMap]() {
		return nil, false
	}
	text := apps.MapIndex(reflect.ValueOf("http"))
	known = text.IsValid() && json.Unmarshal(text.Bytes(), &app) == nil
	return app, known
}

func hasTracing(part any) bool {
	switch part := part.(type) {
	case []any:
		return slices.ContainsFunc(part, hasTracing)
	case map[string]any:
		if part["handler"] == "tracing" {
			return true
		}
		for _, v := range part {
			if hasTracing(v) {
				return true
			}
		}
	}
	return false
}

func addMapped(names map[string]bool, part any) {
	switch part := part.(type) {
	case []any:
		for _, v := range part {
			addMapped(names, v)
		}
	case map[string]any:
		if list, _ := part["destinations"].([]any); part["handler"] == "map" {
			for _, v := range list {
				if name, ok := v.(string); ok {
					names[strings.Trim(name, "{}")] = true
				}
			}
		}
		for _, v := range part {
			addMapped(names, v)
		}
	}
}

// reads reports whether a part of the configuration may read a placeholder of rate_limit.
func reads(part any) bool {
	switch part := part.(type) {
	case string:
		return strings.Contains(part, own) || strings.Contains(part, "ph(") // an expression, which may put a name together
	case []any:
		return slices.ContainsFunc(part, reads)
	case map[string]any:
		if name, ok := part["handler"].(string); ok && !slices.Contains(plain, name) {
			return true
		}
		for name, v := range part {
			if strings.EqualFold(name, "template_file") || reads(name) || reads(v) { // file_server's browse has one
				return true
			}
		}
	}
	return false
}
