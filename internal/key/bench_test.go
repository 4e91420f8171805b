package key

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// BenchmarkEncode measures the key of a request, without its hash.
func BenchmarkEncode(b *testing.B) {
	for _, c := range []struct {
		name, path string
		key        string
	}{
		{"client_ip", "/", "{http.vars.client_ip}"},
		{"header", "/", "{http.request.header.A}"},
		{"cookie", "/", "{http.request.cookie.a}"},
		{"query", "/", "{http.request.uri.query.a}"},
		{"path", "/api/v1/items/17", "{http.request.uri.path}"},
		{"path/upper", "/API/v1/items/17", "{http.request.uri.path}"},
		{"path/spelled", "/api//v1/./items/17", "{http.request.uri.path}"},
		{"path.1", "/api/v1/items/17", "{http.request.uri.path.1}"},
		{"host", "/", "{http.request.host}"},
		{"method+path", "/api/v1/items/17", "{http.request.method}{http.request.uri.path}"},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, err := NewPlan([]string{c.key}, func(s string) string { return s }, "", "", nil, nil)
			if err != nil {
				b.Fatal(err)
			}
			r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: c.path, RawQuery: "b=1&a=x"}, Host: "example.com:8080", Header: http.Header{"A": {"account-17"}, "Cookie": {"b=1; a=x"}}, RemoteAddr: "192.0.2.1:4711"}
			r = caddyhttp.PrepareRequest(r.WithContext(b.Context()), caddy.NewReplacer(), nil, new(caddyhttp.Server))
			var k Encoded
			b.ReportAllocs()
			for b.Loop() {
				k.Reset()
				p.Encode(&k, r)
			}
		})
	}
}
