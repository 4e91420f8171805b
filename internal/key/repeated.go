package key

import (
	"encoding/base64"
	"encoding/hex"
	"iter"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dianalimiter/diana/internal/body"
)

// A client can send a header, a cookie or a query parameter more than once, and write one value
// of them in several ways. Which of the values the next handler takes is its own affair: Go and
// nginx take the first, Django takes the last cookie, others join them. These placeholders are
// therefore evaluated here: to the first value, decoded, and whether there are more.

// Values of key_repeated: what to do if a header, a cookie or a query parameter of the key stands
// more than once.
const (
	repeatedDeny  = "deny"
	repeatedFirst = "first"
	RepeatedJoin  = "join"
)

const (
	cookiePlaceholder = "http.request.cookie."
	queryPlaceholder  = "http.request.uri.query."
)

// MayRepeat reports whether a part of the key may stand more than once in a request.
func (p *Plan) MayRepeat() bool {
	return slices.ContainsFunc(p.parts, func(t Template) bool {
		return t.Uses(headerPlaceholder) || t.Uses(cookiePlaceholder) || t.Uses(queryPlaceholder)
	})
}

// headerValue returns the first value of a header, and whether there are more. The server removes
// white space around it from HTTP/1 requests only.
func headerValue(r *http.Request, name string) (value string, more bool) {
	vals := r.Header[name]
	if len(vals) == 0 {
		return "", false
	}
	if value = vals[0]; value != "" && (value[0] <= ' ' || value[len(value)-1] <= ' ') {
		value = strings.Trim(value, " \t")
	}
	return value, len(vals) > 1
}

// foldScheme returns the credentials of an Authorization header with their scheme, which any case
// spells, as in Bearer, and one space after it. Those of Basic are encoded anew.
func foldScheme(s string) string {
	end := strings.IndexAny(s, " \t")
	if end < 1 || s[0] >= utf8.RuneSelf {
		return s
	}
	scheme, rest := s[:end], strings.TrimLeft(s[end:], " \t")
	folded := strings.ToUpper(scheme[:1]) + strings.ToLower(scheme[1:])
	if folded == "Basic" {
		return folded + " " + foldBase64(rest)
	}
	if folded == scheme && s[end] == ' ' && end+1+len(rest) == len(s) {
		return s
	}
	return folded + " " + rest
}

// foldBase64 returns base64 as Go encodes it: its last character has bits that say nothing, and
// programs read it without padding, in the alphabet of URLs, skip what is in neither, end where
// the padding is complete, and drop a last digit that is alone.
func foldBase64(s string) string {
	digits, padding := make([]byte, 0, len(s)), 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '=':
			if padding++; len(digits)%4 >= 2 && len(digits)%4+padding >= 4 {
				s = s[:i] // what follows is not read
			}
			continue
		case c == '-':
			digits = append(digits, '+')
		case c == '_':
			digits = append(digits, '/')
		case c == '+', c == '/', '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
			digits = append(digits, c)
		default:
			continue
		}
		padding = 0
	}
	if len(digits)%4 == 1 {
		digits = digits[:len(digits)-1]
	}
	text, _ := base64.RawStdEncoding.DecodeString(string(digits)) // they are all valid
	return base64.StdEncoding.EncodeToString(text)
}

// pairing is how names and values are written in cookies, or in a query.
type pairing struct {
	separators string                        // in a query also ;, which some programs still take for &, and #, where others end it
	joint      string                        // between two pairs
	spaced     bool                          // some programs end a value at white space, where they begin another pair
	named      func(found, name string) bool // whether the pair has the value of the name, loosely
	alike      func(found, name string) bool // whether some programs take it for one
	decode     func(value string) string
}

var (
	cookies = pairing{";", "; ", true, func(found, name string) bool {
		return strings.EqualFold(loosely(strings.TrimSpace(found)), name) // in any case, as Caddy finds them
	}, func(found, name string) bool {
		return body.AlikeInAnyCase(unescape(strings.TrimSpace(found)), name)
	}, decodeCookie}
	queries = pairing{"&;#", "&", false, func(found, name string) bool {
		return loosely(unescape(found)) == name
	}, func(found, name string) bool { return body.Alike(unescape(found), name) }, unescape}
)

// loosely returns a name as the most tolerant programs read it: PHP ends it at a NUL, leaves out
// spaces before it, and takes dots and spaces for underscores; Rack leaves out brackets around it.
func loosely(name string) string {
	if !strings.ContainsAny(name, " .[]\x00") {
		return name
	}
	name, _, _ = strings.Cut(name, "\x00")
	name = strings.TrimRight(strings.TrimLeft(name, " []"), "]")
	return strings.Map(func(c rune) rune {
		if c == '.' || c == ' ' {
			return '_'
		}
		return c
	}, name)
}

