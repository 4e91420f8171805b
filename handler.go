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
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	q := newRequest(h, r)
	defer q.release()
	if err := q.collect(); err != nil {
		return err
	}
	if len(q.uses) == 0 {
		return next.ServeHTTP(w, r)
	}
	gone := q.decide(r.Context())
	q.report()
	status := 0
	var rw *writer
	if q.finishes() {
		// Also when the rest of the chain panics: a place must not stay taken,
		// and what was written before counts.
		defer func() {
			if status == 0 && rw != nil {
				status = rw.status
			}
			q.finish(status)
		}()
	}
	if !q.passes() {
		if gone {
			return caddyhttp.Error(statusGone, errGone)
		}
		return q.refuse(w)
	}
	if q.ask.Turn > 0 && pause(r.Context(), time.Duration(q.ask.Turn)*time.Microsecond) {
		return caddyhttp.Error(statusGone, errGone)
	}
	told := q.tells()
	if !told && !q.counts() {
		err := next.ServeHTTP(w, r)
		status = statusOf(err)
		return err
	}
	rw = newWriter(w)
	if told {
		q.fill(&rw.told)
	}
	err := next.ServeHTTP(rw, r)
	rw.finish(err)
	if status = rw.status; status == 0 {
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
		if u.item < 0 || !q.ask.Items[u.item].Charged {
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
		if u.item < 0 || !q.ask.Items[u.item].Charged {
			continue
		}
		it := &q.ask.Items[u.item]
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
