package key

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// spelledKeys are keys of paths and hosts.
var spelledKeys = []string{
	"{http.request.uri.path}", "{http.request.method}{http.request.uri.path}", "{http.request.method} {http.request.uri.path}",
	"{http.request.host}{http.request.uri.path}", "v1:{http.request.host}|{http.request.uri.path}#x", "{http.request.hostport} {http.request.orig_uri.path}",
	"{http.request.uri.path.0}/{http.request.uri.path.1}", "x{http.request.uri.path.file}y", "{http.request.uri.path.dir}", "{http.request.uri.path.file.base}",
	"{http.request.uri.path.file.ext}", "{http.request.orig_uri.path.2}", "{http.request.host.labels.0}.{http.request.host}", "{http.request.header.host}",
	"{http.request.header.A}{http.request.uri.path}", "{http.request.uri.path}{http.request.method}", "{http.vars.client_ip}{http.request.uri.path}",
	"{http.request.uri.path.0}{http.request.uri.path.1}", "{http.request.uri.path}-{http.request.host}",
}

// requestOf returns a request with this path and host.
func requestOf(t *testing.T, method, path, host string) *http.Request {
	r := &http.Request{Method: method, URL: &url.URL{Path: path}, Host: host, Header: http.Header{"A": {"a/B"}}, RemoteAddr: "192.0.2.1:4711"}
	return caddyhttp.PrepareRequest(r.WithContext(t.Context()), caddy.NewReplacer(), nil, new(caddyhttp.Server))
}

// FuzzSpelling compares the form in which paths and hosts are counted with Caddy's
// matchers, and the part that a request counts by with the same part as somebody writes
// it for a lookup.
func FuzzSpelling(f *testing.F) {
	for _, p := range []string{
		"/", "", "/a/b.tar.gz", "//A/./b/", "/a/../B", "/%41", "/a b", "/\xc4\xe3", "/\xc4\xe3/É", "/.", "/..", "/a/.", "/a/..", "/a//", "a/b", "*", "/a.b/", "/.a", "/İK", "/a-b",
	} {
		for _, h := range []string{"example.com", "EXAMPLE.com.", "a.B:80", "a.:80", "[::1]", "[::1]:80", "::1", "10.0.0.1:1", "", ".", ":80", "[", "a:b:c", "x..", "a/b"} {
			f.Add(http.MethodGet, p, h)
		}
	}
	f.Add(http.MethodConnect, "", "example.com:443")
	f.Fuzz(func(t *testing.T, method, path, host string) {
		if foldPath(foldPath(path)) != foldPath(path) {
			t.Errorf("%q is %q, and that %q", path, foldPath(path), foldPath(foldPath(path)))
		}
		if want := strings.ToLower(caddyhttp.NormalizedPath(path, true)); utf8.ValidString(path) && foldPath(path) != want {
			t.Errorf("%q is %q, want %q", path, foldPath(path), want)
		}
		r := requestOf(t, method, path, host)
		for _, key := range spelledKeys {
			text, err := Parse(key)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := text.append(nil, r)
			counted := string(b)
			// A host that no HTTP/1.1 request can have may look like the beginning of the
			// path, and a method may not be one.
			if strings.ContainsAny(method+host, " /|#?@:") && !text.single() {
				continue
			}
			if got := text.folded(counted); got != counted {
				t.Errorf("%s counts by %q, which is looked up as %q", key, counted, got)
			}
		}
	})
}

// TestFolded writes parts as somebody may write them.
func TestFolded(t *testing.T) {
	for _, c := range []struct{ key, text, want string }{
		{"{http.request.uri.path}", "/Files//./One/", "/files/one/"},
		{"{http.request.uri.path.0}", "Files", "files"},
		{"{http.request.host}", "[::1]", "::1"},
		{"{http.request.hostport}", "A.b.:80", "a.b:80"},
		{"{http.request.tls.server_name}", "A.b.", "a.b"},
		{"{http.request.host.labels.1}", "Example", "example"},
		{"{http.request.method}{http.request.uri.path}", "GET/A//b", "GET/a/b"},
		{"v1:{http.request.host}|{http.request.uri.path}#X", "v1:A.B.|/C//D#X", "v1:a.b|/c/d#X"},
		{"v1:{http.request.host}|{http.request.uri.path}#X", "v2:A.B.|/C//D#X", "v2:A.B.|/C//D#X"},
		{"v1:{http.request.host}|{http.request.uri.path}#X", "v1:A.B.|/C//D", "v1:A.B.|/C//D"},
		{"{http.request.header.A}{http.request.uri.path}", "A/B", "A/B"},
		{"{http.request.uri.path}{http.request.method}", "/a/BGET", "/a/BGET"},
		{"{http.request.uri.path}-{http.request.host}", "/a-B-c", "/a-B-c"},
		{"{http.request.header.A}", "A//B", "A//B"},
		{"All//", "All//", "All//"},
		{"{http.request.uri.path.1}x", "AX", "AX"},
		{"{http.request.uri.path.1}x", "Ax", "ax"},
	} {
		text, err := Parse(c.key)
		if err != nil {
			t.Fatal(err)
		}
		if got := text.folded(c.text); got != c.want {
			t.Errorf("%s: %q is %q, want %q", c.key, c.text, got, c.want)
		}
	}
}

