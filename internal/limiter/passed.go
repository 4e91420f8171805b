package limiter

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// varPassed is the variable of a request with the names of the zones that it has passed, of
// those that it may pass twice: in several handlers, or in a named route.
const varPassed = "rate_limit.passed"

// hasPassed reports whether the request has passed the zone before. It is not counted
// again: it would be a duplicate of itself, or wait for its own permit.
func hasPassed(r *http.Request, z *Zone) bool {
	names, _ := caddyhttp.GetVar(r.Context(), varPassed).([]string)
	return slices.Contains(names, z.Name)
}
