package replay

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/dianalimiter/diana/internal/ops/routes"
)

// Line is a request in a log. Times are in microseconds since 1970.
type Line struct {
	Begin  int64 // when the request began
	End    int64 // and its response ended
	Status int   // of the response

	Method   string // of the request
	URI      string // as it was sent
	Proto    string // such as HTTP/1.1
	Host     string // with a port, if it has one
	RemoteIP string // the address of the connection
	ClientIP string // the client's address
	User     string // the ID that authentication found

	remotePort string // of the connection; empty: unknown

	headers gjson.Result // by name, of a line of Caddy
	some    http.Header  // the headers that a line of another server has
	tls     gjson.Result // of a line of Caddy: the state of the connection's TLS, if it has any
	size    int          // bytes of the line, which its fields refer to
	whole   bool         // whether it has a host and all headers
}

func (l *Line) time() int64 { return l.Begin }

// kind is what a line is.
type kind int

const (
	unread kind = iota // none of the formats
	other              // of another of Caddy's loggers
	access
)

// parse reads a line in the format of Caddy's JSON, or in the common or the combined one. It
// refers to text.
func (l *Line) parse(text string) kind {
	l.size = len(text)
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		return l.parseCommon(text)
	}
	if !gjson.Valid(text) {
		return unread
	}
	begins, served, lasts := false, false, int64(0)
	gjson.Parse(text).ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "ts":
			l.End, begins = timeOf(v)
		case "duration":
			lasts = durationOf(v)
		case "status":
			l.Status = int(v.Int())
		case "user_id":
			l.User = v.String()
		case "msg":
			served = v.Str == "handled request"
		case "request":
			v.ForEach(l.readRequest)
		}
		return true
	})
	if !served || !begins || l.Method == "" || l.URI == "" {
		return other
	}
	if l.ClientIP == "" {
		l.ClientIP = l.RemoteIP
	}
	l.Begin, l.whole = l.End-max(0, lasts), true
	return access
}

func (l *Line) readRequest(k, v gjson.Result) bool {
	switch k.Str {
	case "remote_ip":
		l.RemoteIP = v.String()
	case "remote_port":
		l.remotePort = v.String()
	case "client_ip":
		l.ClientIP = v.String()
	case "proto":
		l.Proto = v.String()
	case "method":
		l.Method = v.String()
	case "host":
		l.Host = v.String()
	case "uri":
		l.URI = v.String()
	case "headers":
		l.headers = v
	case "tls":
		l.tls = v
	}
	return true
}

// timeLayouts are the textual layouts of Caddy's time_format.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.000Z0700", "2006/01/02 15:04:05.000", "2006/01/02 15:04:05", commonTime, time.RFC1123Z}

// commonTime is the time of the common format.
const commonTime = "02/Jan/2006:15:04:05 -0700"

// timeOf returns a time in one of Caddy's formats: seconds, milliseconds or nanoseconds since 1970,
// or a text.
func timeOf(v gjson.Result) (us int64, ok bool) {
	if v.Type == gjson.String {
		for _, layout := range timeLayouts {
			if t, err := time.Parse(layout, v.Str); err == nil {
				return t.UnixMicro(), true
			}
		}
		return 0, false
	}
	switch f := v.Float(); {
	case f <= 0:
		return 0, false
	case f < 1e11:
		return int64(f*1e6 + 0.5), true
	case f < 1e14:
		return int64(f*1e3 + 0.5), true
	default:
		return v.Int() / 1000, true
	}
}

// durationOf returns a duration in one of Caddy's formats: seconds, which have decimals, whole
// milliseconds or nanoseconds, or a text. No request takes less than 10 µs.
func durationOf(v gjson.Result) (us int64) {
	switch {
	case v.Type == gjson.String:
		d, _ := time.ParseDuration(v.Str)
		return d.Microseconds()
	case strings.ContainsAny(v.Raw, ".eE"):
		return int64(min(v.Float(), 1e9)*1e6 + 0.5)
	case v.Int() < 10_000:
		return v.Int() * 1000
	}
	return v.Int() / 1000
}

