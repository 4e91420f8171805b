package diana

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/lib/background"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/events"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/stores"
)

// storeEvents logs, counts and emits the events of the shared stores. A store reports them
// in the time of a request or of a heartbeat, so log lines are written in the background.
type storeEvents struct {
	logger   *zap.Logger
	storage  certmagic.Storage
	metrics  *metrics.Metrics
	emitter  events.Emitter
	lines    *background.Queue // log lines, each followed by its event
	registry *limiter.Registry
	marks    *history.Marks
	live     *background.Queue                // see liveCounts
	stores   func(name string) *limiter.Store // nil: no such store
	figures  func() []byte                    // what other instances are shown of this one

	wrong        loglimit.Limit  // of lines about unexpected answers
	unsubscribed loglimit.Minute // of lines about a failed subscription
}

// StoreUp implements stores.Observer.
func (e *storeEvents) StoreUp(name, node string) {
	e.marks.Add(history.Mark{At: time.Now(), Kind: history.MarkUp, Name: name, Text: node})
	e.lines.Add(func() {
		e.logger.Info(e.about(name, "Redis is back: limits are shared again"), ofNode(node, zap.String("store", name))...)
		e.emitter.Emit("rate_limit_store_up", withNode(node, map[string]any{"store": name}))
	})
}

// about returns a text about Redis as it is about a store, which may be of another module.
func (e *storeEvents) about(name, text string) string {
	if s := e.stores(name); s == nil || s.Module == defaultStore {
		return text
	}
	return strings.ReplaceAll(text, "Redis", "the store")
}

// ofNode adds a node of a Cluster to the fields of a log line.
func ofNode(node string, fields ...zap.Field) []zap.Field {
	if node != "" {
		fields = append(fields, zap.String("node", node))
	}
	return fields
}

// withNode adds a node of a Cluster to the data of an event.
func withNode(node string, data map[string]any) map[string]any {
	if node != "" {
		data["node"] = node
	}
	return data
}

// StoreDown implements stores.Observer.
func (e *storeEvents) StoreDown(name, node string, f stores.Failure, cause error) {
	advice := stores.Advice(cause)
	e.marks.Add(history.Mark{At: time.Now(), Kind: history.MarkDown, Name: name, Text: node})
	unknown := false
	fields := ofNode(node, zap.String("store", name), zap.Error(cause), zap.String("advice", advice))
	if s := e.stores(name); s != nil {
		fields = append(fields, zap.String("on_failure", s.OnFailure.String()))
		if n := instances(s.Shared); n > 0 {
			fields = append(fields, zap.Int64("instances", n))
		} else if s.OnFailure == stores.FailLocal {
			unknown = true
		}
	}
	what := "Redis is unavailable: on_failure applies"
	if f == stores.FailRejected || f == stores.FailWrong {
		what = "Redis rejects calls: on_failure applies"
	}
	e.lines.Add(func() {
		if unknown {
			e.logger.Warn(e.about(name, "the number of instances is unknown: this one enforces every limit in full until Redis is back"), zap.String("store", name))
		}
		e.logger.Error(e.about(name, what), fields...)
		e.emitter.Emit("rate_limit_store_down", withNode(node, map[string]any{"store": name, "error": cause.Error(), "advice": advice}))
	})
}

// instances returns how many instances a store last saw; 0: none, or it does not count them.
func instances(s stores.Shared) int64 {
	if s, ok := s.(stores.Observed); ok {
		return s.Instances()
	}
	return 0
}

// StoreError implements stores.Observer.
func (e *storeEvents) StoreError(name string, f stores.Failure, err error) {
	e.metrics.StoreErrors.WithLabelValues(name, string(f)).Inc()
	if f != stores.FailWrong {
		return
	}
	if suppressed, ok := e.wrong.Next(clock.Now(), 1); ok {
		e.lines.Add(func() {
			e.logger.Error(e.about(name, "Redis gave an unexpected answer"), zap.String("store", name), zap.Error(err),
				zap.String("advice", stores.Advice(err)), zap.Uint64("suppressed", suppressed))
		})
	}
}

// StoreWarning implements stores.Observer.
func (e *storeEvents) StoreWarning(name, what, advice string) {
	e.lines.Add(func() { e.logger.Warn(what, zap.String("store", name), zap.String("advice", advice)) })
}

// Uncharged implements stores.Observer.
func (e *storeEvents) Uncharged(zone string, why stores.Uncharged, cost int64) {
	e.metrics.Uncharged.WithLabelValues(zone, string(why)).Add(float64(cost))
}

// ClockSteps implements stores.Observer.
func (e *storeEvents) ClockSteps(name string) { e.metrics.ClockSteps.WithLabelValues(name).Inc() }

// liveKey returns where the number of live instances at a place is stored: those at another are others.
func liveKey(place string) string { return "rate_limit/instances/" + rules.Fingerprint(place) }

// liveCounts stores the numbers of live instances. A heartbeat that waited for the storage
// would be late.
var liveCounts = process.Var[background.Queue]{New: func() *background.Queue {
	return background.NewQueue(caddy.Log().Named("rate_limit"), 0, "")
}}

// Live implements stores.Observer. It stores the number of live instances for the next
// process.
func (e *storeEvents) Live(name string, n int) {
	s := e.stores(name)
	if s == nil {
		return
	}
	e.live.Save(e.storage, liveKey(s.Place), []byte(strconv.Itoa(n)), func(err error) {
		e.logger.Warn("the number of instances was not written to Caddy's storage: after a restart without Redis, every limit is enforced in full", zap.String("store", name), zap.Error(err))
	})
}

// lastLive returns the number of live instances at a place last stored, by this process or an
// earlier one; 0: unknown.
func (e *storeEvents) lastLive(place string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	b, err := e.storage.Load(ctx, liveKey(place))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// Reset implements stores.ResetObserver.
func (e *storeEvents) Reset(store, zone string, k stores.Key) {
	s := e.stores(store)
	if s != nil && config.CheckName(zone) == nil {
		e.registry.ResetElsewhere(s, zone, k)
	}
}

// Unsubscribed implements stores.ResetObserver.
func (e *storeEvents) Unsubscribed(store string, err error) {
	if e.unsubscribed.Next(clock.Now()) {
		e.lines.Add(func() {
			e.logger.Error(e.about(store, "Redis rejects the subscription to the channel on which instances announce resets of keys"), zap.String("store", store), zap.Error(err), zap.String("advice", stores.Advice(err)))
		})
	}
}

// Figures implements stores.FleetObserver.
func (e *storeEvents) Figures() []byte { return e.figures() }

// Interface guards
var (
	_ stores.FleetObserver = (*storeEvents)(nil)
	_ stores.Observer      = (*storeEvents)(nil)
	_ stores.ResetObserver = (*storeEvents)(nil)
)
