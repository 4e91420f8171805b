package limiter

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/metrics"
)

// varPassed is the variable of a request with the names of the zones that it has passed, of
// those that it may pass twice: in several handlers, or in a named route.
const varPassed = "rate_limit.passed"

// Passed returns the zones that handlers after this leave out.
func Passed(r *http.Request) []string {
	names, _ := caddyhttp.GetVar(r.Context(), varPassed).([]string)
	return names
}

// SkipZones has the handlers after this leave out zones.
func SkipZones(r *http.Request, names []string) { caddyhttp.SetVar(r.Context(), varPassed, names) }

// hasPassed reports whether the request has passed the zone before. It is not counted
// again: it would be a duplicate of itself, or wait for its own permit.
func hasPassed(r *http.Request, z *Zone) bool { return slices.Contains(Passed(r), z.Name) }

// notePassed notes the zones that have admitted the request. Those in shadow would have admitted
// any.
func notePassed(r *http.Request, zones []zoneResult) {
	names := Passed(r)
	for i := range zones {
		if z := &zones[i]; z.zone.repeated && !z.shadow && z.outcome != metrics.Skipped {
			names = append(names, z.zone.Name)
		}
	}
	SkipZones(r, names)
}
