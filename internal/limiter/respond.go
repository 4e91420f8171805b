package limiter

import (
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/metrics"
)

// Problem types (RFC 9457) of denied requests, from
// draft-ietf-httpapi-ratelimit-headers-10.
const (
	problemQuota   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problemReduced = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

var errReduced = errors.New("rate limits cannot be decided for the moment")

var errOverload = errors.New("too many requests are in flight")

// statusGone is the status that Caddy logs if the client closed the connection before
// the response.
const statusGone = 499

var errGone = errors.New("the client closed the connection while its request waited")

// exceeded describes the denial of a request. It may be used after the handler returns.
type exceeded struct {
	zone  *Zone
	label string
	cause metrics.Cause
	retry int64 // microseconds, or algorithms.Never

	answer  [2]string     // the values of Retry-After and Cache-Control
	headers headers       // the rate limit headers of the response
	oneZone [1]zoneValues // room for the placeholders of a single zone
}

// reject responds to a denied request: with a status of gRPC if it is such a call, with the
// respond of the zone that denies it, or with an error for the error routes, unless it is in one
// already.
func (q *request) reject(w http.ResponseWriter, e *exceeded) error {
	status, cause := q.l.denialFor(q.verdict)
	id, after := identify(uint64(q.dice.throw())<<32|uint64(q.dice.throw()), e.retry, q.l.o.Jitter)
	e.setHeaders(w.Header(), after)
	var body []byte
	if q.l.headers.openAI() {
		body = q.openAIBody(e, after, e.setRetryOpenAI(w.Header(), after, q.l.o.Jitter))
	}
	if q.l.headers.any() && q.verdict != overloaded && q.hasHeaders() {
		q.fillHeaders(&e.headers)
		q.fillFormats(&e.headers, w)
	}
	f := q.setDenialHeaders(w, e, status, body)
	respond := e.zone != nil && e.zone.Respond != nil
	switch {
	case !isGRPC(q.r) && !respond && q.returnsError(body):
		if f != nil {
			f.error, cause = cause, f
		}
		return caddyhttp.HandlerError{Err: cause, StatusCode: status, ID: id, Trace: trace()}
	case q.l.follows:
		noteDenied(w)
	}
	switch {
	case isGRPC(q.r):
		respondGRPC(w, cause)
	case respond:
		return q.respond(w, e.zone.Respond, status)
	case body != nil:
		return writeOpenAI(w, status, body)
	default:
		w.WriteHeader(status)
	}
	return nil
}

// returnsError reports whether a denial that no respond answers is an error for others: for error routes, unless the
// request is in one already, and without any for the server, unless the denial has a body.
func (q *request) returnsError(body []byte) bool {
	if q.l.o.ErrorRoutes {
		return !inErrorRoute(q.r)
	}
	return body == nil
}

// setDenialHeaders sets the rate limit headers of a denial, or passes them to the handlers around this
// one. It returns all that the denial sets, for error routes and those handlers; nil: there are none.
func (q *request) setDenialHeaders(w http.ResponseWriter, e *exceeded, status int, body []byte) *failure {
	outer := outerWriter(w)
	if outer == nil && q.l.headers.any() {
		e.headers.set(w.Header())
	}
	if outer == nil && !q.l.o.ErrorRoutes {
		return nil
	}
	h := w.Header()
	f := &failure{denial: e, status: status, body: body, openAI: [...]string{first(h[headerRetryMilliseconds]), first(h[headerShouldRetry])}}
	if outer != nil {
		outer.addDenial(e, f)
	}
	return f
}

// first returns the first of the values of a header; empty: there is none.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// noteDenied tells the outer handlers that the response is a denial, or that the client left before. After an error they
// are not told: an error route may pass the request on, and what that takes is theirs to charge.
func noteDenied(w http.ResponseWriter) {
	for o := outerWriter(w); o != nil; o = outerWriter(o.ResponseWriter) {
		o.denied = true
	}
}

// denialFor returns the status and the error of a denial.
func (l *Limiter) denialFor(v verdict) (status int, err error) {
	switch v {
	case unavailable:
		return http.StatusServiceUnavailable, errReduced
	case overloaded:
		return http.StatusServiceUnavailable, errOverload
	}
	return l.status, l.denial
}

// denialOf returns the error of a request that a zone denies; nil: the handler responds itself.
func (l *Limiter) denialOf(r *http.Request, z *Zone, v verdict) error {
	if z.Respond != nil || isGRPC(r) || inErrorRoute(r) || l.headers.openAI() && !l.o.ErrorRoutes {
		return nil
	}
	return caddyhttp.Error(l.denialFor(v))
}

// inErrorRoute reports whether the request is in an error route. Nothing handles an error that is
// returned there: Caddy logs it, and responds with the status of the first one.
func inErrorRoute(r *http.Request) bool { return r.Context().Value(caddyhttp.ErrorCtxKey) != nil }

// setHeaders sets Cache-Control unless it is set already, and Retry-After unless it is empty. It
// looks first and sets then, since a look-up costs least while the header is empty.
// The values are slices of e, to save allocations.
func (e *exceeded) setHeaders(h http.Header, retryAfter string) {
	if e.answer = [...]string{retryAfter, "no-store"}; first(h[headerCacheControl]) == "" {
		h[headerCacheControl] = e.answer[1:]
	}
	if retryAfter != "" {
		h[headerRetryAfter] = e.answer[:1:1]
	}
}

// trace returns the position in the code that Caddy logs with an error. It is the same
// for all denials, and determining it takes longer than the rest of a denial.
var trace = sync.OnceValue(func() string { return caddyhttp.Error(0, errReduced).Trace })

// identify returns an error ID of random bits in the format of caddyhttp.Error, and the value of
// Retry-After, empty if the request would never be admitted. Both are substrings of one
// string, to save an allocation.
func identify(bits uint64, retry int64, jitter float64) (id, after string) {
	const letters = "abcdefghijkmnpqrstuvwxyz23456789"
	var room [32]byte
	b := room[:9]
	for i := range b {
		b[i] = letters[bits%uint64(len(letters))]
		bits /= uint64(len(letters))
	}
	if retry != algorithms.Never {
		b = strconv.AppendInt(b, retryAfter(retry, jitter), 10)
	}
	s := string(b)
	return s[:9], s[9:]
}

// retryAfter returns the value of Retry-After: seconds, rounded up, at least 1, and
// lengthened at random by at most the fraction jitter.
func retryAfter(us int64, jitter float64) int64 {
	s := max(1, seconds(us))
	if jitter > 0 {
		s += int64(rand.Float64() * jitter * float64(s)) //nolint:gosec // it only spreads load
	}
	return s
}

// respond writes the response that a zone's respond configures.
func (q *request) respond(w http.ResponseWriter, c *config.Respond, status int) error {
	repl := key.Replacer(q.r)
	h := w.Header()
	for name, values := range c.Headers {
		h.Del(name)
		for _, v := range values {
			h.Add(name, repl.ReplaceAll(v, ""))
		}
	}
	if q.verdict != unavailable {
		status = cmp.Or(c.Status, status)
	}
	if c.Problem {
		if q.verdict == overloaded {
			return problem(w, status, nil, true)
		}
		return problem(w, status, q.violated(), q.verdict == unavailable)
	}
	resp := caddyhttp.StaticResponse{StatusCode: caddyhttp.WeakString(strconv.Itoa(status)), Body: c.Body}
	return resp.ServeHTTP(w, q.r, nil)
}

// problem writes a problem detail. unavailable is whether the store could not decide.
func problem(w http.ResponseWriter, status int, violated []string, unavailable bool) error {
	body := struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies,omitempty"`
	}{problemQuota, "Request cannot be satisfied as assigned quota has been exceeded", status, violated}
	if unavailable {
		body.Type, body.Title = problemReduced, "Request cannot be satisfied due to temporary server capacity constraints"
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, err = w.Write(b)
	return err
}

// isGRPC reports whether a request is a call of gRPC. Its clients do not read bodies, and take
// the status 429 for UNAVAILABLE, which they may send again at once.
func isGRPC(r *http.Request) bool {
	if r.ProtoMajor < 2 {
		return false
	}
	format, ok := strings.CutPrefix(strings.ToLower(r.Header.Get(headerContentType)), "application/grpc")
	return ok && (format == "" || format[0] == '+' || format[0] == ';')
}

// respondGRPC writes a response that is only trailers, which gRPC puts into the header.
func respondGRPC(w http.ResponseWriter, cause error) {
	status, message := "8", "rate limit exceeded" // RESOURCE_EXHAUSTED
	if _, limited := errors.AsType[statusError](cause); !limited {
		status, message = "14", cause.Error() // UNAVAILABLE
	}
	h := w.Header()
	h.Set(headerContentType, "application/grpc")
	h.Set("Grpc-Status", status)
	h.Set("Grpc-Message", message)
	w.WriteHeader(http.StatusOK)
}

// respondGone ends a request whose client closed the connection while it waited.
func respondGone(w http.ResponseWriter, r *http.Request) error {
	if inErrorRoute(r) {
		noteDenied(w)
		w.WriteHeader(statusGone)
		return nil
	}
	return caddyhttp.Error(statusGone, errGone)
}
