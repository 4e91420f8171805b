package limiter

import (
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// Environment is shared by all limiters of a configuration.
type Environment struct {
	// Process is the process in which the configuration runs.
	Process *process.Process

	// Wall returns the time on the system's clock, for the calendar of local stores, when the
	// store's clock is at now. nil: they are the same.
	Wall func(now int64) int64

	// Store returns a store by its name; empty: the default store.
	Store func(name string) (*Store, error)

	// Responses reads in responses what their requests cost; nil if no zone has settle, tokens or linger.
	Responses config.Responses

	// Lists are the files of keys of overrides; nil if no zone has some.
	Lists Lists

	// MaxKeys is the max_keys of zones without the option.
	MaxKeys int64

	// Metrics are the metrics of the process.
	Metrics *metrics.Metrics

	// Rank returns the ranking of a zone's keys, which survives reloads under the identity id. It is
	// called only for zones with metrics.
	Rank func(r *pool.References, id any) Ranking

	// Listens reports whether an event has subscribers.
	Listens func(event string) bool

	// Emit emits an event if it has subscribers.
	Emit func(event string, data map[string]any)

	proxyLog atomic.Bool // whether a proxy that is not trusted was told of
}

// Ranking ranks the keys of a zone by their requests, their denials and what they cost.
type Ranking interface {
	// Count counts a request of a key, at an instant in microseconds and with random bits for sampling.
	// why is why it was denied, if it was. It reports whether Name should be called.
	Count(k stores.Key, why metrics.Cause, now int64, random uint32) bool

	// CountCost counts what a request of a key has cost in the end, like Count.
	CountCost(k stores.Key, cost, now int64, random uint32) bool

	// Name keeps the parts of a key.
	Name(k stores.Key, parts func() []string)
}

// wall returns the present: on the system's clock, or on the clock of an offline instance.
func (e *Environment) wall() int64 {
	if e.Wall == nil {
		return e.Process.Clock()
	}
	return e.Wall(clock.Now())
}

// Options are the options of one handler.
type Options struct {
	// Zones are the zones in order of evaluation.
	Zones []*config.Zone

	// Matchers loads the matchers of a zone.
	Matchers func(z *config.Zone) (match, exempt caddyhttp.MatcherSets, err error)

	// Headers selects the rate limit headers, by a value of the option; empty: it is not configured, which is
	// [DefaultHeaders].
	Headers string

	// Place is where the handler stands, such as "at Caddyfile:12".
	Place string

	// ErrorRoutes is set if the server has error routes.
	ErrorRoutes bool

	// Jitter is the fraction by which Retry-After is lengthened at random at most.
	Jitter float64

	// RejectStatus is the status code of denied requests; 0: 429.
	RejectStatus int

	// LogKey adds keys to log lines.
	LogKey bool

	// DisableMetrics leaves the zones out of the metrics.
	DisableMetrics bool

	// Invoked is set if a request may pass the handler twice, by named routes.
	Invoked bool

	// Placeholders is set if something may read the placeholders of the requests.
	Placeholders bool

	// AccessLogs is set if the server has access logs, to which decisions may be added.
	AccessLogs bool

	// Spans is set if requests may have spans, to which decisions are added.
	Spans bool

	// Logger logs denials and warnings.
	Logger *zap.Logger
}

// Lists are the files of keys of the overrides of a configuration.
type Lists interface {
	// Read reads a file, if it is not read yet.
	Read(file string) error

	// Text returns the text of a file that has been read.
	Text(file string) string
}
