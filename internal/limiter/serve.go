package limiter

import (
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/metrics"
)

// ServeHTTP decides about a request and, if it is admitted, calls next.
func (l *Limiter) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if l.mayInclude() && isVirtual(r) {
		return next.ServeHTTP(w, r)
	}
	a, err := l.admit(w, r)
	switch {
	case a.r == nil:
	case a.charges != nil:
		err = a.charges.serve(w, a.writer, next)
	case a.writer == nil:
		err = next.ServeHTTP(w, a.r)
	default:
		err = a.writer.finish(next.ServeHTTP(a.writer, a.r), l.o.ErrorRoutes)
	}
	if err != nil && l.o.ErrorRoutes {
		err = withBody(err, r)
	}
	return err
}

// admission is the result of admit, which is a function of its own so that the decision
// takes no stack while the rest of the chain runs.
type admission struct {
	r       *http.Request // for next; nil: the request is not admitted
	writer  *writer       // the response writer for next; nil: the original one
	charges *request      // the request to finish after the response; nil: none
}

// admit decides about a request. It responds if the request is denied, and otherwise
// waits for its turn in the queue of a leaky_bucket.
func (l *Limiter) admit(w http.ResponseWriter, r *http.Request) (a admission, err error) {
	q := l.newRequest(w, r)
	defer q.leave(&a)
	if err = q.collect(); err != nil {
		return a, err
	}
	if len(q.zones) == 0 {
		a.r = r
		return a, nil
	}
	l.noteDecided(r)
	if err = q.decide(r.Context()); err != nil {
		return a, err
	}
	if q.verdict != admitted {
		e := q.exceeded()
		if q.report(e); q.verdict == left {
			return a, respondGone(w, r)
		}
		return a, q.reject(w, e)
	}
	q.report(nil)
	if l.charges && q.chargesLater() {
		a.charges = q
	}
	if q.check.Turn > 0 {
		if sleep(r.Context(), time.Duration(q.check.Turn)*time.Microsecond, nil) {
			q.reportLeft()
			return a, respondGone(w, r)
		}
		q.begin()
	}
	if l.follows && q.outcome() == metrics.Delayed {
		beginAround(w)
	}
	if l.headers.any() && q.hasHeaders() {
		a.writer = newWriter(w, l.follows)
		q.fillHeaders(&a.writer.headers)
	}
	if a.charges != nil && q.needsStatus() {
		if a.writer == nil {
			a.writer = newWriter(w, l.follows)
		}
		q.watch(a.writer)
	}
	if l.repeats {
		q.notePassed()
	}
	if a.charges != nil && l.settles && l.o.AccessLogs {
		q.visit() // to which the cost is added after the response
	}
	a.r = q.r
	return a, nil
}

// leave ends the decision. If the client left while a leaky_bucket delayed its request, the request was charged and goes
// no further: it is finished without a response, which releases what it holds and charges nothing more.
func (q *request) leave(a *admission) {
	if a.charges != nil && a.r == nil {
		q.finish(&ending{})
		a.charges = nil
	}
	if q.mayWait {
		q.releaseSlots()
	}
	if a.charges == nil {
		if q.l.places {
			q.releasePlaces()
		}
		q.release()
	}
}

// serve runs the rest of the chain and finishes the request afterwards, also if the chain
// panics: permits must be released, and a status written before the panic counts. If the chain fails and
// nothing is written yet, the response that an error route writes finishes it.
func (q *request) serve(w http.ResponseWriter, rw *writer, next caddyhttp.Handler) (err error) {
	later, cut := false, true // if next panics
	defer func() {
		if !later {
			q.end(rw, cut, err, 0)
		}
	}()
	if rw != nil {
		w = rw
		if rw.charging != nil {
			q.charging.writer = rw
			q.l.underway.add(q)
		}
		if rw.measured != nil && rw.measured.reads {
			defer unencoded(q.r.Header)()
		}
	}
	err = next.ServeHTTP(w, q.r)
	if rw != nil {
		cut = err != nil && rw.status != 0 // without a status the error is the response
		err = rw.finish(err, q.l.o.ErrorRoutes)
	}
	if err != nil && q.l.o.ErrorRoutes && (rw == nil || !cut && !rw.gone) {
		later, err = q.answeredLater(rw, err)
	}
	return err
}

// end ends the request with its response, or with an error in the place of one. rw is nil if no zone needs the status;
// failed is the status of the error that an error route has answered, 0: none.
func (q *request) end(rw *writer, cut bool, err error, failed int) {
	end := ending{Response: config.Response{Status: http.StatusOK, End: config.Whole}}
	if rw != nil {
		if q.wasSettled(rw) {
			q.releasePlaces()
			q.release()
			return
		}
		end = rw.ending(q, cut, err)
	}
	if end.Status != 0 {
		end.Failed = failed
	}
	q.finish(&end)
	q.release()
}