// TestCountedForms checks the form in which unusual paths and hosts are counted.
func TestCountedForms(t *testing.T) {
	for _, c := range []struct{ key, method, path, host, want string }{
		{"{http.request.uri.path}", "GET", "/A\xc4\xe3", "a", "/a\xc4\xe3"},
		{"{http.request.uri.path}", "GET", "/A\xba\xc3", "a", "/a\xba\xc3"},
		{"{http.request.uri.path}", "GET", "/\xef\xbf\xbdA\xff", "a", "/\xef\xbf\xbda\xff"},
		{"{http.request.uri.path}", "GET", "", "a", "/"},
		{"{http.request.orig_uri.path}", "GET", "", "a", "/"},
		{"{http.request.uri.path}", "CONNECT", "", "a:443", ""},
		{"{http.request.uri.path}", "OPTIONS", "*", "a", "*"},
		{"{http.request.host}", "GET", "/", "2001:DB8::1", "2001:db8::1"},
		{"{http.request.host}", "GET", "/", "[2001:DB8::1]:80", "2001:db8::1"},
		{"{http.request.hostport}", "GET", "/", "2001:DB8::1", "2001:db8::1"},
		{"{http.request.hostport}", "GET", "/", "A.b.:80", "a.b:80"},
		{"{http.request.host}", "GET", "/", "", ""},
	} {
		text, err := Parse(c.key)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := text.value(requestOf(t, c.method, c.path, c.host)); got != c.want {
			t.Errorf("%s of %s %q at %q: %q, want %q", c.key, c.method, c.path, c.host, got, c.want)
		}
	}
}

// TestSpelledParts compares the parts of paths and hosts with Caddy's own placeholders,
// where there is only one spelling.
func TestSpelledParts(t *testing.T) {
	for _, path := range []string{"/", "/a", "/a/", "/a/b.tar.gz", "/a/b/c/", "/.a", "/.well-known/x", "/a.b/c"} {
		for _, host := range []string{"example.com", "a.b.example.com:8080", "localhost", "10.0.0.1", "[::1]:80"} {
			r := requestOf(t, http.MethodGet, path, host)
			repl := Replacer(r)
			for _, name := range []string{
				"uri.path", "uri.path.dir", "uri.path.file", "uri.path.file.base", "uri.path.file.ext", "uri.path.0", "uri.path.1", "uri.path.3", "orig_uri.path",
				"orig_uri.path.dir", "orig_uri.path.file", "orig_uri.path.1", "host", "hostport", "host.labels.0", "host.labels.1", "host.labels.2", "host.labels.9",
			} {
				name = "http.request." + name
				p, ok := spelledPiece(name)
				got, _ := p.value(r)
				if want, _ := repl.GetString(name); !ok || got != want {
					t.Errorf("%s of %s%s: %q, %v, want %q", name, host, path, got, ok, want)
				}
			}
		}
	}
	for _, name := range []string{
		"http.request.uri.path_escaped", "http.request.uri.path.x", "http.request.uri.path.-1", "http.request.uri.path0", "http.request.orig_uri.path.file_escaped",
		"http.request.host.labels.x", "http.request.uri", "http.request.header.Hostname",
	} {
		if _, ok := spelledPiece(name); ok {
			t.Errorf("%s is a path or a host", name)
		}
	}
}

// TestCanonicalPathsTakeNoMemory checks that a key of a path allocates nothing for a path
// in the form that is counted.
func TestCanonicalPathsTakeNoMemory(t *testing.T) {
	for _, key := range spelledKeys[:5] {
		p, err := NewPlan([]string{key}, func(s string) string { return s }, "", "", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := requestOf(t, http.MethodGet, "/api/v1/items/17", "example.com")
		var k Encoded
		k.Reset()
		if n := testing.AllocsPerRun(100, func() {
			k.Reset()
			p.Encode(&k, r.WithContext(context.Background()))
		}); n > 1 { // WithContext
			t.Errorf("%s: %v allocations, want none", key, n-1)
		}
	}
}
