package key

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Template is a text with placeholders, parsed once when provisioning.
type Template struct {
	pieces []piece
}

// piece is a constant or one placeholder.
type piece struct {
	source origin
	text   string // the constant, or the name of the placeholder or header
}

// origin is the source of a piece's value. Common placeholders are evaluated without the
// general replacer, to save time.
type origin uint8

const (
	fromConstant origin = iota
	fromReplacer
	fromClientIP
	fromHeader
	fromMethod
	fromPath
)

const headerPlaceholder = "http.request.header."

// ClientIPPlaceholder is the name of the placeholder that {client_ip} stands for.
const ClientIPPlaceholder = "http.vars." + caddyhttp.ClientIPVarKey

// Parse parses a text with placeholders.
func Parse(s string) (Template, error) {
	var t Template
	for s != "" {
		open := strings.IndexByte(s, '{')
		if open < 0 {
			t.pieces = append(t.pieces, piece{fromConstant, s})
			break
		}
		if open > 0 {
			t.pieces = append(t.pieces, piece{fromConstant, s[:open]})
		}
		end := strings.IndexByte(s[open:], '}')
		if end < 0 {
			return Template{}, fmt.Errorf("%q: want a } for every {", s)
		}
		name := s[open+1 : open+end]
		if !strings.Contains(name, ".") {
			return Template{}, fmt.Errorf("{%s} is no placeholder: want its full name, such as {http.request.header.X-Account}, or a shorthand such as {client_ip}", name)
		}
		t.pieces = append(t.pieces, newPiece(name))
		s = s[open+end+1:]
	}
	return t, nil
}

func newPiece(name string) piece {
	if field, ok := strings.CutPrefix(name, headerPlaceholder); ok {
		return piece{fromHeader, textproto.CanonicalMIMEHeaderKey(field)}
	}
	switch name {
	case ClientIPPlaceholder:
		return piece{fromClientIP, name}
	case "http.request.method":
		return piece{fromMethod, name}
	case "http.request.uri.path":
		return piece{fromPath, name}
	}
	return piece{fromReplacer, name}
}

// single reports whether the text is one constant or one placeholder.
func (t Template) single() bool { return len(t.pieces) <= 1 }

// Constant returns the text; false if it has placeholders.
func (t Template) Constant() (string, bool) {
	switch {
	case len(t.pieces) == 0:
		return "", true
	case len(t.pieces) == 1 && t.pieces[0].source == fromConstant:
		return t.pieces[0].text, true
	}
	return "", false
}

// uses reports whether the name of a placeholder begins with prefix.
func (t Template) uses(prefix string) bool {
	for _, p := range t.pieces {
		if p.source != fromConstant && strings.HasPrefix(p.text, prefix) {
			return true
		}
	}
	return false
}

// value returns the value of a template that is single.
func (t Template) value(r *http.Request) string {
	if len(t.pieces) == 0 {
		return ""
	}
	return t.pieces[0].value(r)
}

// append appends the value of the template to b.
func (t Template) append(b []byte, r *http.Request) []byte {
	for i := range t.pieces {
		b = append(b, t.pieces[i].value(r)...)
	}
	return b
}

// Number returns the value as a whole number, clamped to the range of int64; false if it
// is not a whole number.
func (t Template) Number(r *http.Request) (int64, bool) {
	var text string
	if t.single() {
		text = t.value(r)
	} else {
		text = string(t.append(nil, r))
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil // n is clamped
	}
	return n, err == nil
}

func (p *piece) value(r *http.Request) string {
	switch p.source {
	case fromConstant:
		return p.text
	case fromClientIP:
		return ClientIP(r)
	case fromHeader:
		if vals := r.Header[p.text]; len(vals) == 1 {
			return vals[0]
		} else if len(vals) > 1 {
			return strings.Join(vals, ",")
		}
		if p.text == "Host" {
			return r.Host
		}
		return ""
	case fromMethod:
		return r.Method
	case fromPath:
		return r.URL.Path
	}
	val, _ := Replacer(r).Get(p.text)
	return caddy.ToString(val)
}

// Replacer returns the replacer of a request, or a new one if it has none.
func Replacer(r *http.Request) *caddy.Replacer {
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if repl == nil {
		repl = caddy.NewReplacer()
	}
	return repl
}

// ClientIP returns the client's address as determined by Caddy.
func ClientIP(r *http.Request) string {
	s, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return s
}
