package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
)

// request returns a POST request with a body of unknown length.
func request(kind, text string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader(text)))
	r.Header.Set("Content-Type", kind)
	return r
}

// field returns the field of a request, and the body that is handed on.
func field(t testing.TB, r *http.Request, name string) (value, rest string) {
	t.Helper()
	ReadFields(httptest.NewRecorder(), r, Max, false)
	value = Field(r, name)
	all, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return value, string(all)
}

// TestFields lists spellings of bodies with the value of their field.
func TestFields(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	for _, c := range []struct{ kind, text, name, want string }{
		{jsonType, `{"phone":"100"}`, "phone", "100"},
		{jsonType, `{"phone":100}`, "phone", "100"},
		{jsonType, " \r\n\t{ \"phone\" : \"100\" } ", "phone", "100"},
		{jsonType, `{"\u0070hone":"\u0031\u00300"}`, "phone", "100"},
		{jsonType, `{"phone":" 100\t\u00a0\u200b\ufeff"}`, "phone", "100"},
		{jsonType, `{"phone":true,"x":false}`, "x", "false"},
		{jsonType, `{"x":[1,{"phone":1}],"phone":"a\"\\\/\n\ud83d\ude00"}`, "phone", "a\"\\/\n\U0001F600"},
		{jsonType, `{"user":{"phone":"100","phones":1}}`, "user.phone", "100"},
		{jsonType, `{"a":{"b":{"c":{"d":"x"}}}}`, "a.b.c.d", "x"},
		{jsonType, `{"*":"a","phone":"b","#":1}`, "*", "a"}, // no pattern
		{jsonType, `{"@this":"a","phone":"b"}`, "@this", "a"},
		{jsonType, `{"":"a","phone":"b"}`, "phone", "b"},

		// A name that stands twice, however it is spelt.
		{jsonType, `{"phone":"1","phone":"2"}`, "phone", ""},
		{jsonType, `{"phone":"1","phone":"1"}`, "phone", ""},
		{jsonType, `{"phone":"1","\u0070hone":"2"}`, "phone", ""},
		{jsonType, `{"phone":null,"phone":"2"}`, "phone", ""},
		{jsonType, `{"phone":"1","Phone":"2"}`, "phone", ""}, // encoding/json takes the second
		{jsonType, `{"PHONE":"2","phone":"1"}`, "phone", ""},
		{jsonType, `{"ſecret":"2","secret":"1"}`, "secret", ""},
		{jsonType, `{"phone":"1"," phone":"2"}`, "phone", ""},
		{jsonType, `{"phone":"1","phone\u0000":"2"}`, "phone", ""},
		{jsonType, `{"user":{"phone":"1"},"user":{"phone":"2"}}`, "user.phone", ""},
		{jsonType, `{"user":{"phone":"1"},"User":{"phone":"2"}}`, "user.phone", ""},
		{jsonType, `{"user":{"phone":"1","phone":"2"}}`, "user.phone", ""},

		// No such field, or none of the right type.
		{jsonType, `{"Phone":"1"}`, "phone", ""},
		{jsonType, `{"user.phone":"1"}`, "user.phone", ""},
		{jsonType, `{"phone":null}`, "phone", ""},
		{jsonType, `{"phone":["1"]}`, "phone", ""},
		{jsonType, `{"phone":{"x":1}}`, "phone", ""},
		{jsonType, `{"phone":"1"}`, "phone.x", ""},
		{jsonType, `{"phone":""}`, "phone", ""},
		{jsonType, `[{"phone":"1"}]`, "phone", ""},
		{jsonType, `["phone","1"]`, "phone", ""},
		{jsonType, `"phone"`, "phone", ""},
		{jsonType, `1`, "phone", ""},
		{jsonType, ``, "phone", ""},

		// Invalid.
		{jsonType, `{"phone":"1"`, "phone", ""},
		{jsonType, `{"phone":"1"}}`, "phone", ""},
		{jsonType, `{"phone":"1"}{"phone":"2"}`, "phone", ""},
		{jsonType, `{"phone":"1",}`, "phone", ""},
		{jsonType, `{'phone':'1'}`, "phone", ""},
		{jsonType, `{phone:"1"}`, "phone", ""},
		{jsonType, `{"phone":"1"/*c*/}`, "phone", ""},
		{jsonType, "\ufeff" + `{"phone":"1"}`, "phone", ""},
		{jsonType, `{"phone":"1","x":"` + "\xff" + `"}`, "phone", ""},
		{jsonType, "{\"phone\":\"1\xc0\xb1\"}", "phone", ""},
		{jsonType, "{\x00\"\x00a\x00\"\x00:\x001\x00}\x00", "a", ""}, // UTF-16
		{jsonType, `{"phone":"` + "\x01" + `"}`, "phone", ""},
		{jsonType, `{"phone":NaN}`, "phone", ""},
		{jsonType, `{"phone":0x10}`, "phone", ""},
		{jsonType, `{"phone":+1}`, "phone", ""},
		{jsonType, `{"phone":01}`, "phone", ""},
		{jsonType, deep, "a", ""},
		{jsonType, strings.Repeat("[", Max), "a", ""},
		{jsonType, `{"phone":"1"}` + strings.Repeat(" ", Max-13), "phone", "1"},
		{jsonType, `{"phone":"1"}` + strings.Repeat(" ", Max-12), "phone", ""},
		{jsonType, strings.Repeat(" ", Max) + `{"phone":"1"}`, "phone", ""},

		// Forms.
		{formType, `phone=100&x=1`, "phone", "100"},
		{formType, `x=1&phone=100`, "phone", "100"},
		{formType, `ph%6Fne=%31%30%30`, "phone", "100"},
		{formType, `phone=+100+`, "phone", "100"},
		{formType, `phone=%2B49+1`, "phone", "+49 1"},
		{formType, `a+b=1`, "a b", "1"},
		{formType, `user.phone=1`, "user.phone", "1"},
		{formType, `&&phone=1&&`, "phone", "1"},
		{formType, `phone=1=2`, "phone", "1=2"},
		{formType, `phone`, "phone", ""},
		{formType, `phone=`, "phone", ""},
		{formType, `Phone=1`, "phone", ""},
		{formType, `phone=1&phone=2`, "phone", ""},
		{formType, `phone=1&ph%6fne=2`, "phone", ""},
		{formType, `phone=1&Phone=2`, "phone", ""},
		{formType, `phone=1&phone%5B%5D=2`, "phone", ""},
		{formType, `phone=1&phone[0]=2`, "phone", ""},
		{formType, `phone=1&+phone=2`, "phone", ""},
		{formType, `phone=1&phone%00x=2`, "phone", ""},
		{formType, `phone=1&phone`, "phone", ""},
		{formType, `user_phone=1&user.phone=2`, "user_phone", ""},
		{formType, `user_phone=1&user+phone=2`, "user_phone", ""},
		{formType, `phone=1;phone=2`, "phone", ""},
		{formType, `phone=1&x=%zz`, "phone", ""},
		{formType, `phone=1&x=%`, "phone", ""},
		{formType, `phone=%ff`, "phone", ""},
		{formType, `phone=1&%ff=1`, "phone", ""},
		{formType, `{"phone":"1"}`, "phone", ""},

		// Names with brackets, in forms and in JSON.
		{formType, `user[email]=1&x=2`, "user[email]", "1"},
		{formType, `user%5Bemail%5D=1&user[name]=2&user=3&user[emails]=4`, "user[email]", "1"},
		{formType, `user[email]=1&user[email]=2`, "user[email]", ""},
		{formType, `user[email]=1&user%5Bemail%5D=2`, "user[email]", ""},
		{formType, `user[email]=1&User[Email]=2`, "user[email]", ""},
		{formType, `user[email]=1&user[email][]=2`, "user[email]", ""},
		{formType, `user[email]=1&user[email][x][0]=2`, "user[email]", ""},
		{formType, `user[email]=1&user[email]x=2`, "user[email]", ""},
		{formType, `user[email]=1&user[+email]=2`, "user[email]", ""},
		{formType, `user[email]=1&user.email=2`, "user[email]", ""},
		{formType, `user[email]=1&user[[email]]=2`, "user[email]", ""},
		{formType, `user[email]=1&[user][email]=2`, "user[email]", ""},
		{formType, `user_email=1&user[email=2`, "user_email", ""},
		{formType, `user.email=1&user[email]=2`, "user.email", ""},
		{formType, `a[b][c]=1&a[b][d]=2`, "a[b][c]", "1"},
		{formType, `a[b][c]=1&a[b][c]=2`, "a[b][c]", ""},
		{formType, `ids[]=1`, "ids[]", "1"},
		{formType, `ids[]=1&ids[]=2`, "ids[]", ""},
		{formType, `ids[]=1&ids[0]=2`, "ids[]", ""},
		{formType, `ids[]=1&ids=2`, "ids[]", ""},
		{formType, `ids[0]=1&ids[]=2`, "ids[0]", ""},
		{formType, `ids[0]=1&ids[1]=2`, "ids[0]", "1"},
		{formType, `ids=2&ids[0]=1`, "ids[0]", ""}, // qs puts both in the list
		{formType, `a[b]=2&a[b][0]=1`, "a[b][0]", ""},
		{formType, `a[b]=2&a[b][x]=1`, "a[b][x]", "1"},
		{jsonType, `{"phone":"1","phone[0]":"2"}`, "phone", ""},
		{jsonType, `{"phone":"1","phone.0":"2"}`, "phone", ""},
		{jsonType, `{"phone":"1","phone[x]":"2"}`, "phone", "1"},
		{formType, `a[0][q]=1&a[][q]=2`, "a[0][q]", ""},
		{formType, `phone=1&phone.0=2`, "phone", ""},
		{formType, `phone=1&[phone]=2`, "phone", ""},
		{formType, `phone=1&phone_x=2&phones=3&phone.x=4`, "phone", "1"},
		{jsonType, `{"user[email]":"1"}`, "user[email]", "1"},
		{jsonType, `{"user[email]":"1","user[email]":"2"}`, "user[email]", ""},
		{jsonType, `{"user[email]":"1","user":{"email":"2"}}`, "user[email]", ""},
		{jsonType, `{"user[email]":"1","user":{"email":"2"}}`, "user.email", ""},
		{jsonType, `{"user":{"email":"2"},"User.Email":"1"}`, "user.email", ""},
		{jsonType, `{"a":{"b[c]":1,"b":{"c":2}}}`, "a.b.c", ""},
		{jsonType, `{"a":{"b":{"c":2}},"a_b_c":1,"a[b]":3}`, "a.b.c", "2"},
		{jsonType, `{"phone":"1","phone[]":"2"}`, "phone", ""},
		{formType, `phone=1&x=` + strings.Repeat("a", Max), "phone", ""},

		// Types.
		{"application/JSON; charset=UTF-8", `{"phone":1}`, "phone", "1"},
		{"application/problem+json", `{"phone":1}`, "phone", "1"},
		{`application/json; charset="utf-8"`, `{"phone":1}`, "phone", "1"},
		{formType + ";charset=utf-8", `phone=1`, "phone", "1"},
		{"application/json; charset=utf-16", `{"phone":1}`, "phone", ""},
		{"application/json; charset=utf-7", `{"phone":"+ADE-"}`, "phone", ""},
		{"application/json; charset=utf-8; charset=utf-16", `{"phone":1}`, "phone", ""},
		{"application/json, text/plain", `{"phone":1}`, "phone", ""},
		{"application/json;", `{"phone":1}`, "phone", "1"},
		{"application/jsonp", `{"phone":1}`, "phone", ""},
		{"text/plain", `{"phone":1}`, "phone", ""},
		{"application/x-ndjson", `{"phone":1}`, "phone", ""},
		{"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--b--\r\n", "phone", ""},
		{"", `{"phone":1}`, "phone", ""},
	} {
		value, rest := field(t, request(c.kind, c.text), c.name)
		if value != c.want {
			t.Errorf("%s %.80q: %s is %q, want %q", c.kind, c.text, c.name, value, c.want)
		}
		if rest != c.text {
			t.Errorf("%s %.80q: %d bytes are handed on, want all %d", c.kind, c.text, len(rest), len(c.text))
		}
	}
}

