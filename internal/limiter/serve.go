package limiter

import (
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/body"
)

// ServeHTTP decides about a request and, if it is admitted, calls next.
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
	a.writer.finish(r, err)
	return err
}

// admission is the result of admit, which is a function of its own so that the decision
// takes no stack while the rest of the chain runs.
type admission struct {
	passes  bool
	writer  *writer  // the response writer for next; nil: the original one
	charges *request // the request to finish after the response; nil: none
}

// admit decides about a request. It responds if the request is denied, and otherwise
// waits for its turn in the queue of a leaky_bucket.
func (l *Limiter) admit(w http.ResponseWriter, r *http.Request) (a admission, err error) {
	q := l.newRequest(w, r)
	defer q.leave(&a)
	if err = q.collect(); err != nil || len(q.zones) == 0 {
		return admission{passes: err == nil}, err
	}
	if q.left, err = q.decide(r.Context()); err != nil {
		return a, err
	}
	var e *exceeded
	if !q.passes() {
		e = q.exceeded()
	}
	reporter{q}.report(e)
	switch {
	case q.left:
		return a, respondGone(w, r)
	case e != nil:
		return a, q.reject(w, e)
	}
	q.owes = l.charges && q.chargesLater()
	if q.check.Turn > 0 && sleep(r.Context(), time.Duration(q.check.Turn)*time.Microsecond, nil) {
		reporter{q}.reportLeft()
		return a, respondGone(w, r)
	}
	if l.headers.any && q.hasHeaders() {
		a.writer = newWriter(w, l.follows)
		q.fillHeaders(&a.writer.headers)
	}
	if q.owes && q.needsStatus() {
		if a.writer == nil {
			a.writer = newWriter(w, l.follows)
		}
		a.writer.client = &client{r.Context(), body.Watch(r)}
		if l.settles || l.lingers {
			a.writer.measured = q.measure()
		}
	}
	if l.repeats {
		notePassed(r, q.zones)
	}
	if a.passes = true; q.owes {
		a.charges = q
	}
	return a, nil
}

// leave ends the decision. A request that owes something and goes no further, because its client left while a
// leaky_bucket delayed it, is finished as one without a response: what it holds is released, and nothing more is
// charged.
func (q *request) leave(a *admission) {
	if q.owes && a.charges == nil {
		q.finish(&ending{})
	}
	if q.delays {
		q.releaseSlots()
	}
	if a.charges == nil {
		q.release()
	}
}

// serve runs the rest of the chain and finishes the request afterwards, also if the chain
// panics: permits must be released, and a status written before the panic counts.
func (q *request) serve(w http.ResponseWriter, rw *writer, next caddyhttp.Handler) (err error) {
	defer q.release()
	if rw == nil { // no zone needs the status
		defer q.finish(&ending{status: http.StatusOK})
		return next.ServeHTTP(w, q.r)
	}
	cut := true // if next panics
	if rw.client != nil {
		q.charging.writer, rw.charging = rw, &q.charging
		q.l.underway.add(q)
	}
	defer func() {
		if rw.charging != nil && q.l.underway.remove(q) {
			return
		}
		end := rw.ending(q, cut, err)
		q.finish(&end)
	}()
	if rw.measured != nil && rw.measured.reads {
		defer unencoded(q.r.Header)()
	}
	err = next.ServeHTTP(rw, q.r)
	cut = err != nil && rw.status != 0 // without a status the error is the response
	rw.finish(q.r, err)
	return err
}
