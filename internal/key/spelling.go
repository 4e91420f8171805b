package key

import (
	"net/http"
	"path"
	"runtime"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A client can spell a path and a host in many ways: /files/one is also //files/./one and
// /Files/%6fne. Their placeholders are therefore evaluated here, to the form in which
// Caddy's matchers compare them, so that all spellings are one key.

const (
	pathPlaceholder     = "http.request.uri.path"
	origPathPlaceholder = "http.request.orig_uri.path"
	labelPlaceholder    = "http.request.host.labels."
)

// Bytes that never stand in a value. They tell where it ends within a text.
const (
	notInMethod  = " /:|,;=@#?&"
	notInHost    = " /|#?@"
	notInSegment = "/"
)

// spelledPiece returns the piece of a placeholder for a path, a host or a part of either;
// false for any other.
func spelledPiece(name string) (piece, bool) {
	if rest, ok := strings.CutPrefix(name, pathPlaceholder); ok {
		return pathPiece(name, rest, fromPath)
	}
	if rest, ok := strings.CutPrefix(name, origPathPlaceholder); ok {
		return pathPiece(name, rest, fromOrigPath)
	}
	p := piece{name: name, source: fromHost, without: notInHost}
	switch {
	case name == "http.request.host":
		p.part, p.fold = hostOf, foldHost
	case name == "http.request.hostport", strings.EqualFold(name, headerPlaceholder+"Host"):
		p.name, p.part, p.fold = "http.request.hostport", whole, foldHostPort
	case name == "http.request.tls.server_name":
		p.source, p.fold = fromReplacer, foldHost
	case strings.HasPrefix(name, labelPlaceholder):
		n, err := strconv.Atoi(name[len(labelPlaceholder):])
		if err != nil || n < 0 {
			return piece{}, false
		}
		p.part, p.fold = func(s string) string { return label(foldHost(hostOf(s)), n) }, lower
	default:
		return piece{}, false
	}
	return p, true
}

// pathPiece returns the piece of a part of a path. rest follows the name of the whole path.
func pathPiece(name, rest string, from origin) (piece, bool) {
	p := piece{name: name, source: from, fold: lower, without: notInSegment}
	switch rest {
	case "":
		p.part, p.fold, p.without, p.rooted = whole, foldPath, "", true
	case ".dir":
		p.part, p.fold, p.without, p.rooted = dir, foldPath, "", true
	case ".file":
		p.part = file
	case ".file.base":
		p.part = base
	case ".file.ext":
		p.part = path.Ext
	default:
		n, err := strconv.Atoi(strings.TrimPrefix(rest, "."))
		if err != nil || n < 0 || rest[0] != '.' {
			return piece{}, false
		}
		p.part = func(s string) string { return segment(s, n) }
	}
	return p, true
}

// spelled returns the value of a spelled piece.
func (p *piece) spelled(r *http.Request) string {
	switch p.source {
	case fromPath:
		return p.part(Path(r))
	case fromOrigPath:
		if or, _ := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); or.URL != nil {
			return p.part(foldPath(rooted(or.Method, or.URL.Path)))
		}
		return ""
	case fromHost:
		return p.fold(p.part(r.Host))
	}
	val, _ := Replacer(r).Get(p.name)
	return p.fold(caddy.ToString(val))
}

// Path returns the path of a request in the form in which it is counted.
func Path(r *http.Request) string { return foldPath(rooted(r.Method, r.URL.Path)) }

// Host returns the host of a request, without a port, in the form in which it is counted.
func Host(r *http.Request) string { return foldHost(hostOf(r.Host)) }

// rooted returns the path of a request. An empty path is the root, except for
// CONNECT, which has none.
func rooted(method, p string) string {
	if p == "" && method != http.MethodConnect {
		return "/"
	}
	return p
}