// TestNotRead lists requests whose body is not read, although its type has fields.
func TestNotRead(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"CONNECT":           func(r *http.Request) { r.Method = http.MethodConnect },
		"an upgrade":        func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"gzip":              func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
		"identity":          func(r *http.Request) { r.Header.Set("Content-Encoding", "") },
		"two types":         func(r *http.Request) { r.Header.Add("Content-Type", "text/plain") },
		"an announced size": func(r *http.Request) { r.ContentLength = Max + 1 },
	} {
		r := request(jsonType, `{"phone":"1"}`)
		change(r)
		r.Body = io.NopCloser(iotest.ErrReader(errors.New("the body was read")))
		ReadFields(httptest.NewRecorder(), r, Max, false)
		if b := Of(r); b != nil && b.data != nil {
			t.Errorf("%s: the body was read", name)
		}
		if v := Field(r, "phone"); v != "" {
			t.Errorf("%s: %q, want it empty", name, v)
		}
	}
}

// TestNumbers lists forms of numbers.
func TestNumbers(t *testing.T) {
	for raw, want := range map[string]string{
		"0": "0", "-0": "0", "0.0": "0", "-0e9": "0", "100": "100", "1e2": "100", "1E+2": "100", "100.00": "100", "1000e-1": "100",
		"100.0000000000000000001": "100", "99.99999999999999999999": "100", "-1.50": "-1.5", "15e-1": "1.5", "1e-7": "1e-07", "0.000001": "0.000001",
		"9007199254740993": "9007199254740993", "-9223372036854775808": "-9223372036854775808", "18446744073709551615": "18446744073709551615",
		"18446744073709551616": "18446744073709552000", "18446744073709551616.0": "18446744073709552000", "9007199254740993.0": "9007199254740992",
		"1e20": "100000000000000000000", "1e21": "1e+21", "10e20": "1e+21", "1e308": "1e+308", "1e309": "", "-1e999999999": "", "1e-400": "0",
	} {
		if got := number(raw); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

// TestHandedOn reads bodies of all sizes around the bound in pieces of all sizes, and some further. What is
// handed on is the same, with the same error at the end.
func TestHandedOn(t *testing.T) {
	broken := errors.New("broken")
	for _, n := range []int{0, 1, 511, 512, 513, 4095, 4096, Max - 1, Max, Max + 1, Max + 2, 3 * Max} {
		want := bytes.Repeat([]byte("abcdefg"), n/7+1)[:n]
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "with EOF": iotest.DataErrReader,
			"cut": func(r io.Reader) io.Reader { return io.MultiReader(r, iotest.ErrReader(broken)) },
		} {
			for _, length := range []int64{-1, int64(n)} {
				for _, sizes := range [][]int64{{Max}, {1000, Max}, {Max, 2 * Max}, {2 * Max, Max}} {
					most := slices.Max(sizes)
					r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
					r.ContentLength = length
					closer := &closeCounter{Reader: wrap(bytes.NewReader(want))}
					r.Body = closer
					b := Read(httptest.NewRecorder(), r, sizes[0], false)
					for _, size := range sizes[1:] {
						if Read(httptest.NewRecorder(), r, size, false) != b {
							t.Error("another body after it is read further")
						}
					}
					data, ok := b.Bytes()
					if name != "cut" && ok != (int64(n) <= most) || name == "cut" && ok || ok && !bytes.Equal(data, want) {
						t.Errorf("%d bytes, %s, %v: %d read, whole: %v", n, name, sizes, len(data), ok)
					}
					if int64(len(data)) > most+1 {
						t.Errorf("%d bytes, %s, %v: %d are kept", n, name, sizes, len(data))
					}
					got, err := io.ReadAll(r.Body)
					if !bytes.Equal(got, want) || (name == "cut") != errors.Is(err, broken) {
						t.Errorf("%d bytes, %s, %v: %d and %v are handed on", n, name, sizes, len(got), err)
					}
					if Read(nil, r, 4*Max, false) != b {
						t.Error("the body is read twice")
					}
					if _ = r.Body.Close(); closer.closed != 1 {
						t.Errorf("closed %d times", closer.closed)
					}
				}
			}
		}
	}
}

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }

