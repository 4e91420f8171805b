package limiter

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// visit is what the rate_limit handlers of a request share. It is put into the variables of the request before a next
// handler runs, and not later: goroutines of reverse_proxy may read the variables until after the response. In an error
// route it is in the context instead.
type visit struct {
	counted bool             // whether the request was counted
	outcome metrics.Outcome  // under which it was counted
	logged  *logDecision     // its field of the access log; nil: none yet
	span    oteltrace.SpanID // the span with a decision; zero: none yet
	spanned metrics.Outcome  // the outcome in that span
	zones   []passage        // the zones that it may meet twice: in several handlers, or in a named route
}

// passage is a zone that a request has met.
type passage struct {
	zone    string
	apart   bool            // whether it was counted as a shadow apart from the zone
	passed  bool            // whether the zone has admitted it
	charged bool            // whether its cost is in the figures of the zone
	outcome metrics.Outcome // under which it was counted
}

// varVisit is the variable of a request with its *visit.
const varVisit = "rate_limit.visit"

// visitKey is the key of a *visit in the context of a request.
type visitKey struct{}

// visitOf returns the visit of a request; nil: it has none yet.
func visitOf(ctx context.Context) *visit {
	if v, ok := caddyhttp.GetVar(ctx, varVisit).(*visit); ok {
		return v
	}
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// visit returns the visit of the request, a new one if it has none. Whoever needs it after the next handler has run must
// call visit before, too.
func (q *request) visit() *visit {
	v := visitOf(q.r.Context())
	switch {
	case v != nil:
	case inErrorRoute(q.r):
		v = new(visit)
		q.r = q.r.WithContext(context.WithValue(q.r.Context(), visitKey{}, v))
	default:
		v = new(visit)
		caddyhttp.SetVar(q.r.Context(), varVisit, v)
	}
	return v
}

// met returns the passage of a zone that the request has met; nil: it has not.
func (v *visit) met(zone string) *passage {
	if v == nil {
		return nil
	}
	for i := range v.zones {
		if v.zones[i].zone == zone {
			return &v.zones[i]
		}
	}
	return nil
}

// meet returns the passage of a zone that the request meets now, and whether it meets it first.
func (v *visit) meet(zone string) (p *passage, first bool) {
	if p = v.met(zone); p != nil {
		return p, false
	}
	v.zones = append(v.zones, passage{zone: zone})
	return &v.zones[len(v.zones)-1], true
}

// Passed returns the names of the zones that the request has passed: later handlers leave them out.
func Passed(r *http.Request) (names []string) {
	if v := visitOf(r.Context()); v != nil {
		for _, p := range v.zones {
			if p.passed && !p.apart {
				names = append(names, p.zone)
			}
		}
	}
	return names
}

// SkipZones makes later handlers leave out zones, as if the request had passed them.
func SkipZones(r *http.Request, names []string) {
	v := (&request{r: r}).visit()
	for _, name := range names {
		p, _ := v.meet(name)
		p.passed, p.apart = true, false
	}
}

// hasPassed reports whether the request has passed the zone before. It is not counted again: it would be a
// duplicate of itself, or wait for its own permit.
func (q *request) hasPassed(z *Zone) bool {
	p := visitOf(q.r.Context()).met(z.Name)
	return p != nil && p.passed && (!p.apart || z.countsApart(z.active.Load()))
}

// notePassed notes the zones that have admitted the request.
func (q *request) notePassed() {
	for i := range q.zones {
		if z := &q.zones[i]; z.zone.repeated && z.outcome != metrics.Skipped {
			p, first := q.visit().meet(z.zone.Name)
			p.apart = z.apart && (first || p.apart || !p.passed)
			p.passed = true
		}
	}
}

// countsApart reports whether the zone is in shadow while another handler enforces it. Such a shadow has counts of its
// own.
func (z *Zone) countsApart(a *activeRules) bool {
	return z.repeated && a.shadow && z.enforced != nil && z.enforced.Load() > 0
}

// apartKey returns the key, or the tag, that a shadow which counts apart uses in place of k.
func apartKey(k stores.Key) stores.Key { return stores.Key{Hi: ^k.Hi, Lo: k.Lo} }

// countRepeated counts the decision of a zone that a request may meet twice. Of the decisions in several handlers, the
// strictest counts. first says that the zone had not counted the request.
func (q *request) countRepeated(z *zoneResult) (first bool) {
	p, first := q.visit().meet(z.zone.Name)
	switch {
	case first:
		z.zone.metrics.Count(z.outcome, q.shard)
	case p.outcome == metrics.Denied || z.outcome == metrics.Allowed:
		return false
	case z.zone.metrics.Counters != nil:
		z.zone.metrics.Counters.Move(p.outcome, z.outcome, q.shard)
	}
	p.outcome = z.outcome
	return first
}