// all returns the pairs of a text as far as they may have the name.
func (p *pairing) all(text, name string) iter.Seq[string] {
	return func(yield func(pair string) bool) {
		for pair := range strings.FieldsFuncSeq(text, func(c rune) bool { return strings.ContainsRune(p.separators, c) }) {
			for p.spaced {
				at := secondPair(pair, name)
				if at < 0 {
					break
				}
				if !yield(pair[:at]) {
					return
				}
				pair = pair[at:]
			}
			if !yield(pair) {
				return
			}
		}
	}
}

const blanks = " \t"

// secondPair returns where in the value of a pair a name with a value follows white space; below
// 0: nowhere.
func secondPair(pair, name string) int {
	start := 0 // after the last sign
	for from := 0; ; from++ {
		sign := strings.IndexByte(pair[from:], '=')
		if sign < 0 {
			return -1
		}
		from += sign
		word := strings.TrimRight(pair[:from], blanks)
		at := 1 + strings.LastIndexAny(word[start:], blanks+"=") + start
		if at > start && word[at-1] != '=' && cookies.alike(word[at:], name) && strings.TrimLeft(word[:at], blanks) != "" {
			return at
		}
		start = from
	}
}

// first returns the first value of a name, decoded, and whether there are more.
func (p *pairing) first(texts []string, name string) (value string, more bool) {
	found, others, loose := false, false, loosely(name)
	for _, text := range texts {
		for pair := range p.all(text, name) {
			written, v, _ := strings.Cut(pair, "=")
			switch {
			case !found && p.named(written, loose):
				value, found = p.decode(v), true
			case !p.alike(written, name):
			case found:
				return value, true
			default:
				others = true
			}
		}
	}
	return value, found && others
}

// keepFirst returns the texts as one, in which the name stands once.
func (p *pairing) keepFirst(texts []string, name string) string {
	var kept []string
	found, loose := false, loosely(name)
	for _, text := range texts {
		for pair := range p.all(text, name) {
			written, _, _ := strings.Cut(pair, "=")
			if first := !found && p.named(written, loose); first || !p.alike(written, name) {
				kept, found = append(kept, strings.TrimSpace(pair)), found || first
			}
		}
	}
	return strings.Join(kept, p.joint)
}

// keepFirst removes from a request all values of the piece but the first.
func (p *piece) keepFirst(r *http.Request) {
	switch _, more := p.value(r); {
	case !more:
	case p.source == fromHeader:
		r.Header[p.text] = r.Header[p.text][:1:1]
	case p.source == fromCookie:
		r.Header.Set("Cookie", cookies.keepFirst(r.Header["Cookie"], p.text))
	case p.source == fromQuery:
		r.URL.RawQuery = queries.keepFirst([]string{r.URL.RawQuery}, p.text)
		r.RequestURI = r.URL.RequestURI()
	}
}

func decodeCookie(v string) string {
	v = strings.TrimSpace(v)
	if end := quotedEnd(v); end > 0 {
		v = unquote(v[1:end])
	} else {
		if end := strings.IndexAny(v, " \t"); end > 0 {
			v = v[:end]
		}
		if len(v) > 1 && v[0] == '"' { // some programs leave out the last character, whatever it is
			v = v[1 : len(v)-1]
		}
	}
	return unescape(v)
}

// quotedEnd returns the index of the closing quote of a value that begins with one; 0: there is none.
func quotedEnd(v string) int {
	if v == "" || v[0] != '"' {
		return 0
	}
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	if last := len(v) - 1; v[last] == '"' { // after a backslash
		return last
	}
	return 0
}

// unescape decodes the percent-encoded bytes of s, and + as a space. What is not valid is kept,
// as many programs do.
func unescape(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '+':
			b = append(b, ' ')
		case s[i] == '%' && i+2 < len(s):
			if v, err := hex.AppendDecode(b, []byte(s[i+1:i+3])); err == nil {
				b, i = v, i+2
				continue
			}
			b = append(b, s[i])
		default:
			b = append(b, s[i])
		}
	}
	return string(b)
}

// unquote decodes the backslashes of a quoted cookie: \" and octal numbers, as Python has them.
func unquote(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\\' || i+1 == len(s):
			b = append(b, s[i])
		case i+3 < len(s) && s[i+1]-'0' < 4 && s[i+2]-'0' < 8 && s[i+3]-'0' < 8: // what is below '0' wraps
			b = append(b, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 3
		default:
			i++
			b = append(b, s[i])
		}
	}
	return string(b)
}
