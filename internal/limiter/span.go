package limiter

import (
	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/dianalimiter/diana/internal/metrics"
)

// addToSpan adds to the request's span the decision of the zone that the access log would
// name, or of the first zone if all allowed it.
func (q *request) addToSpan(e *exceeded) {
	span := oteltrace.SpanFromContext(q.r.Context())
	if !span.IsRecording() {
		return
	}
	z := q.notable(e)
	if z == nil {
		z = &q.zones[0]
	}
	span.SetAttributes(attribute.String("rate_limit.zone", z.zone.WrittenName()), attribute.String("rate_limit.decision", z.outcome.String()))
	if _, cause := q.shownCause(z, e); cause != metrics.CauseNone {
		span.SetAttributes(attribute.String("rate_limit.cause", cause.String()))
	}
}
