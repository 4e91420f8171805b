package diana

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/stores/redis"
)

// StoreUp implements redis.Observer.
func (a *App) StoreUp(name string) {
	a.metrics.setStoreUp(name, true)
	a.logger.Info("Redis is back: limits are shared again", zap.String("store", name))
	a.emit("rate_limit_store_up", map[string]any{"store": name})
}

// StoreDown implements redis.Observer.
func (a *App) StoreDown(name string, f redis.Failure, cause error) {
	advice := redis.Advice(f, cause)
	a.metrics.setStoreUp(name, false)
	fields := []zap.Field{zap.String("store", name), zap.Error(cause), zap.String("advice", advice)}
	if s := a.byName[name]; s != nil {
		fields = append(fields, zap.String("on_failure", s.OnFailure().String()))
		if n := s.Instances(); n > 0 {
			fields = append(fields, zap.Int64("instances", n))
		} else if s.OnFailure() == redis.FailLocal {
			a.logger.Warn("no instance was ever counted: this one enforces the whole of every limit while it is alone", zap.String("store", name))
		}
	}
	what := "Redis is away: going on without it"
	if f == redis.FailRefused || f == redis.FailWrong {
		what = "Redis refuses: going on without it"
	}
	a.logger.Error(what, fields...)
	a.emit("rate_limit_store_down", map[string]any{"store": name, "error": cause.Error(), "advice": advice})
}

// StoreError implements redis.Observer.
func (a *App) StoreError(name string, f redis.Failure, err error) {
	a.metrics.storeErrors.WithLabelValues(name, string(f)).Inc()
	if f != redis.FailWrong {
		return
	}
	if suppressed, ok := a.wrong.next(clock(), 1); ok {
		a.logger.Error("Redis gave an unexpected answer", zap.String("store", name), zap.Error(err),
			zap.String("advice", redis.Advice(f, err)), zap.Uint64("suppressed", suppressed))
	}
}

// ClockSteps implements redis.Observer.
func (a *App) ClockSteps(name string) { a.metrics.clockSteps.WithLabelValues(name).Inc() }

// Live implements redis.Observer.
func (a *App) Live(name string, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := a.storage.Store(ctx, instancesKey(name), []byte(strconv.Itoa(n))); err != nil {
		a.logger.Warn("keeping the number of instances", zap.String("store", name), zap.Error(err))
	}
}

func (a *App) emit(event string, data map[string]any) {
	if a.events != nil && a.events.ShouldEmit(event) {
		a.events.Emit(a.ctx, event, data)
	}
}

// redisLog takes what the Redis client says of itself, which it would otherwise
// write to standard error, past Caddy's logs.
type redisLog struct{}

// Printf implements go-redis' logger.
func (redisLog) Printf(_ context.Context, format string, v ...any) {
	caddy.Log().Named("rate_limit.redis").Debug(fmt.Sprintf(format, v...))
}

// nowhere is told of a store before its configuration runs.
type nowhere struct{}

func (nowhere) StoreUp(string)                          {}
func (nowhere) StoreDown(string, redis.Failure, error)  {}
func (nowhere) StoreError(string, redis.Failure, error) {}
func (nowhere) ClockSteps(string)                       {}
func (nowhere) Live(string, int)                        {}
func (nowhere) StoreWarning(string, string, string)      {}

// runningApp is the app of the configuration that runs. The next one starts
// before it is stopped, and gives everything back to it if the rest of its
// configuration does not start.
type runningApp struct {
	mu     sync.Mutex
	app    *App
	before *App              // app's predecessor, while it has not been stopped
	kinds  map[string]string // of the last one
}

var running runningApp

func (r *runningApp) start(a *App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.app != nil {
		r.kinds = r.app.kinds()
	}
	for name, is := range a.kinds() {
		if was, ok := r.kinds[name]; ok && was != is {
			a.tellAnew(name)
		}
	}
	r.before, r.app = r.app, a
	a.take()
}

// tellAnew says that a zone's counts start anew.
func (a *App) tellAnew(zone string) {
	a.logger.Info("the zone's rules or key are of another kind than before: its counts start anew", zap.String("zone", zone))
}

// current is the app of the configuration that runs; nil if none does.
func (r *runningApp) current() *App {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.app
}

func (r *runningApp) stop(a *App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.app != a { // another one runs in its place
		r.before = nil
		return
	}
	r.kinds = a.kinds()
	r.app, r.before = r.before, nil
	if r.app != nil {
		r.app.take()
	} else {
		theHistory.follow(nil, clock())
		a.releaseRules()
	}
}

// kinds are those of the zones' rules in force, to tell when a change starts
// their counts anew.
func (a *App) kinds() map[string]string {
	kinds := make(map[string]string, len(a.zones))
	for _, h := range a.remote.list() {
		for _, z := range h.zones {
			kinds[z.Name] = z.terms.Load().kinds
		}
	}
	return kinds
}
