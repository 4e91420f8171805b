package limiter

import (
	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/dianalimiter/diana/internal/metrics"
)

// addToSpan adds to the request's span the decision of the zone that the access log would
// name, or of the first zone if all allowed it. A more notable one of an earlier handler stays.
func (q *request) addToSpan(e *exceeded) {
	span := oteltrace.SpanFromContext(q.r.Context())
	if !span.IsRecording() {
		return
	}
	z := q.notable(e)
	if z == nil {
		z = &q.zones[0]
	}
	_, cause := q.shownCause(z, e)
	has := false // a cause, of the decision that is replaced
	if q.l.meets.Load() {
		v, id := q.visit(), span.SpanContext().SpanID()
		if v.span == id {
			if v.spanned.Notability() > z.outcome.Notability() {
				return
			}
			has = v.spanned != metrics.Allowed
		}
		v.span, v.spanned = id, z.outcome
	}
	span.SetAttributes(attribute.String("rate_limit.zone", z.zone.WrittenName()), attribute.String("rate_limit.decision", z.outcome.String()))
	if has || cause != metrics.CauseNone {
		span.SetAttributes(attribute.String("rate_limit.cause", cause.String()))
	}
}
