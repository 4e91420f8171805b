package limiter

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/dianalimiter/diana/internal/adaptive"
	"github.com/dianalimiter/diana/internal/lib/clock"
)

// unanswered is an admitted request whose next handler failed before it wrote a response. It ends with the response of
// an error route. If no error route responds, because another handler dropped the error or panicked, it ends with the
// request's context, which the server cancels.
type unanswered struct {
	q       *request
	rw      *writer // nil: no zone needs the status
	err     error
	charges []int64     // by zone, if no error route responds
	ended   atomic.Bool // whether it has ended, or an error route will end it
	stop    func() bool // stops waiting for the end of the context
}

// answeredLater leaves the end of the request to the error routes. It returns false if the request must end at once: its
// context never ends, and would not show that no error route responds.
func (q *request) answeredLater(rw *writer, err error) (later bool, _ error) {
	if q.r.Context().Done() == nil {
		return false, err
	}
	if q.l.places && outcomeOfStatus(statusOf(err)) == adaptive.Failed && !isDenial(err) {
		q.answered(clock.Now(), adaptive.Failed) // now: an error route takes its own time
	}
	u := &unanswered{q: q, rw: rw, err: err, charges: make([]int64, len(q.zones))}
	if rw != nil {
		rw.charging.lock() // it is still under way
		end := rw.ending(q, false, err)
		for i := range q.zones {
			if c := q.zones[i].rules; c != nil && c.Charged {
				response := end.of(i)
				u.charges[i], _ = q.zones[i].zone.Config.Charge.Settlement(q.r, c.Cost, &response)
			}
		}
		rw.charging.unlock()
	}
	f, err := failed(err)
	f.unanswered = append(f.unanswered, u)
	u.stop = context.AfterFunc(q.r.Context(), u.lapse)
	return true, err
}

// lapse ends a request to which no error route has responded. Other goroutines may read and write the HTTP request
// meanwhile.
func (u *unanswered) lapse() {
	if u.ended.Swap(true) {
		return
	}
	q := u.q
	q.releasePlaces()
	if u.rw != nil && q.wasSettled(u.rw) {
		q.release()
		return
	}
	for i := range q.zones {
		z := &q.zones[i]
		if c := z.rules; c != nil && c.Charged {
			z.zone.metrics.CountSettled(z.zone.Config.Charge.Whole(c.Cost, u.charges[i]), q.shard)
			z.zone.finish(q.r.Context(), c, u.charges[i])
		}
	}
	q.release()
}

// answers are the requests that the response of an error route ends.
type answers struct {
	w       http.ResponseWriter // what the error route writes to
	all     []*unanswered       // the innermost handler's first
	restore func()              // restores the Accept-Encoding of the request; nil: it was not changed
}

// answers returns the requests that the response of an error route ends. The route must write to the w of the result, so
// that the zones of those requests measure it.
func (f *failure) answers(w http.ResponseWriter, r *http.Request) answers {
	a := answers{w: w, all: slices.DeleteFunc(f.unanswered, func(u *unanswered) bool { return u.ended.Swap(true) })}
	f.unanswered = nil
	for _, u := range slices.Backward(a.all) {
		u.stop()
		if u.rw == nil {
			continue
		}
		again := *u.rw // a copy, because the response's header refers to values in the first
		again.ResponseWriter, again.headers, again.failure, again.outer = a.w, headers{}, nil, nil
		if u.q.l.places {
			again.placed = u.q
		}
		u.rw, a.w = &again, &again
		u.q.charging.follow(&again)
		if m := u.rw.measured; m != nil && m.reads && a.restore == nil {
			a.restore = unencoded(r.Header)
		}
	}
	return a
}

// end ends the requests with the response. With again, an error leaves them to outer error routes.
func (a answers) end(cut, again bool, err error) error {
	if a.restore != nil {
		a.restore()
	}
	for _, u := range a.all {
		if err != nil && again {
			var later bool
			if later, err = u.q.answeredLater(u.rw, err); later {
				continue
			}
		}
		u.end(cut)
	}
	return err
}

// end ends the request with the response. If nothing was written, the server writes the status of the first error.
func (u *unanswered) end(cut bool) { u.q.end(u.rw, cut, u.err, statusOf(u.err)) }
