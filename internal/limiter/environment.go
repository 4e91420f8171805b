package limiter

import (
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/metrics"
)

// Environment is what all limiters of a configuration have in common.
type Environment struct {
	// Store returns the store that zones name; "" is the default.
	Store func(name string) (*Store, error)

	// Shared says whether a shared store is configured.
	Shared bool

	// MaxKeys is how many keys a zone keeps in this process that does not say.
	MaxKeys int64

	// Metrics count for the process.
	Metrics *metrics.Metrics

	// Listens reports whether somebody subscribed to an event.
	Listens func(event string) bool

	// Emit emits an event.
	Emit func(event string, data map[string]any)
}

// Options are the options of one handler.
type Options struct {
	// Zones are the zones, in the order in which a denial is looked for.
	Zones []*config.Zone

	// Matchers loads the matchers of a zone: which requests it applies to, and
	// which of them it exempts.
	Matchers func(z *config.Zone) (match, exempt caddyhttp.MatcherSets, err error)

	// Headers says which headers responses get: draft, legacy, all or off.
	Headers string

	// DefaultHeaders says that the configuration does not say which.
	DefaultHeaders bool

	// Jitter lengthens Retry-After at random by up to this fraction.
	Jitter float64

	// RejectStatus is the status of denied requests; 0: 429.
	RejectStatus int

	// LogKey writes keys into log lines.
	LogKey bool

	// DisableMetrics leaves the zones out of the metrics.
	DisableMetrics bool

	// Logger takes the lines about denied requests.
	Logger *zap.Logger
}
