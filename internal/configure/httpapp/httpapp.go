// Package httpapp looks through the configuration of the app http: for readers of placeholders, for map and
// for tracing.
package httpapp

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/caddyfields"
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
	c := &Config{Mapped: make(map[string]bool)}
	var app any
	if text, ok := caddyfields.App(ctx, "http"); !ok || json.Unmarshal(text, &app) != nil {
		c.Reads, c.Traced = true, true
	} else if c.look(app); !slices.ContainsFunc(ctx.Modules(), inHTTP) { // another app has routes, too
		c.Reads = true
	}
	return c
}

// look notes what a part of the configuration says.
func (c *Config) look(part any) {
	switch part := part.(type) {
	case string:
		c.Reads = c.Reads || strings.Contains(part, own) || strings.Contains(part, "ph(") // an expression, which may put a name together
	case []any:
		for _, v := range part {
			c.look(v)
		}
	case map[string]any:
		if name, ok := part["handler"].(string); ok {
			c.handler(name, part)
		}
		for name, v := range part {
			c.Reads = c.Reads || strings.EqualFold(name, "template_file") // file_server's browse has one
			c.look(name)
			c.look(v)
		}
	}
}

// handler notes what a handler is.
func (c *Config) handler(name string, options map[string]any) {
	c.Reads = c.Reads || !slices.Contains(plain, name)
	c.Traced = c.Traced || name == "tracing"
	if list, _ := options["destinations"].([]any); name == "map" {
		for _, v := range list {
			if name, ok := v.(string); ok {
				c.Mapped[strings.Trim(name, "{}")] = true
			}
		}
	}
}