func partsOf(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(".[]", r) })
}

// timesIn returns how often an object has a field with these parts, in any spelling.
func timesIn(object gjson.Result, field []string) (n int) {
	object.ForEach(func(k, value gjson.Result) bool {
		parts := partsOf(k.Str)
		if len(parts) == 0 || len(parts) > len(field) {
			return true
		}
		for i, part := range parts {
			if !strings.EqualFold(strings.TrimFunc(part, isPadding), field[i]) {
				return true
			}
		}
		if rest := field[len(parts):]; len(rest) == 0 {
			n++
		} else if value.IsObject() {
			n += timesIn(value, rest)
		}
		return true
	})
	return n
}

// reference returns the field of a JSON text by the tokens of encoding/json.
func reference(text, name string) string {
	if len(text) > Max || !utf8.ValidString(text) || !json.Valid([]byte(text)) {
		return ""
	}
	raw := json.RawMessage(text)
	if timesIn(gjson.Parse(text), partsOf(name)) > 1 {
		return ""
	}
	for member := range strings.SplitSeq(name, ".") {
		dec := json.NewDecoder(bytes.NewReader(raw))
		if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
			return ""
		}
		raw = nil
		exact, alike := 0, 0
		for dec.More() {
			k, _ := dec.Token()
			var v json.RawMessage
			if dec.Decode(&v) != nil {
				return ""
			}
			if k == json.Token(member) {
				exact++
				raw = v
			}
			if similar(k.(string), member) {
				alike++
			}
		}
		if exact != 1 || alike != 1 {
			return ""
		}
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return ""
	}
	switch v := v.(type) {
	case string:
		return strings.TrimFunc(v, isPadding)
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return string(v)
	}
	return ""
}

