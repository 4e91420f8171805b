package caddyfields

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// DropsHeader reports whether a server drops a header before any handler sees it, as a back end may take it for
// another: with _ or . unless the server expects it, and of those that it expects the spelling with -.
func DropsHeader(s *caddyhttp.Server, name string) bool {
	name = http.CanonicalHeaderKey(name)
	score, dot := strings.Contains(name, "_"), strings.Contains(name, ".")
	under, dotted := s.ExpectedUnderscoreHeaders, s.ExpectedDotHeaders
	switch {
	case score && dot:
		return !expected(exact(under), name, "") && !expected(exact(dotted), name, "")
	case score:
		return !expected(under, name, "")
	case dot:
		return !expected(dotted, name, "")
	}
	return expected(under, name, "_") || expected(dotted, name, ".")
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
