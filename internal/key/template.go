package key

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/body"
)

// Template is a text with placeholders, parsed once when provisioning.
type Template struct {
	pieces []piece
}

// MayBeNumber reports whether the text may be a number: it has no constant of anything but digits. A
// slash and what follows it may be the window of a rate.
func (t Template) MayBeNumber() bool {
	for i, p := range t.pieces {
		digits := strings.Trim(p.text, "0123456789")
		if p.source == fromConstant && digits != "" && (i == 0 || p.text[0] != '/') {
			return false
		}
	}
	return true
}

// piece is a constant or one placeholder.
type piece struct {
	source origin
	text   string // the constant, or the name of the header, cookie or parameter
	name   string // the name of the placeholder

	// The rest is for paths and hosts, and tells their end in a text: see spelling.go.
	part    func(s string) string // the part of the path or host; nil: none
	fold    func(s string) string // brings a value into the form that is counted; nil: any form
	without string                // bytes that never stand in the value
	rooted  bool                  // whether the value begins with a slash
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
	fromOrigPath
	fromHost
	fromBody
	fromCookie
	fromQuery
)

const (
	headerPlaceholder = "http.request.header."
	headerOfResponse  = "http.response.header."
)

// ClientIPPlaceholder is the name of the placeholder that {client_ip} stands for.
const ClientIPPlaceholder = "http.vars." + caddyhttp.ClientIPVarKey

// Parse parses a text with placeholders.
func Parse(s string) (Template, error) {
	var t Template
	for s != "" {
		open := strings.IndexByte(s, '{')
		if at := strings.IndexByte(s, '}'); at >= 0 && (open < 0 || at < open) {
			return Template{}, fmt.Errorf("%q: want a { for every }", s)
		}
		if open < 0 {
			t.pieces = append(t.pieces, piece{source: fromConstant, text: s})
			break
		}
		if open > 0 {
			t.pieces = append(t.pieces, piece{source: fromConstant, text: s[:open]})
		}
		end := strings.IndexByte(s[open:], '}')
		if end < 0 {
			return Template{}, fmt.Errorf("%q: want a } for every {", s)
		}
		name := s[open+1 : open+end]
		if name == "" {
			return Template{}, fmt.Errorf("%q: want the name of a placeholder between { and }, such as {client_ip}", s)
		}
		p, err := newPiece(name)
		if err != nil {
			return Template{}, err
		}
		t.pieces = append(t.pieces, p)
		s = s[open+end+1:]
	}
	return t, nil
}

func newPiece(name string) (piece, error) {
	if p, ok := spelledPiece(name); ok {
		return p, nil
	}
	if field, ok := strings.CutPrefix(name, headerPlaceholder); ok {
		field = textproto.CanonicalMIMEHeaderKey(field)
		p := piece{source: fromHeader, text: field, name: headerPlaceholder + field}
		if p.text == "Authorization" || p.text == "Proxy-Authorization" {
			p.fold = foldScheme
		}
		return p, nil
	}
	if field, ok := strings.CutPrefix(name, cookiePlaceholder); ok {
		return piece{source: fromCookie, text: field, name: name}, nil
	}
	if field, ok := strings.CutPrefix(name, queryPlaceholder); ok {
		return piece{source: fromQuery, text: field, name: name}, nil
	}
	if field, ok := bodyField(name); ok {
		return piece{source: fromBody, text: field, name: BodyPrefix + field}, body.CheckName(field)
	}
	if err := CheckResponse(name); err != nil {
		return piece{}, err
	}
	switch name {
	case ClientIPPlaceholder:
		return piece{source: fromClientIP, name: name, without: notInHost}, nil
	case "http.request.method":
		return piece{source: fromMethod, name: name, without: notInMethod}, nil
	case bodyPlaceholder, bodyPlaceholder + "_base64":
		return piece{}, fmt.Errorf("{%s}: Caddy would read the body without a bound: want a field of it, such as {body.phone}", name)
	}
	return piece{source: fromReplacer, name: name}, nil
}

// CheckResponse returns an error if a placeholder is one of a response that has a value in settle alone, or nowhere.
func CheckResponse(name string) error {
	if strings.HasPrefix(strings.TrimPrefix(name, "http."), "response.") && !strings.HasPrefix(name, headerOfResponse) {
		return fmt.Errorf("{%s}: no placeholder of a response: want {http.response.header.X-Tokens} or, in settle, {response.body.usage.total_tokens}", name)
	}
	return nil
}

const bodyPlaceholder = "http.request.body"

// BodyPrefix begins the names of placeholders of fields of the request's body.
const BodyPrefix = bodyPlaceholder + "."

