package routes

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// enter prepares a request as a server does before its routes. It returns an error for a request that
// does not reach them.
func (w *Way) enter(r *http.Request) error {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	switch strict := w.server.StrictSNIHost; {
	case len(r.Method) > 32:
		return caddyhttp.HandlerError{StatusCode: http.StatusMethodNotAllowed}
	case !validHost(r.Host), host != "" && strings.Trim(host, ".") == "":
		return caddyhttp.HandlerError{StatusCode: http.StatusBadRequest}
	case strict != nil && *strict && r.TLS != nil && !strings.EqualFold(r.TLS.ServerName, host):
		return caddyhttp.Error(http.StatusMisdirectedRequest, fmt.Errorf("host %q is not that of the connection, %q", host, r.TLS.ServerName))
	}
	for name, values := range r.Header {
		if !w.keeps(name, len(values)) {
			delete(r.Header, name)
		}
	}
	return nil
}

// validHost reports whether a host has only the characters of RFC 3986.
func validHost(host string) bool {
	return !strings.ContainsFunc(host, func(c rune) bool {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		return !letter && !strings.ContainsRune("!$%&'()*+,-.:;=[]_~", c)
	})
}

// keeps reports whether the server keeps a header. Names with _ or . are dropped unless they are
// expected, and those that are expected have one value and drop their spelling with -.
func (w *Way) keeps(name string, values int) bool {
	score, dot := strings.Contains(name, "_"), strings.Contains(name, ".")
	under, dotted := w.server.ExpectedUnderscoreHeaders, w.server.ExpectedDotHeaders
	switch {
	case score && dot:
		return values == 1 && (expected(exact(under), name, "") || expected(exact(dotted), name, ""))
	case score:
		return values == 1 && expected(under, name, "")
	case dot:
		return values == 1 && expected(dotted, name, "")
	}
	return !expected(under, name, "_") && !expected(dotted, name, ".")
}

// expected reports whether a list of names has one: with each separator as - unless it is empty.
// Those that end with * are beginnings.
func expected(list []string, name, separator string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		begin, glob := strings.CutSuffix(entry, "*")
		if separator != "" {
			begin = strings.ReplaceAll(begin, separator, "-")
		}
		begin = http.CanonicalHeaderKey(begin)
		return name == begin || glob && strings.HasPrefix(name, begin)
	})
}

// exact returns the names of a list that are no beginnings.
func exact(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(entry string) bool { return strings.HasSuffix(entry, "*") })
}
