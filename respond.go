package diana

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/algorithms"
)

// responder answers denied requests in a zone's own way.
type responder struct {
	*Respond
}

// Problem types of RFC 9457 that denied requests are answered with, of
// draft-ietf-httpapi-ratelimit-headers-10.
const (
	problemQuota   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problemReduced = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

func newResponder(c *Respond) (*responder, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // no answer of its own
	}
	if s := c.Status; s != 0 && s != http.StatusOK && (s < 400 || s > 599) {
		return nil, fmt.Errorf("respond %d: want 400 to 599, or 200", s)
	}
	if c.Problem && c.Body != "" {
		return nil, errors.New("respond: want a body or problem, not both")
	}
	for name := range c.Headers {
		if !validHeader(name) {
			return nil, fmt.Errorf("respond: header %q: want a header field's name", name)
		}
	}
	return &responder{c}, nil
}

func validHeader(name string) bool {
	return name != "" && strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

var (
	errExceeded = errors.New("rate limit exceeded")
	errReduced  = errors.New("rate limits cannot be decided for the moment")
)

// refuse answers a request that does not pass: by the site's error routes, or
// as the zone that denied it says.
func (q *request) refuse(w http.ResponseWriter) error {
	d := q.denial
	status, cause := orDefault(q.h.RejectStatus, http.StatusTooManyRequests), errExceeded
	if q.unjudged() {
		status, cause = http.StatusServiceUnavailable, errReduced
	}
	id, retry := q.h.answerOf(d.retry)
	h := w.Header()
	if d.answer = [...]string{retry, "no-store"}; retry != "" {
		h[headerRetryAfter] = d.answer[:1:1]
	}
	if v := h[headerCacheControl]; len(v) == 0 || v[0] == "" {
		h[headerCacheControl] = d.answer[1:]
	}
	if q.told != nil {
		q.fill(q.told)
		if outer := outerWriter(w); outer != nil {
			outer.inner = q.told
		} else {
			q.told.set(h)
		}
	}
	if z := d.zone; z != nil && z.responder != nil {
		return z.responder.answer(w, q, status)
	}
	return caddyhttp.HandlerError{Err: cause, StatusCode: status, ID: id, Trace: refusedAt()}
}

// answerOf makes an error's id, as caddyhttp.Error does, and the value of
// Retry-After, in one piece. The latter is empty if no waiting would help.
func (h *Handler) answerOf(retry int64) (id, after string) {
	const letters = "abcdefghijkmnpqrstuvwxyz23456789"
	var room [32]byte
	b := room[:9]
	for i, bits := 0, rand.Uint64(); i < len(b); i++ { //nolint:gosec // it only has to tell errors apart
		b[i] = letters[bits%uint64(len(letters))]
		bits /= uint64(len(letters))
	}
	if retry != algorithms.Never {
		b = strconv.AppendInt(b, h.retryAfter(retry), 10)
	}
	s := string(b)
	return s[:9], s[9:]
}

// refusedAt is where Caddy's log says that a denial came from. Finding out for
// each would take longer than all the rest of it.
var refusedAt = sync.OnceValue(func() string { return caddyhttp.Error(0, errExceeded).Trace })

// retryAfter is the header's value: whole seconds, rounded up, at least 1, and
// longer at random by the handler's jitter.
func (h *Handler) retryAfter(us int64) int64 {
	s := max(1, seconds(us))
	if h.Jitter > 0 {
		s += int64(rand.Float64() * h.Jitter * float64(s)) //nolint:gosec // spreads load, hides nothing
	}
	return s
}

func (p *responder) answer(w http.ResponseWriter, q *request, status int) error {
	repl := replacer(q.r)
	h := w.Header()
	for name, values := range p.Headers {
		h.Del(name)
		for _, v := range values {
			h.Add(name, repl.ReplaceAll(v, ""))
		}
	}
	if !q.unjudged() {
		status = orDefault(p.Status, status)
	}
	if p.Problem {
		return q.problem(w, status)
	}
	resp := caddyhttp.StaticResponse{StatusCode: caddyhttp.WeakString(strconv.Itoa(status)), Body: p.Body}
	return resp.ServeHTTP(w, q.r, nil)
}

// problem writes a problem detail.
func (q *request) problem(w http.ResponseWriter, status int) error {
	body := struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies,omitempty"`
	}{problemQuota, "Request cannot be satisfied as assigned quota has been exceeded", status, q.violated()}
	if q.unjudged() {
		body.Type, body.Title = problemReduced, "Request cannot be satisfied due to temporary server capacity constraints"
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set(headerContentType, "application/problem+json")
	w.WriteHeader(status)
	_, err = w.Write(b)
	return err
}

// violated are the names of all rules that deny.
func (q *request) violated() (names []string) {
	if q.outright != nil {
		return []string{q.outright.z.Name + "." + q.outright.label}
	}
	for i := range q.uses {
		u := &q.uses[i]
		if u.shadow || u.item < 0 && u.twin < 0 {
			continue
		}
		if u.item >= 0 {
			it := &q.ask.Zones[u.item]
			for r, res := range it.Results {
				if !res.Admit {
					names = append(names, u.set.names[r])
				}
			}
			if it.Full {
				names = append(names, u.z.Name+"."+ruleInFlight)
			}
		}
		if u.twin >= 0 && !q.ask.Zones[u.twin].Admits {
			names = append(names, u.z.Name+"."+ruleDuplicates)
		}
	}
	return names
}