// parseCommon reads `<host> <ident> <user> [<time>] "<request>" <status> <bytes>` and, of the
// combined format, `"<referer>" "<user agent>"`.
func (l *Line) parseCommon(text string) kind {
	// A client chooses the user, in which servers escape quotation marks, but not brackets.
	end := max(0, strings.Index(text, `] "`))
	begin := strings.LastIndex(text[:end], " [")
	if begin < 0 {
		return unread
	}
	who, rest := strings.Fields(text[:begin]), text[end+2:]
	if len(who) < 3 {
		return unread
	}
	ended, err := time.Parse(commonTime, text[begin+2:end])
	if err != nil {
		return unread
	}
	l.RemoteIP, l.User = who[0], strings.Trim(strings.Join(who[2:], " "), "-")
	l.ClientIP = l.RemoteIP
	line, rest, ok := quoted(rest)
	method, target, found := strings.Cut(line, " ")
	l.Method = method
	if l.URI, l.Proto, _ = strings.Cut(target, " "); !ok || !found || method == "" {
		return unread
	}
	status, rest, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if l.Status, err = strconv.Atoi(status); err != nil {
		return unread
	}
	l.End = ended.UnixMicro()
	l.Begin = l.End
	_, rest, _ = strings.Cut(rest, " ")
	referer, rest, more := quoted(rest)
	agent, _, again := quoted(rest)
	if l.some = make(http.Header); more && again {
		for name, value := range map[string]string{"Referer": referer, "User-Agent": agent} {
			if l.some[name] = nil; value != "-" {
				l.some[name] = []string{value}
			}
		}
	}
	return access
}

// quoted returns the text between the first quotes, with \" and \xHH decoded, and what follows.
func quoted(text string) (inside, rest string, ok bool) {
	at := strings.IndexByte(text, '"')
	if at < 0 {
		return "", text, false
	}
	text = text[at+1:]
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			if inside = text[:i]; strings.Contains(inside, `\`) {
				if plain, err := strconv.Unquote(`"` + inside + `"`); err == nil {
					inside = plain
				}
			}
			return inside, text[i+1:], true
		}
	}
	return "", text, false
}

// redacted is what Caddy writes for a header with credentials, unless log_credentials is set.
const redacted = "REDACTED"

// header returns the headers of the request.
func (l *Line) header() http.Header {
	if !l.whole {
		return l.some
	}
	h := make(http.Header)
	l.headers.ForEach(func(k, v gjson.Result) bool {
		name := http.CanonicalHeaderKey(k.Str)
		for _, value := range v.Array() {
			h[name] = append(h[name], value.String())
		}
		return true
	})
	return h
}

// request returns the request, with a body that is empty.
func (l *Line) request(host string) *http.Request {
	d := routes.Request{
		Method: l.Method, URI: l.URI, Host: cmp.Or(l.Host, host), Proto: l.Proto, Header: l.header(), Body: http.NoBody,
		RemoteIP: l.RemoteIP, RemotePort: l.remotePort, TLS: l.connection(),
	}
	if n, err := strconv.ParseInt(d.Header.Get("Content-Length"), 10, 64); err == nil {
		d.Length = n
	}
	return d.HTTP(context.Background())
}

// connection returns the state of the connection's TLS; nil: it has none.
func (l *Line) connection() *tls.ConnectionState {
	if !l.tls.Exists() {
		return nil
	}
	s := &tls.ConnectionState{HandshakeComplete: true}
	l.tls.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "resumed":
			s.DidResume = v.Bool()
		case "version":
			s.Version = uint16(v.Uint())
		case "cipher_suite":
			s.CipherSuite = uint16(v.Uint())
		case "proto":
			s.NegotiatedProtocol = v.String()
		case "server_name":
			s.ServerName = v.String()
		case "ech":
			s.ECHAccepted = v.Bool()
		}
		return true
	})
	return s
}

// lacks reports whether the line does not say what a decision reads.
func (l *Line) lacks(field, host string) bool {
	name, isHeader := strings.CutPrefix(field, "header ")
	switch field {
	case fieldHost:
		return l.Host == "" && host == ""
	case fieldAddress:
		return l.ClientIP == ""
	case fieldRemote:
		return l.RemoteIP == ""
	case fieldPort:
		return l.remotePort == ""
	case fieldTLS:
		return !l.whole
	case fieldCertificate: // a line has its subject
		return !l.whole || l.tls.Get("client_serial").Exists()
	}
	switch {
	case !isHeader:
		return true
	case !l.whole:
		_, has := l.some[name]
		return !has
	}
	if !l.headers.Exists() { // a filter has deleted them: Caddy writes them even if there are none
		return true
	}
	v := l.headers.Get(gjson.Escape(name))
	return v.Get("0").String() == redacted
}
