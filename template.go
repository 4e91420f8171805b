package diana

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// template is a text with placeholders, cut once when it is provisioned.
type template struct {
	pieces []piece
}

// piece is a constant or one placeholder.
type piece struct {
	source source
	text   string // the constant, the placeholder's name, or the header's
}

// source is where a piece's value comes from. What most keys are made of is
// read without the general replacer.
type source uint8

const (
	fromConstant source = iota
	fromReplacer
	fromClientIP
	fromHeader
	fromMethod
	fromPath
)

const (
	headerPlaceholder = "http.request.header."
	clientIPVar       = "http.vars." + caddyhttp.ClientIPVarKey
)

// parseTemplate cuts a text at its placeholders. The shorthands of the
// Caddyfile are understood.
func parseTemplate(s string) (template, error) {
	var t template
	for s = expandShorthands(s); s != ""; {
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
			return template{}, fmt.Errorf("%q: want a } for every {", s)
		}
		name := s[open+1 : open+end]
		if !strings.Contains(name, ".") {
			return template{}, fmt.Errorf("{%s} is no placeholder: want its full name, such as {http.request.header.X-Account}, or a shorthand such as {client_ip}", name)
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
	case clientIPVar:
		return piece{fromClientIP, name}
	case "http.request.method":
		return piece{fromMethod, name}
	case "http.request.uri.path":
		return piece{fromPath, name}
	}
	return piece{fromReplacer, name}
}

// expandShorthands writes the Caddyfile's shorthands, which Caddy itself
// expands only in site blocks, in full.
func expandShorthands(s string) string {
	if !strings.Contains(s, "{") {
		return s
	}
	segment := caddyfile.Segment{{Text: s}}
	shorthands.ApplyToSegment(&segment)
	return segment[0].Text
}

var shorthands = httpcaddyfile.NewShorthandReplacer()

// single says whether the text is one constant or one placeholder.
func (t template) single() bool { return len(t.pieces) <= 1 }

// constant returns the text if it holds no placeholder.
func (t template) constant() (string, bool) {
	switch {
	case len(t.pieces) == 0:
		return "", true
	case len(t.pieces) == 1 && t.pieces[0].source == fromConstant:
		return t.pieces[0].text, true
	}
	return "", false
}

// uses says whether a placeholder's name begins with prefix.
func (t template) uses(prefix string) bool {
	for _, p := range t.pieces {
		if p.source != fromConstant && strings.HasPrefix(p.text, prefix) {
			return true
		}
	}
	return false
}

// value returns the text of a template that is single.
func (t template) value(r *http.Request) string {
	if len(t.pieces) == 0 {
		return ""
	}
	return t.pieces[0].value(r)
}

// append appends the text to b.
func (t template) append(b []byte, r *http.Request) []byte {
	for i := range t.pieces {
		b = append(b, t.pieces[i].value(r)...)
	}
	return b
}

func (p *piece) value(r *http.Request) string {
	switch p.source {
	case fromConstant:
		return p.text
	case fromClientIP:
		return clientIP(r)
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
	val, _ := replacer(r).Get(p.text)
	return caddy.ToString(val)
}

func replacer(r *http.Request) *caddy.Replacer {
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if repl == nil {
		repl = caddy.NewReplacer()
	}
	return repl
}

// clientIP is the client's address as Caddy determined it.
func clientIP(r *http.Request) string {
	s, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return s
}
