package body

import (
	"net/http"
	"strconv"
)

// JSON returns the body of a request that was read with [ReadFields] and of which nothing was
// handed on, whatever its type. It is empty if the body is no JSON text, or is too large.
func JSON(r *http.Request) string {
	b := Of(r)
	if b == nil || b.next > 0 {
		return ""
	}
	return b.text(true)
}

// Member returns the value of a member of the body, as [Field] does, whatever its type.
func Member(r *http.Request, name string) string {
	b := Of(r)
	if b == nil {
		return ""
	}
	return jsonField(b.text(true), name)
}

// Replace replaces the body of a request for which [JSON] returned a text.
func Replace(r *http.Request, text string) {
	b := Of(r)
	b.data, b.fields = []byte(text), fields{format: b.fields.format}
	if r.ContentLength >= 0 {
		r.ContentLength = int64(len(text))
	}
	if len(r.Header["Content-Length"]) > 0 {
		r.Header["Content-Length"] = []string{strconv.Itoa(len(text))}
	}
}
