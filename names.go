package diana

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/rules/sources"
)

func init() {
	caddy.RegisterModule(new(dianaHandler))
	caddy.RegisterModule(new(dianaApp))
	// Of those that are ordered before the same directive, the first comes first.
	httpcaddyfile.RegisterHandlerDirective("rate_limit_quota", parseQuota)
	httpcaddyfile.RegisterDirectiveOrder("rate_limit_quota", httpcaddyfile.Before, "basic_auth")
	registerDirective(names.Always)
	httpcaddyfile.RegisterGlobalOption(names.Always, parseGlobalOption)
	names.Share(func() {
		registerDirective(names.Shared)
		caddy.RegisterModule(new(Handler))
		caddy.RegisterModule(new(App))
		httpcaddyfile.RegisterGlobalOption(names.Shared, parseGlobalOption)
	})
	option.AddPlace("the global option "+names.Usual(), new(App).options().Has)
	option.AddPlace("the block of rules http", httpOptions(new(sources.HTTP)).Has)
	option.AddPlace(inSite(), new(directive).blockOptions().Has)
}

// registerDirective registers the directive under a name. RegisterHandlerDirective would consume the matcher,
// from which the automatic name of a one-line zone is derived too.
func registerDirective(name string) {
	httpcaddyfile.RegisterDirective(name, parseDirective)
	httpcaddyfile.RegisterDirectiveOrder(name, httpcaddyfile.Before, "basic_auth")
}

// dianaHandler is the handler rate_limit under its other name, for a binary in which another plugin has that one.
type dianaHandler struct{ Handler }

// CaddyModule returns the Caddy module information.
func (*dianaHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.diana", New: func() caddy.Module { return new(Handler) }}
}

// dianaApp is the app rate_limit under its other name. A configuration has one of them.
type dianaApp struct{ App }

// CaddyModule returns the Caddy module information.
func (*dianaApp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "diana", New: func() caddy.Module { return new(App) }}
}

// inSite is the place of the options of a handler.
func inSite() string { return "a site's " + names.Usual() }