// foldPath returns a decoded path as Caddy's path matcher compares it: without empty
// segments, . and .., in lower case. A final slash is kept.
func foldPath(p string) string {
	if !strings.HasPrefix(p, "/") || strings.Contains(p, "//") || strings.Contains(p, "/.") || runtime.GOOS == "windows" {
		p = caddyhttp.NormalizedPath(p, true)
	}
	return lower(p)
}

// foldHost returns a host without a port as Caddy's host matcher compares it: in lower
// case and without brackets. Final dots, which only make a name absolute, are cut.
func foldHost(host string) string {
	return lower(strings.TrimRight(strings.TrimLeft(host, "["), "]."))
}

// foldHostPort is foldHost for a host that may have a port, which is kept.
func foldHostPort(s string) string {
	at := portAt(s)
	if host := strings.TrimRight(s[:at], "."); len(host) < at {
		s = host + s[at:]
	}
	return lower(s)
}

// hostOf returns a host without its port.
func hostOf(s string) string { return s[:portAt(s)] }

// portAt returns where the port begins, with its colon: at the end if there is none.
func portAt(s string) int {
	at := strings.LastIndexByte(s, ':')
	switch {
	case at <= 0, s[0] == '[' && s[at-1] != ']', s[0] != '[' && strings.IndexByte(s, ':') != at:
		return len(s)
	}
	return at
}

// lower returns s in lower case. Unlike strings.ToLower it keeps bytes that are not UTF-8,
// so that paths in another encoding remain different.
func lower(s string) string {
	if utf8.ValidString(s) {
		return strings.ToLower(s)
	}
	b := make([]byte, 0, len(s))
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			b = append(b, s[0])
		} else {
			b = utf8.AppendRune(b, unicode.ToLower(r))
		}
		s = s[n:]
	}
	return string(b)
}

func whole(s string) string { return s }

func dir(p string) string {
	d, _ := path.Split(p)
	return d
}

func file(p string) string {
	_, f := path.Split(p)
	return f
}

func base(p string) string { return strings.TrimSuffix(path.Base(p), path.Ext(p)) }

// segment returns a segment of a path, counted from 0.
func segment(p string, n int) string {
	p = strings.TrimPrefix(p, "/")
	for ; n > 0; n-- {
		_, rest, ok := strings.Cut(p, "/")
		if !ok {
			return ""
		}
		p = rest
	}
	p, _, _ = strings.Cut(p, "/")
	return p
}

// label returns a label of a host name, counted from 0 at the end.
func label(host string, n int) string {
	for {
		at := strings.LastIndexByte(host, '.')
		switch {
		case n == 0:
			return host[at+1:]
		case at < 0:
			return ""
		}
		host, n = host[:at], n-1
	}
}

// folded returns the value of a part, as somebody wrote it, in the form by which requests
// are counted. Where a text does not tell where a path or a host in it begins and ends,
// it is taken as it is.
func (t Template) folded(s string) string {
	var b []byte
	rest, spelled := s, false
	for i := range t.pieces {
		n, ok := t.extent(i, rest)
		if !ok {
			return s
		}
		value := rest[:n]
		if fold := t.pieces[i].fold; fold != nil {
			value, spelled = fold(value), true
		}
		b, rest = append(b, value...), rest[n:]
	}
	if !spelled || rest != "" {
		return s
	}
	return string(b)
}

// extent returns the length of the value of piece i at the beginning of s; false if it
// cannot be told.
func (t Template) extent(i int, s string) (n int, ok bool) {
	p, after := &t.pieces[i], t.pieces[i+1:]
	if p.source == fromConstant {
		return len(p.text), strings.HasPrefix(s, p.text)
	}
	if suffix, ok := (Template{after}).Constant(); ok {
		return len(s) - len(suffix), strings.HasSuffix(s, suffix)
	}
	end := byte('/')
	switch next := &after[0]; {
	case next.source == fromConstant:
		end = next.text[0]
	case !next.rooted:
		return 0, false
	}
	n = strings.IndexByte(s, end)
	return n, n >= 0 && strings.IndexByte(p.without, end) >= 0
}
