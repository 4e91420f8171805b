package diana

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// statusGone is what Caddy notes of a client that did not wait for its answer.
const statusGone = 499

var errGone = errors.New("the client went away while it waited for its turn")

// ServeHTTP implements caddyhttp.MiddlewareHandler.
//
// What the rest of the chain needs of a connection's stack comes on top of what
// this takes, and stacks grow by doubling, again after each garbage collection.
// So nothing stays on it that is not needed any more.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	later, rw, passes, err := h.admit(w, r)
	switch {
	case later != nil:
		return later.serve(w, next)
	case !passes:
		return err
	case rw == nil:
		return next.ServeHTTP(w, r)
	}
	err = next.ServeHTTP(rw, r)
	rw.finish(err)
	return err
}

// admit decides about a request, and refuses it if it does not pass. It returns the
// request, of which nothing else was done yet, if something is to be done after the
// response; and the writer that the response goes through, if any.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) (later *request, rw *writer, passes bool, err error) {
	q := newRequest(h, r)
	defer func() {
		if later == nil {
			q.release()
		}
	}()
	if err = q.collect(); err != nil || len(q.uses) == 0 {
		return nil, nil, err == nil, err
	}
	q.gone = q.decide(r.Context())
	q.report()
	if q.finishes() {
		return q, nil, false, nil
	}
	rw, passes, err = q.open(w)
	return nil, rw, passes, err
}

// open lets a request pass when it is its turn, or refuses it.
func (q *request) open(w http.ResponseWriter) (rw *writer, passes bool, err error) {
	if !q.passes() {
		if q.gone {
			return nil, false, caddyhttp.Error(statusGone, errGone)
		}
		return nil, false, q.refuse(w)
	}
	if q.ask.Turn > 0 && pause(q.r.Context(), time.Duration(q.ask.Turn)*time.Microsecond) {
		return nil, false, caddyhttp.Error(statusGone, errGone)
	}
	told := q.tells()
	if !told && !q.counts() {
		return nil, true, nil
	}
	rw = newWriter(w)
	if told {
		q.fill(&rw.told)
	}
	return rw, true, nil
}

// serve does after the response what is to be done then. Also when the rest of the
// chain panics: a place must not stay taken, and what was written before counts.
func (q *request) serve(w http.ResponseWriter, next caddyhttp.Handler) error {
	defer q.release()
	status := 0
	var rw *writer
	defer func() {
		if status == 0 && rw != nil {
			status = rw.status
		}
		q.finish(status)
	}()
	rw, passes, err := q.open(w)
	switch {
	case !passes:
		return err
	case rw == nil:
		err = next.ServeHTTP(w, q.r)
	default:
		err = next.ServeHTTP(rw, q.r)
		rw.finish(err)
		status = rw.status
	}
	if status == 0 {
		status = statusOf(err)
	}
	return err
}

// statusOf is the status that an error is answered with.
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

// passes says whether the request goes on.
func (q *request) passes() bool { return q.outright == nil && q.ask.Admitted }

// counts says whether a zone wants to know the response's status.
func (q *request) counts() bool {
	for i := range q.uses {
		if q.uses[i].z.statuses.some {
			return true
		}
	}
	return false
}

// finishes says whether something is left to be done after the response.
func (q *request) finishes() bool {
	if q.outright != nil {
		return false
	}
	for i := range q.uses {
		u := &q.uses[i]
		if u.item < 0 || !q.ask.Zones[u.item].Charged {
			continue
		}
		if u.z.Settle != "" || u.z.statuses.some || u.z.InFlight > 0 {
			return true
		}
	}
	return false
}

// finish gives back the places that the request held and charges what its
// response says.
func (q *request) finish(status int) {
	for i := range q.uses {
		u := &q.uses[i]
		if u.item < 0 || !q.ask.Zones[u.item].Charged {
			continue
		}
		it := &q.ask.Zones[u.item]
		charge := int64(0)
		if u.z.statuses.some && u.z.statuses.counts(status) {
			charge = it.Cost
		}
		if u.z.Settle != "" && (charge > 0 || !u.z.statuses.some) {
			if n, ok := amount(u.z.settle, q.r); ok {
				charge += max(0, n-it.Cost)
			}
		}
		u.z.store.Finish(q.r.Context(), it, charge)
	}
}
