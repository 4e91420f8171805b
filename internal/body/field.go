package body

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// format is the format of a body with fields.
type format uint8

const (
	noFields format = iota
	jsonFields
	formFields
)

// fields is what is known about the fields of a body.
type fields struct {
	format  format
	checked [2]bool   // whether texts are set
	texts   [2]string // the body as JSON, and as any text; empty: it is none
}

// CheckName checks the name of a field.
func CheckName(name string) error {
	for member := range strings.SplitSeq(name, ".") {
		if member == "" {
			return fmt.Errorf("{body.%s}: an empty name: want the name of a field, such as {body.phone} or {body.user.phone}", name)
		}
	}
	return nil
}

// ReadFields reads the body, of at most size bytes, of a request that has fields: JSON or an
// urlencoded form, without Content-Encoding. Bodies of CONNECT requests and upgrades are streams. With
// all, it reads those of other requests too, which have no fields but perhaps a [JSON] text.
func ReadFields(w http.ResponseWriter, r *http.Request, size int64, all bool) {
	f := formatOf(r)
	if f == noFields && (!all || streams(r)) {
		return
	}
	if b := Read(w, r, size, all); b != nil && f != noFields {
		b.fields.format = f
	}
}

// streams reports whether a body may go on while its response does, so that nobody can wait for it.
func streams(r *http.Request) bool {
	return r.Method == http.MethodConnect || strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/grpc")
}

// formatOf returns the format of a request's body, according to its headers.
func formatOf(r *http.Request) format {
	if r.Body == nil || r.Body == http.NoBody || r.Method == http.MethodConnect ||
		len(r.Header["Upgrade"]) > 0 || len(r.Header["Content-Encoding"]) > 0 || len(r.Header["Content-Type"]) != 1 {
		return noFields
	}
	const jsonType, formType = "application/json", "application/x-www-form-urlencoded"
	kind := r.Header["Content-Type"][0]
	if kind != jsonType && kind != formType {
		var params map[string]string
		var err error
		if kind, params, err = mime.ParseMediaType(kind); err != nil {
			return noFields
		}
		if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") {
			return noFields // what follows may decode it otherwise
		}
	}
	switch {
	case kind == jsonType || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"):
		return jsonFields
	case kind == formType:
		return formFields
	}
	return noFields
}

// Lacks returns why the fields of a request's body are not known, after [ReadFields]; empty: they are, or there is
// no body.
func Lacks(r *http.Request) string {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 || streams(r) || len(r.Header["Upgrade"]) > 0 {
		return ""
	}
	if format := formatOf(r); format == noFields && len(r.Header["Content-Encoding"]) > 0 {
		return "it is encoded: Content-Encoding"
	} else if format == noFields {
		return "its Content-Type is not that of JSON or a form"
	}
	if b := Of(r); b == nil || !b.whole {
		return "it is longer than max_body, or did not arrive in time"
	}
	return ""
}

// Field returns the value of a field. In JSON, dots in its name descend into objects. It
// is empty if the body was not read with [ReadFields], is too large or invalid, or if the
// field is missing, is given twice, or is no string, number or boolean. White space around
// the value is removed.
func Field(r *http.Request, name string) string { return Of(r).Field(name) }

// Field returns the value of a field, as the function Field does. b may be nil.
func (b *Body) Field(name string) string {
	if b == nil || b.fields.format == noFields {
		return ""
	}
	var v string
	if b.fields.format == jsonFields {
		v = jsonField(b.text(true), name)
	} else {
		v = formField(b.text(false), name)
	}
	return strings.TrimFunc(v, isPadding)
}

// text returns the body; empty if it is not valid, or too large.
func (b *Body) text(asJSON bool) string {
	i := 1
	if asJSON {
		i = 0
	}
	if f := &b.fields; b.whole && !f.checked[i] {
		f.checked[i] = true
		if utf8.Valid(b.data) && (!asJSON || json.Valid(b.data)) {
			f.texts[i] = string(b.data)
		}
	}
	return b.fields.texts[i]
}

// jsonField returns the value of a field of a valid JSON text. It is not a path of gjson,
// which takes the first of several fields of a name and has its own syntax.
func jsonField(text, name string) string {
	v, times := find(gjson.Parse(text), name, true)
	if times > 1 {
		return ""
	}
	switch v.Type {
	case gjson.String:
		return v.Str
	case gjson.Number:
		return number(v.Raw)
	case gjson.True:
		return "true"
	case gjson.False:
		return "false"
	}
	return ""
}

// find returns the field of an object with a name, in which dots descend into objects, and how often the object has one
// that may be taken for it: some take the member "a[b]", or "a.b", for the member b of the object a. Without exactly, it
// only counts those.
func find(object gjson.Result, name string, exactly bool) (field gjson.Result, times int) {
	if !object.IsObject() {
		return field, 0
	}
	member, below, _ := strings.Cut(name, ".")
	alike := 0 // members of the same name
	object.ForEach(func(k, value gjson.Result) bool {
		exact := exactly && k.Str == member
		if exact || exactly && similar(k.Str, member) {
			alike++
		}
		others, ok := below, exact
		if !exact {
			others, ok = spells(k.Str, name)
		}
		switch {
		case !ok:
		case others == "":
			times++
		default:
			inside, n := find(value, others, exact)
			value, times = inside, times+n
		}
		if exact && !field.Exists() {
			field = value
		}
		return times <= 1 && alike <= 1
	})
	if alike > 1 {
		times = alike
	}
	return field, times
}

// formField returns the value of a field of an urlencoded form.
func formField(text, name string) (value string) {
	found := false
	for text != "" {
		var pair string
		pair, text, _ = strings.Cut(text, "&")
		k, v, _ := strings.Cut(pair, "=")
		k, err := url.QueryUnescape(k)
		if err == nil {
			v, err = url.QueryUnescape(v)
		}
		// Some take a semicolon for an ampersand.
		if err != nil || strings.Contains(pair, ";") || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return ""
		}
		switch {
		case k == name && !found:
			value, found = v, true
		case AlikeInAnyCase(k, name):
			return ""
		}
	}
	return value
}

// similar reports whether what follows may take a name for another: many ignore case, and
// some white space. Fields of both names are two of one name.
func similar(name, other string) bool {
	return !differs(name, other) && (name == other || strings.EqualFold(strings.TrimFunc(name, isPadding), other))
}

// differs reports whether the first letters of two names differ, which is so for most names
// and quickly found: a body may have thousands.
func differs(name, other string) bool {
	return name == "" || isLetter(name[0]) && isLetter(other[0]) && name[0]|0x20 != other[0]|0x20
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isPadding(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}
