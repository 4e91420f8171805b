package warnings

import (
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// TestWrongPath checks patterns of paths that match something else than they look like, and those
// that are like them and right.
func TestWrongPath(t *testing.T) {
	mapped := map[string]bool{"tenant": true}
	for pattern, wrong := range map[string]bool{
		"/api/*,": true, "/api/*,/v1/*": true, "/api/*;": true, "/api|/v1": true, "/api/*, /v1/*": true, "/a,*": true, "api": true, "api/*": true,
		"https://example.com/api/*": true, "example.com/api/*": true, "^/api/": true, "/api/.*$": true, `/users/\d+`: true, "/users/[0-9]+": true, "/(api|v1)/*": true,
		"/files/.+": true, "/search?q": false, "/users/{id}": true, "": true, "/a /b": true,
		"/api/*": false, "*": false, "/": false, "*.php": false, "/*.*": false, "/.*": false, "/favicon.*": false, "*/admin/*": false, "/a,b": false,
		"/v1/models/x:generate": false, "/users/*/posts": false, "/{tenant}/*": false, "{http.vars.root}/*": false, "/[a-z]*/x": false, "/a%2Fb": false,
		"/wiki/Foo_(bar)": false, "/a?c": false, "/~user/": false, "//a": false, "/a+b/": false, "/{http.request.host}/*": false, "/my file": false,
	} {
		if got := wrongPath(pattern, mapped); (got != "") != wrong {
			t.Errorf("path %q: %q, wrong %v", pattern, got, wrong)
		}
	}
	for pattern, wrong := range map[string]bool{
		"a.com,": true, "https://a.com": true, "a.com/x": true, "a.com:8080": true, "a.com,b.com": true,
		"a.com": false, "*.a.com": false, "::1": false, "[::1]": false, "{env.HOST}": false, "localhost": false,
	} {
		if got := wrongHost(pattern); (got != "") != wrong {
			t.Errorf("host %q: %q, wrong %v", pattern, got, wrong)
		}
	}
	for pattern, wrong := range map[string]bool{"GET,": true, "GET,POST": true, "GET|POST": true, "GET": false, "PROPFIND": false, "M-SEARCH": false} {
		if got := wrongList(pattern); (got != "") != wrong {
			t.Errorf("method %q: %q, wrong %v", pattern, got, wrong)
		}
	}
	for pattern, wrong := range map[string]bool{"/api/*": true, "^/api/*$": true, "^/api/.*$": false, "^/api(/.*)?$": false, `\.php$`: false} {
		if got := wrongRegexp(pattern); (got != "") != wrong {
			t.Errorf("path_regexp %q: %q, wrong %v", pattern, got, wrong)
		}
	}
	for value, wrong := range map[string]bool{"1&b=2": true, "1,b=2": true, "1": false, "*": false, "1,2": false, "": false} {
		if got := wrongQuery([]string{value}); (got != "") != wrong {
			t.Errorf("query a=%q: %q, wrong %v", value, got, wrong)
		}
	}
}

// TestWrongURLPattern checks patterns that do not match the URL that they look like, as Caddy's matcher says,
// and those that do.
func TestWrongURLPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, base, url string
		wrong              bool
	}{
		{"books/:id", "", "http://a.com/books/1", true},
		{"a.com/books/:id", "", "http://a.com/books/1", true},
		{"^/books/(\\d+)$", "", "http://a.com/books/1", true},
		{"/books/{id}", "", "http://a.com/books/1", true},
		{"/books/{id}/pages", "", "http://a.com/books/1/pages", true},
		{"/books#:part", "", "http://a.com/books", true},
		{"/books/:id", "", "http://a.com/books/1", false},
		{"/books/:id(\\d+)", "", "http://a.com/books/1", false},
		{"/books{/old}?", "", "http://a.com/books", false},
		{"/books/{old}?", "", "http://a.com/books/", false},
		{"https://a.com/books/*", "", "https://a.com/books/1", false},
		{"books/:id", "http://a.com", "http://a.com/books/1", false},
		{"/books?q=:q", "", "http://a.com/books?q=1", false},
		{"/*", "", "http://a.com/books", false},
	} {
		m := &caddyhttp.MatchURLPattern{Pattern: c.pattern, BaseURL: c.base}
		match := false
		if err := m.Provision(caddy.Context{}); err == nil {
			match = m.Match(httptest.NewRequest("GET", c.url, nil))
		}
		if got := wrongURLPattern(c.pattern, c.base != ""); (got != "") != c.wrong || match == c.wrong {
			t.Errorf("url_pattern %q: %q, and it matches %s: %v; wrong %v", c.pattern, got, c.url, match, c.wrong)
		}
	}
}
