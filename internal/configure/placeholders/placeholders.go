// Package placeholders says which placeholders can have a value in this build, and what was
// probably meant by one that cannot.
package placeholders

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/option"
)

// Placeholders have no registry: Caddy's replacer knows the requests' own, the handlers
// set others, and other modules any. A name that none of these can have is a mistake, and
// always empty.

// Provided reports whether something in this build may give a placeholder a value.
func Provided(name string) bool {
	root, rest, dotted := strings.Cut(name, ".")
	if !dotted {
		return false // a variable of map, or a misspelled shorthand
	}
	switch root {
	case "env", "file":
		return true
	case "http":
		root, _, _ = strings.Cut(rest, ".")
	}
	if strings.HasPrefix(name, "http.request.body.") {
		return true // a field of the body
	}
	if slices.Contains(setByHandlers, root) && strings.HasPrefix(name, "http.") {
		names := strings.Count(rest, ".") // below the namespace
		return names > 0 && (root != "auth" || names > 1) || root == "error"
	}
	if _, known := sampleReplacer().Get(name); known {
		return true
	}
	return root != "request" && isThirdParty(root)
}

// setByHandlers are the namespaces below http whose placeholders are set while a request
// is handled.
var setByHandlers = []string{"vars", "regexp", "matchers", "url_pattern", "auth", "error", "reverse_proxy", "intercept", "response", "rate_limit"}

// sampleReplacer returns the replacer of a request, which knows the names of all
// placeholders that Caddy gives every request.
var sampleReplacer = sync.OnceValue(func() *caddy.Replacer {
	ctx := context.WithValue(context.Background(), http.LocalAddrContextKey, net.Addr(new(net.TCPAddr)))
	repl := caddy.NewReplacer()
	r := (&http.Request{Method: http.MethodGet, URL: new(url.URL), Header: http.Header{}}).WithContext(ctx)
	caddyhttp.PrepareRequest(r, repl, nil, new(caddyhttp.Server))
	return repl
})

// isThirdParty reports whether the ID of a module that is not Caddy's contains word: the
// placeholders of a module begin with its name.
func isThirdParty(word string) bool {
	return slices.ContainsFunc(caddy.Modules(), func(id string) bool {
		info, err := caddy.GetModule(id)
		return err == nil && strings.Contains(id, word) && !isStandard(info.New())
	})
}

func isStandard(m caddy.Module) bool {
	t := reflect.TypeOf(m)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.HasPrefix(t.PkgPath(), "github.com/caddyserver/caddy/v2")
}

// meant returns the placeholder that was probably meant by a name that nothing provides;
// empty: unknown.
func meant(name string) string {
	for prefix, right := range mistakes {
		if rest, ok := strings.CutPrefix(name, prefix); ok && (rest == "" || strings.HasSuffix(right, ".")) {
			return "{" + right + rest + "}"
		}
	}
	root, rest, dotted := strings.Cut(name, ".")
	if word := bareWords[separators.Replace(strings.ToLower(name))]; !dotted && word != "" {
		return "{" + word + "}"
	}
	root = strings.ToLower(root)
	best, least := "", 2+len(root)/8 // what is more than a letter or two apart is another word
	for _, known := range shorthands {
		word, family := strings.CutSuffix(known, ".")
		if d := option.Distance(root, word); family == dotted && d < least {
			best, least = "{"+known+rest+"}", d
		}
	}
	if best == "" && !dotted {
		best = ofWord(name)
	}
	if best != "" {
		return best
	}
	least = 4
	for _, known := range fullNames {
		if d := option.Distance(name, known); d < least {
			best, least = "{"+known+"}", d
		}
	}
	return best
}

// mistakes are names that people expect to exist, or the beginnings of names, with what
// they stand for here.
var mistakes = map[string]string{ //nolint:gosec // names, no credentials
	"http.request.remote.ip": "client_ip", "http.request.remote_ip": "client_ip", "http.request.client_ip": "client_ip", "http.request.ip": "client_ip",
	"remote_ip": "client_ip", "remoteip": "client_ip", "remote_addr": "client_ip", "real_ip": "client_ip", "ip": "client_ip",
	"http.request.headers.": "header.", "http.header.": "header.", "headers.": "header.",
	"http.request.query.": "query.", "http.query.": "query.", "http.request.cookies.": "cookie.", "http.cookie.": "cookie.",
	"request.header.": "header.", "request.headers.": "header.", "req.header.": "header.", "req.headers.": "header.", "request.remote.ip": "client_ip", "request.ip": "client_ip", "req.ip": "client_ip",
	"remote.ip": "client_ip", "client.ip": "client_ip", "source.ip": "client_ip", "tls.": "http.request.tls.", "request.tls.": "http.request.tls.", "tls_server_name": "http.request.tls.server_name", "sni": "http.request.tls.server_name",
	"jwt.": "http.auth.user.", "http.jwt.": "http.auth.user.", "token.": "http.auth.user.", "claims.": "http.auth.user.", "user.": "http.auth.user.", "auth.user.": "http.auth.user.",
}

// shorthands are the Caddyfile's shorthands that are of use in a key; those with a dot
// at the end are followed by a name.
var shorthands = []string{
	"client_ip", "host", "hostport", "method", "path", "dir", "file", "uri", "query", "scheme", "remote_host", "remote_port", "orig_path", "orig_uri", "orig_method",
	"tls_client_fingerprint", "tls_client_subject", "tls_client_serial", "header.", "cookie.", "query.", "body.", "path.", "labels.", "vars.", "re.", "rp.",
}

var fullNames = []string{
	"http.vars.client_ip", "http.request.host", "http.request.hostport", "http.request.method", "http.request.scheme", "http.request.proto", "http.request.remote.host",
	"http.request.remote.port", "http.request.uri", "http.request.uri.path", "http.request.uri.path.dir", "http.request.uri.path.file", "http.request.uri.query",
	"http.request.orig_uri", "http.request.orig_uri.path", "http.auth.user.id", "http.request.tls.server_name", "http.request.tls.client.fingerprint",
	"http.request.tls.client.subject",
}

// Advice returns what to write in place of a placeholder that nothing provides.
func Advice(name string) string {
	if strings.HasPrefix(name, "http.request.uri.path.") {
		return "write {path.0}, {path.1} and so on for a segment of the path, or {path}"
	}
	if right := meant(name); right != "" && right != "{"+name+"}" {
		return "write " + right
	}
	return "write a shorthand such as {client_ip}, or a full name such as {http.request.header.X-Account}"
}
