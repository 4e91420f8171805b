package limiter

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/body"
)

// ending is how the response of a request ended.
type ending struct {
	config.Response // without what zones have measured, which body has

	body   *measured // nil: no zone settles by it
	denied bool      // whether a later handler denied the request, or its client left while it waited there
}

// left reports whether the client left before the end of the response of what follows the rate_limit handlers.
func (e *ending) left() bool { return e.End >= config.Left && !e.denied && !e.body.ended() }

// of returns what the response told the i-th zone of the request.
func (e *ending) of(i int) config.Response {
	r := e.Response
	if e.body == nil || e.body.zones[i].by == nil {
		r.Written = 0
		return r
	}
	if r.Measured = e.body.zones[i].by; r.End != config.Gone {
		r.End = e.body.zones[i].end
	}
	if e.body.method == http.MethodHead { // whose body is not sent, whatever handlers write
		r.Written = 0
	}
	return r
}

// watch makes a writer note what the ending of the response is to tell.
func (q *request) watch(rw *writer) {
	rw.client = client{q.r.Context(), body.Watch(q.r)}
	if q.mayBeCut() {
		rw.charging = &q.charging
	}
	if q.l.settles || q.l.lingers {
		rw.measured = q.measure()
	}
	if q.l.places {
		rw.placed = q
	}
}

// mayBeCut reports whether the response is charged, too, if the end of the process cuts it off.
func (q *request) mayBeCut() bool {
	if q.l.lingers {
		return true
	}
	for i := range q.zones {
		if q.zones[i].zone.Config.Charge.AfterResponse() {
			return true
		}
	}
	return false
}

// ending returns how the response of a request ended. err is the error of the next handler; cut says that the status was
// written before it failed. If a later handler denied the request with the status of a success, the request has not
// reached the upstream, and costs nothing.
func (rw *writer) ending(q *request, cut bool, err error) ending {
	end := ending{
		Response: config.Response{Status: rw.status, Written: rw.written, End: config.Whole},
		body:     rw.measured, denied: rw.denied || isDenial(err),
	}
	switch {
	case rw.gone || rw.status == 0 && rw.client.gone():
		end.End = config.Gone
	case (q.l.settles || q.l.lingers) && rw.left(q.r.Method):
		end.End = config.Left
	case cut:
		end.End = config.Cut
	}
	rw.placed = nil
	if !cut {
		end.Status = cmp.Or(rw.status, statusOf(err))
	}
	if q.l.settles {
		rw.measured.end(end.End == config.Whole)
	}
	if rw.denied && end.Status < http.StatusBadRequest {
		return ending{}
	}
	return end
}

// isDenial reports whether an error is that of a later rate_limit handler: what follows it has not had the request.
func isDenial(err error) bool {
	if err == nil {
		return false
	}
	_, is := errors.AsType[statusError](err)
	return is || errors.Is(err, errReduced) || errors.Is(err, errOverload) || errors.Is(err, errGone)
}

// statusOf returns the status of the response to an error.
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if he, ok := errors.AsType[caddyhttp.HandlerError](err); ok && he.StatusCode != 0 {
		return he.StatusCode
	}
	return http.StatusInternalServerError
}
