package key

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRepeatedValues compares what a key counts of headers, cookies and parameters, and what it
// leaves in the request if it counts by the first.
func TestRepeatedValues(t *testing.T) {
	const (
		header = "{http.request.header.A}"
		auth   = "{http.request.header.Authorization}"
		cookie = "{http.request.cookie.a}"
		query  = "{http.request.uri.query.a}"
	)
	for _, c := range []struct {
		key, name string
		values    []string // of the header, or the query
		want      string
		more      bool
		left      string
	}{
		{header, "A", nil, "", false, ""},
		{header, "A", []string{" \tx y "}, "x y", false, " \tx y "},
		{header, "A", []string{"", "x"}, "", true, ""},
		{header, "A", []string{"x", "x"}, "x", true, "x"},
		{header, "A", []string{"x, y"}, "x, y", false, "x, y"},
		{auth, "Authorization", []string{"bearer  AbC"}, "Bearer AbC", false, "bearer  AbC"},
		{auth, "Authorization", []string{"BASIC AbC="}, "Basic AbA=", false, "BASIC AbC="},
		{auth, "Authorization", []string{"Basic dTpwdw==AbC"}, "Basic dTpwdw==", false, "Basic dTpwdw==AbC"},
		{auth, "Authorization", []string{"Basic dXNlcjpwYXNzA!"}, "Basic dXNlcjpwYXNz", false, "Basic dXNlcjpwYXNzA!"},
		{auth, "Authorization", []string{"Basic d=T=pw"}, "Basic dTpw", false, "Basic d=T=pw"},
		{auth, "Authorization", []string{"Bearer\t \tAbC"}, "Bearer AbC", false, "Bearer\t \tAbC"},
		{auth, "Authorization", []string{"bearer\tAbC"}, "Bearer AbC", false, "bearer\tAbC"},
		{auth, "Authorization", []string{"AbC"}, "AbC", false, "AbC"},
		{auth, "Authorization", []string{"éa AbC"}, "éa AbC", false, "éa AbC"},
		{cookie, "Cookie", []string{"b=1; a=x%20y; c"}, "x y", false, "b=1; a=x%20y; c"},
		{cookie, "Cookie", []string{"b=1; A=x;a=y; c=2"}, "x", true, "b=1; A=x; c=2"},
		{cookie, "Cookie", []string{"b=1", "a=x", "a=y"}, "x", true, "b=1; a=x"},
		{cookie, "Cookie", []string{`a="x\"\171+"`}, `x"y `, false, `a="x\"\171+"`},
		{cookie, "Cookie", []string{`a=%`}, `%`, false, `a=%`},
		{cookie, "Cookie", []string{`a=%4`}, `%4`, false, `a=%4`},
		{cookie, "Cookie", []string{`a="\"`}, `\`, false, `a="\"`},
		{cookie, "Cookie", []string{`a="`}, `"`, false, `a="`},
		{cookie, "Cookie", []string{"b=1 a=x"}, "x", false, "b=1 a=x"},
		{cookie, "Cookie", []string{"b=1\ta = x; a=y"}, "x", true, "b=1; a = x"},
		{cookie, "Cookie", []string{"a=x c  A =y d a=z"}, "x", true, "a=x c"},
		{cookie, "Cookie", []string{"ba=1 c a=2"}, "2", false, "ba=1 c a=2"},
		{cookie, "Cookie", []string{" a=x"}, "x", false, " a=x"},
		{cookie, "Cookie", []string{`a="x y" z`}, "x y", false, `a="x y" z`},
		{cookie, "Cookie", []string{"a"}, "", false, "a"},
		{cookie, "Cookie", []string{"a; a=x"}, "", true, "a"},
		{query, "?", []string{"b=1&a=x+y&c"}, "x y", false, "b=1&a=x+y&c"},
		{query, "?", []string{"b=1&%61=x&a=y&c=%zz"}, "x", true, "b=1&%61=x&c=%zz"},
		{query, "?", []string{"a=x&%20a=y"}, "x", true, "a=x"},
		{query, "?", []string{"a=x&[a]=y"}, "x", true, "a=x"},
		{query, "?", []string{"a%00b=x&a=y"}, "x", true, "a%00b=x"},
		{query, "?", []string{"a[]=x"}, "", false, "a[]=x"},
		{cookie, "Cookie", []string{`a="xyZ`}, "xy", false, `a="xyZ`},
		{query, "?", []string{"b;a=x&a=y"}, "x", true, "b&a=x"},
		{query, "?", []string{"a=x#7"}, "x", false, "a=x#7"},
		{query, "?", []string{"a=x#&a=y"}, "x", true, "a=x"},
		{query, "?", []string{"a=x%2"}, "x%2", false, "a=x%2"},
		{query, "?", []string{"A=x"}, "", false, "A=x"},
		{query, "?", []string{"a=x&a[]=y&b=1"}, "x", true, "a=x&b=1"},
		{query, "?", []string{"a[]=y&a=x"}, "x", true, "a=x"},
		{query, "?", []string{"a=x&a%5B0%5D=y"}, "x", true, "a=x"},
		{query, "?", []string{"a=x&a[b][c]=y"}, "x", true, "a=x"},
		{query, "?", []string{"a=x&a_b=y&ab=1"}, "x", false, "a=x&a_b=y&ab=1"},
		{"{http.request.uri.query.u[e]}", "?", []string{"u%5Be%5D=x&u[f]=y"}, "x", false, "u%5Be%5D=x&u[f]=y"},
		{"{http.request.uri.query.u[e]}", "?", []string{"u[e]=x&u%5Be%5D=y"}, "x", true, "u[e]=x"},
		{"{http.request.uri.query.u[e]}", "?", []string{"u[e]=x&u[e][]=y"}, "x", true, "u[e]=x"},
		{"{http.request.uri.query.u[]}", "?", []string{"u[]=x&u[0]=y"}, "x", true, "u[]=x"},
		{cookie, "Cookie", []string{"a=x; a[]=y"}, "x", true, "a=x"},
		{cookie, "Cookie", []string{"A%5B0%5D=y; a=x"}, "x", true, "a=x"},
		{cookie, "Cookie", []string{"a=x; b=1 a[]=y"}, "x", true, "a=x; b=1"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/p", nil)
		if c.name == "?" {
			r = httptest.NewRequest(http.MethodGet, "/p?"+c.values[0], nil)
		} else {
			r.Header[c.name] = c.values
		}
		p, err := NewPlan([]string{c.key}, func(s string) string { return s }, MissingShare, repeatedFirst, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var k Encoded
		if _, more := p.Encode(&k, r); more != c.more || p.Describe(r)[0] != c.want {
			t.Errorf("%s of %q: %q, more %v, want %q, %v", c.key, c.values, p.Describe(r), more, c.want, c.more)
		}
		p.KeepFirst(r)
		left := r.Header.Get(c.name)
		if c.name == "?" {
			left = r.URL.RawQuery
			if r.RequestURI != "/p?"+left {
				t.Errorf("RequestURI %s, want /p?%s", r.RequestURI, left)
			}
		}
		if _, more := p.Encode(&k, r); more || left != c.left {
			t.Errorf("%s of %q leaves %q, more %v, want %q", c.key, c.values, left, more, c.left)
		}
	}
}

// BenchmarkSpacedCookie reads a cookie beside one of nothing but blanks, or of pairs without the
// name: the time grows as the size does.
func BenchmarkSpacedCookie(b *testing.B) {
	for _, filler := range []string{" ", "x = ", "a =", " ="} {
		for _, size := range []int{1 << 10, 1 << 20} {
			text := []string{"x=" + strings.Repeat(filler, size/len(filler)) + "; id=1"}
			b.Run(fmt.Sprintf("%q/%d", filler, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					if v, _ := cookies.first(text, "id"); v != "1" {
						b.Fatal(v)
					}
				}
			})
		}
	}
}

// TestUnquote decodes quoted cookies: whatever a backslash precedes, and octal numbers.
func TestUnquote(t *testing.T) {
	for s, want := range map[string]string{
		`a`: "a", `\"a\"`: `"a"`, `\\`: `\`, `\`: `\`, `a\`: `a\`, `\042\054\073`: `",;`, `\101\177\377\000`: "A\x7f\xff\x00",
		`\400`: "400", `\08x`: "08x", `\12`: "12", `\1/1`: "1/1", `\:11`: ":11",
	} {
		if got := unquote(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	for s, want := range map[string]string{`%41%2b+b`: "A+ b", `%`: "%", `%4`: "%4", `%4g%zz`: "%4g%zz", `%C3%A9`: "\u00e9"} {
		if got := unescape(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

// TestLoosely compares names that some programs take for each other.
func TestLoosely(t *testing.T) {
	for name, want := range map[string]string{
		"api_key": "api_key", "api.key": "api_key", "[api_key]": "api_key", "api_key\x00x": "api_key", "é.": "é_",
		"ids[]": "ids[", "": "",
	} {
		if got := loosely(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := loosely(" api key"); got != "api_key" {
		t.Errorf("with spaces: %q", got)
	}
}