// bodyField returns the name of the field that {body.<name>} or its full form stands for.
func bodyField(placeholder string) (name string, ok bool) {
	if name, ok = strings.CutPrefix(placeholder, BodyPrefix); !ok {
		name, ok = strings.CutPrefix(placeholder, "body.")
	}
	return name, ok
}

// single reports whether the text is one constant or one placeholder.
func (t Template) single() bool { return len(t.pieces) <= 1 }

// isClientIP reports whether the template is the client's address alone.
func (t Template) isClientIP() bool { return t.single() && t.Uses(ClientIPPlaceholder) }

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

// written returns the template as it is written with the full names of its placeholders.
func (t Template) written() string {
	var b strings.Builder
	for _, p := range t.pieces {
		if p.source == fromConstant {
			b.WriteString(p.text)
		} else {
			b.WriteString("{" + p.name + "}")
		}
	}
	return b.String()
}

// Placeholders returns the names of the placeholders.
func (t Template) Placeholders() (names []string) {
	for _, p := range t.pieces {
		if p.source != fromConstant {
			names = append(names, p.name)
		}
	}
	return names
}

// Uses reports whether the name of a placeholder begins with prefix.
func (t Template) Uses(prefix string) bool {
	return slices.ContainsFunc(t.pieces, func(p piece) bool {
		return p.source != fromConstant && strings.HasPrefix(p.name, prefix)
	})
}

// ReadsBody reports whether the template has a field of the request's body, which requires
// a call of [body.ReadFields] before it is evaluated.
func (t Template) ReadsBody() bool {
	return slices.ContainsFunc(t.pieces, func(p piece) bool { return p.source == fromBody })
}

// value returns the value of a template that is single, and whether it stands more than once
// in the request: then it is the first.
func (t Template) value(r *http.Request) (v string, more bool) {
	if len(t.pieces) == 0 {
		return "", false
	}
	return t.pieces[0].value(r)
}

// append appends the value of the template to b. more reports whether a part of it stands more
// than once in the request.
func (t Template) append(b []byte, r *http.Request) (_ []byte, more bool) {
	for i := range t.pieces {
		v, repeated := t.pieces[i].value(r)
		b, more = append(b, v...), more || repeated
	}
	return b, more
}

// Number returns the value as a whole number, clamped to the range of int64; false if it
// is not a whole number.
func (t Template) Number(r *http.Request) (int64, bool) {
	n, err := strconv.ParseInt(t.Text(r), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil // n is clamped
	}
	return n, err == nil
}

// Text returns the value without the space around it. It is empty if a part of it stands more
// than once in the request.
func (t Template) Text(r *http.Request) string {
	var v string
	var more bool
	if t.single() {
		v, more = t.value(r)
	} else {
		var b []byte
		b, more = t.append(nil, r)
		v = string(b)
	}
	if more {
		return ""
	}
	return strings.TrimSpace(v)
}

// joined returns the template with the values of Caddy's placeholders, which join what stands
// more than once.
func (t Template) joined() Template {
	for i := range t.pieces {
		switch p := &t.pieces[i]; p.source {
		case fromHeader, fromCookie, fromQuery:
			p.source, p.fold = fromReplacer, nil
		}
	}
	return t
}

func (p *piece) value(r *http.Request) (v string, more bool) {
	switch p.source {
	case fromConstant:
		return p.text, false
	case fromClientIP:
		return ClientIP(r), false
	case fromHeader:
		if v, more = headerValue(r, p.text); p.fold != nil {
			v = p.fold(v)
		}
		return v, more
	case fromMethod:
		return r.Method, false
	case fromBody:
		return body.Field(r, p.text), false
	case fromCookie:
		return cookies.first(r.Header["Cookie"], p.text)
	case fromQuery:
		return queries.first([]string{r.URL.RawQuery}, p.text)
	}
	if p.fold != nil {
		return p.spelled(r), false
	}
	val, _ := Replacer(r).Get(p.name)
	return caddy.ToString(val), false
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

// UnmapClient makes an IPv4-mapped address of the client the IPv4 address that keys count, for a
// matcher of Caddy, which takes the two for different clients. restore undoes it; nil: it is another
// address.
func UnmapClient(r *http.Request) (restore func()) {
	s := ClientIP(r)
	if !strings.Contains(s, ":") {
		return nil
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is4In6() {
		return nil
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.ClientIPVarKey, addr.Unmap().String())
	return func() { caddyhttp.SetVar(r.Context(), caddyhttp.ClientIPVarKey, s) }
}
