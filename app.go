package diana

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/configure/walk"
	"github.com/dianalimiter/diana/internal/configure/warnings"
	"github.com/dianalimiter/diana/internal/follow/lists"
	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/lib/background"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/events"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/running"
	"github.com/dianalimiter/diana/internal/topk"
	"github.com/dianalimiter/diana/internal/usage/settle"
)

const (
	defaultMaxKeys = 1_000_000

	// maxEvents is how many events, and how many log lines, wait for their handlers at most.
	maxEvents = 1024
)

// Provision implements caddy.Provisioner.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.process, a.logger = ctx, process.Of(ctx), ctx.Logger()
	if _, err := names.App(ctx); err != nil {
		return err
	}
	names.Report(a.logger)
	a.warned, a.autoNames, a.errorRoutes = make(map[string]bool), make(map[string]int), make(errorRoutes)
	a.started = time.Now()
	a.hash.Add(a.public())
	invalid := []error{checkHeaders(a.Headers), config.CheckMaxKeys(a.MaxKeys)}
	emits, err := ctx.App("events")
	if err != nil {
		return err
	}
	a.events = background.NewQueue(a.logger, maxEvents, "events were dropped, because their handlers take too long")
	a.lines = background.NewQueue(a.logger, maxEvents, "log lines about stores were dropped, because writing them takes too long")
	eventsApp, _ := emits.(*caddyevents.App)
	e, err := events.NewEmitter(ctx, eventsApp, a.events)
	if err != nil {
		return err
	}
	m := metrics.Of(a.process)
	if err := ctx.GetMetricsRegistry().Register(m.Collector(apps.Of(a.process).exposed)); err != nil {
		return err
	}
	local := &limiter.Store{Store: counts.Of(a.process), Name: localStore, Hasher: localHasher}
	a.stores.process, a.stores.byName = a.process, map[string]*limiter.Store{localStore: local}
	a.stores.events = &storeEvents{
		logger: a.logger, storage: ctx.Storage(), metrics: m, emitter: e, lines: a.lines, stores: a.stores.find,
		live: liveCounts.Of(a.process), marks: history.MarksOf(a.process),
	}
	for i, raw := range a.StoresRaw {
		s, err := parseStoreJSON(raw)
		if err == nil {
			err = a.stores.add(ctx, &s, &a.refs)
		}
		invalid = append(invalid, option.Each(err, func(err error) error {
			return fmt.Errorf("store %s: %w", cmp.Or(s.Name, strconv.Itoa(i+1)), err)
		}))
	}
	if err := option.Join(invalid...); err != nil {
		return err
	}
	a.lists = lists.New()
	a.env = limiter.Environment{
		Process: a.process, Store: a.stores.get, Responses: settle.Responses{}, Lists: a.lists, MaxKeys: cmp.Or(a.MaxKeys, defaultMaxKeys),
		Metrics: m, Rank: func(r *pool.References, id any) limiter.Ranking { return topk.Acquire(r, id) }, Listens: e.Listens, Emit: e.Emit, Wall: clock.Wall,
	}
	if a.process.Clock != nil {
		a.env.Wall, counts.Of(a.process).Clock = nil, a.process.Clock
	}
	if err := a.provisionRules(); err != nil {
		return err
	}
	a.stores.events.registry = a.registry
	a.instance = &running.Instance{
		Process: a.process, Registry: a.registry, Stores: a.stores.shared(), Follower: a.follower, Lists: a.lists,
		Logger: a.logger, Started: a.started, Hash: a.hash.String, Servers: a.servers, Limiter: limiterOf,
		Source: a.loadSource, Check: a.checkPlaces, Complete: a.startQuotas,
	}
	a.stores.events.figures = func() []byte { return running.Tools.Figures(a.instance) }
	if a.process.Clock != nil { // offline, nothing starts
		running.Of(a.process).Set(a.instance)
	}
	return nil
}

// Start implements caddy.App.
func (a *App) Start() error {
	if err := a.startQuotas(); err != nil {
		return err
	}
	apps.Of(a.process).start(a)
	a.logBounds()
	a.stores.start()
	a.checkServers()
	return nil
}

// public returns what the hash of the configuration has of the app: no passwords, which a short hash
// that everybody sees would help to guess.
func (a *App) public() *App {
	public := &App{MaxKeys: a.MaxKeys, Headers: a.Headers, RulesRaw: running.PlaceOf(a.RulesRaw)}
	for _, raw := range a.StoresRaw {
		if s, err := parseStoreJSON(raw); err == nil {
			public.StoresRaw = append(public.StoresRaw, caddyconfig.JSON(s.public(), nil))
		}
	}
	return public
}

// startQuotas looks up the zones of the handlers rate_limit_quota.
func (a *App) startQuotas() error {
	for _, h := range a.quotas {
		if err := h.start(); err != nil {
			return err
		}
	}
	return nil
}

// logBounds logs the greatest number of keys of each zone and the memory they take.
func (a *App) logBounds() {
	type bound struct {
		keys, bytes int64
		shared      bool
	}
	zones := make(map[string]bound)
	for _, b := range a.registry.Bounds() { // those of overrides of other kinds have fewer keys, or as many
		z := zones[b.Zone]
		zones[b.Zone] = bound{max(z.keys, b.MaxKeys), z.bytes + b.Memory(), z.shared || b.Table.Shared()}
	}
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		text := "counts in this process"
		if zones[name].shared {
			text = "counts in a shared store; in this process while that is unavailable"
		}
		a.logger.Info(text, zap.String("zone", name),
			zap.Int64("max_keys", zones[name].keys), zap.Int64("max_bytes", zones[name].bytes))
	}
}

// lastWait is how long a configuration that stops waits for what is still to be emitted,
// logged or stored.
const lastWait = time.Second

// Stop implements caddy.App. Event handlers still work: they are cleaned up later.
func (a *App) Stop() error {
	apps.Of(a.process).stop(a)
	a.lists.Stop()
	a.lines.Flush(lastWait)
	a.events.Flush(lastWait)
	return nil
}

// Cleanup implements caddy.CleanerUpper.
func (a *App) Cleanup() error {
	if apps.Of(a.process).current() == a { // what fails after all apps have started is not stopped
		_ = a.Stop()
	}
	if now := apps.Of(a.process).current(); now != nil && now != a {
		a.stores.passOn(&now.stores)
	}
	err := a.refs.Release()
	liveCounts.Of(a.process).Flush(lastWait)
	for _, q := range []*background.Queue{a.lines, a.events} {
		if q != nil {
			q.Close()
		}
	}
	return err
}

// servers returns the HTTP servers of the running configuration.
func (a *App) servers() (map[string]*caddyhttp.Server, error) {
	v, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return nil, err
	}
	return v.(*caddyhttp.App).Servers, nil
}

// checkServers tells handlers which others a request may meet, and warns of servers. It requires that all
// servers are provisioned.
func (a *App) checkServers() {
	servers, _ := a.servers() // none without the http app
	mapped := a.httpConfig(a.ctx).Mapped
	for name, s := range servers {
		w := &walk.Server{Server: s, Limiter: limiterOf}
		w.NoteMeetings()
		w.NoteOthers()
		warnings.OfServer(a.warnTo(a.logger), name, w, mapped)
	}
}

// limiterOf returns the limiter of a rate_limit handler; nil: h is another handler.
func limiterOf(h caddyhttp.MiddlewareHandler) *limiter.Limiter {
	if h, ok := h.(*Handler); ok {
		return h.limiter
	}
	return nil
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
