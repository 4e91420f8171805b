package routes

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/caddyfields"
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
		if caddyfields.DropsHeader(w.server, name) || len(values) > 1 && strings.ContainsAny(name, "_.") {
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
