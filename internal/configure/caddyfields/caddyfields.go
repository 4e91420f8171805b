// Package caddyfields reads what Caddy keeps in fields that have no accessor, and options of its modules that are not
// imported because a Caddy may be built without them. With a Caddy of other fields, nothing is known. One field is
// written: see [WrapErrors].
package caddyfields

import (
	"encoding/json"
	"reflect"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// App returns the options of an app in the configuration that is loaded.
func App(ctx caddy.Context, name string) (options json.RawMessage, ok bool) {
	config := reflect.Indirect(reflect.ValueOf(ctx).FieldByName("cfg"))
	if config.Kind() != reflect.Struct {
		return nil, false
	}
	apps := config.FieldByName("AppsRaw")
	if !apps.IsValid() || apps.Type() != reflect.TypeFor[caddy.ModuleMap]() {
		return nil, false
	}
	if text := apps.MapIndex(reflect.ValueOf(name)); text.IsValid() {
		return text.Bytes(), true
	}
	return nil, false
}

// Site is the first address of the site, or the name of the named route, in which a directive is written.
type Site struct {
	Text string // as written
	File string // empty: unknown
	Line int    // in the file, from 1
}

// SiteOf returns the site of a directive; its zero value: it is unknown.
func SiteOf(h httpcaddyfile.Helper) Site {
	block := reflect.ValueOf(h).FieldByName("parentBlock")
	if !block.IsValid() || block.Type() != reflect.TypeFor[caddyfile.ServerBlock]() {
		return Site{}
	}
	keys := block.FieldByName("Keys")
	if keys.Len() == 0 {
		return Site{}
	}
	at := keys.Index(0)
	return Site{at.FieldByName("Text").String(), at.FieldByName("File").String(), int(at.FieldByName("Line").Int())}
}

// TrustedProxies reports whether a provisioned server has trusted proxies, and returns their ranges if they are
// constant.
func TrustedProxies(s *caddyhttp.Server) (has bool, ranges []string) {
	source := reflect.ValueOf(s).Elem().FieldByName("trustedProxies")
	if !source.IsValid() || source.Kind() != reflect.Interface || source.IsNil() {
		return false, nil
	}
	constant := source.Elem()
	if constant.Type() != reflect.TypeFor[*caddyhttp.StaticIPRange]() {
		return true, nil
	}
	list := constant.Elem().FieldByName("Ranges")
	for i := range list.Len() {
		ranges = append(ranges, list.Index(i).String())
	}
	return true, ranges
}

// WrapErrors puts a handler around the error routes of a server that were compiled already, once for each type of
// handler: those of named routes are provisioned after them. A Caddy of other fields keeps its routes as they are.
func WrapErrors(s *caddyhttp.Server, wrap func(next caddyhttp.Handler) caddyhttp.Handler) {
	field := reflect.ValueOf(s).Elem().FieldByName("errorHandlerChain")
	if !field.IsValid() || field.Type() != reflect.TypeFor[caddyhttp.Handler]() || field.IsNil() {
		return
	}
	chain := reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
	next, _ := chain.Interface().(caddyhttp.Handler)
	if wrapped := wrap(next); reflect.TypeOf(wrapped) != reflect.TypeOf(next) {
		chain.Set(reflect.ValueOf(wrapped))
	}
}

// Responses returns what handles responses within a handler, such as the handle_response of
// reverse_proxy, which forward_auth has, or of intercept.
func Responses(h caddyhttp.MiddlewareHandler) []caddyhttp.ResponseHandler {
	return option[[]caddyhttp.ResponseHandler](h, "HandleResponse")
}

// Map returns the options source and destinations of map.
func Map(h caddyhttp.MiddlewareHandler) (source string, destinations []string) {
	return option[string](h, "Source"), option[[]string](h, "Destinations")
}

// PassesOn reports whether file_server leaves files that do not exist to the next handler.
func PassesOn(h caddyhttp.MiddlewareHandler) bool { return option[bool](h, "PassThru") }

// option returns an option of a handler by the name of its field; its zero value: the handler has none.
func option[T any](h caddyhttp.MiddlewareHandler, name string) (value T) {
	v := reflect.Indirect(reflect.ValueOf(h))
	if v.Kind() != reflect.Struct {
		return value
	}
	if field := v.FieldByName(name); field.IsValid() && field.CanInterface() {
		value, _ = field.Interface().(T)
	}
	return value
}