// FuzzJSONField compares the field of a JSON body with what encoding/json finds.
func FuzzJSONField(f *testing.F) {
	for _, text := range []string{
		`{"phone":"1"}`, `{"phone":1e2,"x":{"phone":2}}`, `{"x":{"phone":" 2 "}}`, `{"phone":"\ud800\u0041\udc00"}`, `{"phone":"1","Phone":2}`,
		`{"\\phone":1,"phone":"\\\"\\"}`, `{"phone":[{"phone":1}],"x":{"phone":-0.0}}`, `{"phone":"\u0000"}`, "{\"phone\":\"\x7f\"}",
		`{"x":{"phone":1,"[Phone]":2}}`, `{"x.phone":1,"x":{"phone":2}}`, `{"x":{"phone":1},"[x][phone":2}`, `{"x":{"phone":1},"X.":{"":1}}`, `{"x":{"phone":1},"x ":{}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"phone", "x.phone"} {
			got, rest := field(t, request(jsonType, text), name)
			want := reference(text, name)
			if n, ok := new(big.Float).SetString(want); ok && got != want {
				x, _ := n.Float64()
				if y, err := strconv.ParseFloat(got, 64); got == "" && math.IsInf(x, 0) || err == nil && x == y {
					want = got
				}
			}
			if got != want {
				t.Errorf("%q: %s is %q, want %q", text, name, got, want)
			}
			if rest != text {
				t.Errorf("%q: %q is handed on", text, rest)
			}
		}
	})
}

// FuzzFormField compares the field of a form with what net/url finds.
func FuzzFormField(f *testing.F) {
	for _, text := range []string{"phone=1", "phone=1&phone=2", "ph%6fne=+1%20&x=%", "a=b&phone=1;x", "phone[]=1&phone=2", "%70hone=1&Phone="} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, rest := field(t, request(formType, text), "phone")
		if rest != text {
			t.Errorf("%q: %q is handed on", text, rest)
		}
		all, err := url.ParseQuery(text)
		want, alike := "", 0
		for k, vs := range all {
			if !utf8.ValidString(k) || !utf8.ValidString(strings.Join(vs, "")) {
				return
			}
			if AlikeInAnyCase(k, "phone") {
				alike += len(vs)
			}
		}
		if err == nil && alike == 1 && len(text) <= Max && utf8.ValidString(text) {
			want = strings.TrimFunc(all.Get("phone"), isPadding)
		}
		if got != want && err == nil {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if got != "" && err != nil {
			t.Errorf("%q: %q, want it empty: %v", text, got, err)
		}
	})
}

// BenchmarkField measures what a field costs a request.
func BenchmarkField(b *testing.B) {
	small := `{"name":"A. Reader","phone":"+49 30 1234567","lang":"de","consent":true}`
	large := `{"text":"` + strings.Repeat(`lorem ipsum `, (Max-100)/12) + `","phone":"+49 30 1234567"}`
	many := "{" + strings.Repeat(`"k":1,`, 1) + `"phone":"1"`
	for i := 0; len(many) < Max-100; i++ {
		many += fmt.Sprintf(`,"key%d":%d`, i, i)
	}
	many += "}"
	for name, c := range map[string]struct{ kind, text string }{
		"json/100B": {jsonType, small}, "json/64KiB": {jsonType, large}, "json/64KiB-many": {jsonType, many},
		"json/64KiB-deep": {jsonType, `{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `,"phone":"1"}`},
		"form/100B":       {formType, "name=A.+Reader&phone=%2B49+30+1234567&lang=de&consent=true"},
		"form/64KiB":      {formType, "phone=1" + strings.Repeat("&a%20b=1", Max/8-10)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := request(c.kind, c.text)
			body := strings.NewReader("")
			w := httptest.NewRecorder()
			for b.Loop() {
				body.Reset(c.text)
				r.Body, r.ContentLength = io.NopCloser(body), int64(len(c.text))
				ReadFields(w, r, Max, false)
				if Field(r, "phone") == "" {
					b.Fatal("empty")
				}
			}
		})
	}
}
