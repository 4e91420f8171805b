package limiter

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// statusGone is the status that Caddy logs for a client that closed the connection
// before its answer.
const statusGone = 499

var errGone = errors.New("the client went away while it waited for its turn")

// ServeHTTP takes a request through the zones and, if it passes, on to next.
func (l *Limiter) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	a, err := l.admit(w, r)
	switch {
	case !a.passes:
		return err
	case a.charges != nil:
		return a.charges.serve(w, a.writer, next)
	case a.writer == nil:
		return next.ServeHTTP(w, r)
	}
	err = next.ServeHTTP(a.writer, r)
	a.writer.finish(err)
	return err
}

// admission is how a request goes on. It is made in a function of its own, so that
// nothing of the decision stays on the stack while the rest of the chain runs.
type admission struct {
	passes  bool
	writer  *writer  // that the response goes through; nil: the server's own
	charges *request // that something is to be done about after the response
}

// admit decides about a request, answers it if it is denied, and otherwise waits for
// its turn.
func (l *Limiter) admit(w http.ResponseWriter, r *http.Request) (a admission, err error) {
	q := newRequest(l, r)
	defer func() {
		if a.charges == nil {
			q.release()
		}
	}()
	if err = q.collect(); err != nil || len(q.zones) == 0 {
		return admission{passes: err == nil}, err
	}
	gone := q.decide(r.Context())
	var e *exceeded
	if !q.passes() {
		denial := q.exceeded()
		e = &denial
	}
	q.report(e)
	switch {
	case gone:
		return a, caddyhttp.Error(statusGone, errGone)
	case e != nil:
		return a, q.reject(w, e)
	}
	later := q.chargesLater()
	if q.check.Turn > 0 && sleep(r.Context(), time.Duration(q.check.Turn)*time.Microsecond) {
		if later {
			q.finish(0)
		}
		return a, caddyhttp.Error(statusGone, errGone)
	}
	a.passes = true
	if later {
		a.charges = q
	}
	if q.hasHeaders() {
		a.writer = newWriter(w)
		q.fillHeaders(&a.writer.headers)
	} else if q.countsStatus() {
		a.writer = newWriter(w)
	}
	return a, nil
}

// serve runs the rest of the chain, and charges afterwards what the response says.
// Also when the chain panics: a permit must not stay taken, and what was written
// before counts.
func (q *request) serve(w http.ResponseWriter, rw *writer, next caddyhttp.Handler) (err error) {
	defer q.release()
	status := 0
	defer func() {
		if status == 0 && rw != nil {
			status = rw.status
		}
		q.finish(status)
	}()
	if rw == nil {
		err = next.ServeHTTP(w, q.r)
	} else {
		err = next.ServeHTTP(rw, q.r)
		rw.finish(err)
		status = rw.status
	}
	if status == 0 {
		status = statusOf(err)
	}
	return err
}

// statusOf returns the status that an error is answered with.
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	var he caddyhttp.HandlerError
	if errors.As(err, &he) && he.StatusCode != 0 {
		return he.StatusCode
	}
	return http.StatusInternalServerError
}
