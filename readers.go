package diana

import (
	"bytes"
	"reflect"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Placeholders that nobody reads cost nothing, if that can be told: they are
// not shown when the HTTP app's configuration names none of them and all that
// it is made of takes placeholders only from there.

// unread says that nobody can read the placeholders of a handler that is
// provisioned in ctx. In doubt somebody can. It is the same for all handlers of a
// configuration, which is looked through once.
func (a *App) unread(ctx caddy.Context) bool {
	config := httpConfig(ctx)
	if len(config) == 0 {
		return false
	}
	if a.unreadable == nil {
		none := unreadIn(config)
		a.unreadable = &none
	}
	return *a.unreadable
}

func unreadIn(config []byte) bool {
	if bytes.Contains(config, []byte("rate_limit.")) {
		return false
	}
	// Templates name placeholders, too, and are files.
	for _, word := range []string{`"templates"`, `"browse"`, `"ph(`, `placeholder`} {
		if bytes.Contains(config, []byte(word)) {
			return false
		}
	}
	for _, id := range caddy.Modules() {
		m, err := caddy.GetModule(id)
		if err != nil || bytes.Contains(config, []byte(`"`+m.ID.Name()+`"`)) && others(m) {
			return false // it may read whatever it likes
		}
	}
	return true
}

// others says that a module may read what stands in no configuration: that it
// is neither Caddy's own nor a part of ours.
func others(m caddy.ModuleInfo) bool {
	id := string(m.ID)
	if id == "rate_limit" || strings.HasSuffix(id, ".rate_limit") || strings.Contains(id, ".rate_limit.") {
		return false
	}
	t := reflect.TypeOf(m.New())
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return !strings.HasPrefix(t.PkgPath()+"/", reflect.TypeFor[caddy.Config]().PkgPath()+"/")
}

// httpConfig is the configuration of the HTTP app that ctx is of, while it is
// being loaded, else nil. Caddy does not show it; if a later one keeps it
// elsewhere, nil is all that comes of this.
func httpConfig(ctx caddy.Context) []byte {
	within := false
	for _, m := range ctx.Modules() {
		_, is := m.(*caddyhttp.App)
		within = within || is
	}
	if !within {
		return nil
	}
	cfg := reflect.Indirect(reflect.ValueOf(ctx).FieldByName("cfg"))
	if cfg.Kind() != reflect.Struct {
		return nil
	}
	apps := cfg.FieldByName("AppsRaw")
	if !apps.IsValid() || apps.Type() != reflect.TypeFor[caddy.ModuleMap]() {
		return nil
	}
	if raw := apps.MapIndex(reflect.ValueOf("http")); raw.IsValid() {
		return raw.Bytes()
	}
	return nil
}
