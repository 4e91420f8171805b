package diana

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/certmagic"
	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redis"
)

const (
	defaultMaxKeys = 1_000_000
	localStore     = "local"
)

// appState is what the app keeps besides its configuration.
type appState struct {
	ctx     caddy.Context
	logger  *zap.Logger
	storage certmagic.Storage
	events  *caddyevents.App
	metrics *metrics

	local  *memory.Store
	shared []*client
	byName map[string]*client
	zones  map[string]definition
	refs   references
	remote remote
	wrong  *lineLimit // of log lines about unexpected answers
	deaf   everySo    // of log lines about a channel that cannot be heard

	warned    map[string]bool // see App.warn
	autoNames map[string]int  // how often each was given

	unreadable *bool // see unread; nil: nobody asked
}

// definition is what a zone of one name must have in common everywhere.
type definition struct {
	text string // as it is shown
}

// bound is how much a table may hold.
type bound struct {
	table   *memory.Table
	zone    string
	maxKeys int64
	shared  bool // the keys are counted in Redis
}

// Provision implements caddy.Provisioner.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.logger, a.storage = ctx, ctx.Logger(), ctx.Storage()
	a.local = &memory.Store{Clock: clock}
	a.byName = make(map[string]*client)
	a.zones = make(map[string]definition)
	a.wrong = new(lineLimit)
	a.warned, a.autoNames = make(map[string]bool), make(map[string]int)
	if err := checkHeaders(a.Headers); err != nil {
		return err
	}
	if a.MaxKeys < 0 {
		return fmt.Errorf("max_keys %d: want at least 1", a.MaxKeys)
	}
	events, err := ctx.App("events")
	if err != nil {
		return err
	}
	a.events, _ = events.(*caddyevents.App)
	if a.metrics, err = newMetrics(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	for i, s := range a.Stores {
		if s == nil {
			return fmt.Errorf("store %d: null: want an object with addresses", i+1)
		}
		if err := a.addStore(s); err != nil {
			return fmt.Errorf("store %s: %w", orDefault(s.Name, strconv.Itoa(i+1)), err)
		}
	}
	return a.provisionRules()
}

func (a *App) addStore(c *RedisStore) error {
	o, h, err := c.options()
	if err != nil {
		return err
	}
	if a.byName[o.Name] != nil {
		return errors.New("the name stands twice: want a name for each store")
	}
	id, err := c.identity()
	if err != nil {
		return err
	}
	goredis.SetLogger(redisLog{})
	v, _, err := clients.LoadOrNew(id, func() (caddy.Destructor, error) {
		return &client{redis.New(o, nowhere{}), h}, nil
	})
	if err != nil {
		return err
	}
	a.refs.add(clients, id)
	s, ok := v.(*client)
	if !ok {
		return fmt.Errorf("pool holds a %T", v)
	}
	a.shared = append(a.shared, s)
	a.byName[o.Name] = s
	if c.plainPassword() {
		a.logger.Warn("a password stands in the configuration itself: write {env.NAME} or {file./path} instead", zap.String("store", o.Name))
	}
	return nil
}

// store returns the store that a zone names, and how its keys are hashed.
func (a *App) store(name string) (stores.Store, hasher, error) {
	switch {
	case name == localStore || name == "" && len(a.shared) == 0:
		return a.local, localHasher, nil
	case name == "":
		return a.shared[0].Store, a.shared[0].hasher, nil
	}
	if s := a.byName[name]; s != nil {
		return s.Store, s.hasher, nil
	}
	return nil, hasher{}, fmt.Errorf("store %q: want local, or the name of a store in the global option rate_limit", name)
}

// localHasher is that of keys which never leave the process.
var localHasher = newHasher(strconv.FormatInt(time.Now().UnixNano(), 36))

// define notes a zone. Handlers may name one zone several times, if they say
// the same of it.
func (a *App) define(name string, d definition) error {
	if other, ok := a.zones[name]; ok && other.text != d.text {
		return fmt.Errorf("zone %s is defined twice, as %s and as %s: want the same definition, or another name", name, other.text, d.text)
	}
	a.zones[name] = d
	return nil
}

// Start implements caddy.App.
func (a *App) Start() error {
	running.start(a)
	a.tellBounds()
	for _, s := range a.shared {
		s.Start(a.lastSeen(s.Name()))
	}
	a.adviseProxies()
	return nil
}

// tellBounds says what the zones take at most.
func (a *App) tellBounds() {
	type most struct{ keys, bytes int64 }
	zones := make(map[string]most)
	for _, b := range a.bounds() {
		z := zones[b.zone]
		zones[b.zone] = most{z.keys + b.maxKeys, z.bytes + b.table.Memory(b.shared)}
	}
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		a.logger.Info("counts in this process", zap.String("zone", name),
			zap.Int64("max_keys", zones[name].keys), zap.Int64("max_bytes", zones[name].bytes))
	}
}

// Stop implements caddy.App.
func (a *App) Stop() error {
	running.stop(a)
	return nil
}

// take makes this app the one that stores tell of themselves, and its settings
// those of the tables. It may be called again.
func (a *App) take() {
	for _, s := range a.shared {
		s.Observe(a)
		up, _ := s.State()
		a.metrics.setStoreUp(s.Name(), up)
	}
	for _, b := range a.bounds() {
		b.table.SetMax(b.maxKeys)
	}
	theHistory.follow(a.tallies(), clock())
	a.takeRules()
}

// Cleanup implements caddy.CleanerUpper.
func (a *App) Cleanup() error { return a.refs.release() }

func instancesKey(store string) string { return "rate_limit/instances/" + store }

// lastSeen is how many instances were alive when Redis was last asked, by this
// process or one before it.
func (a *App) lastSeen(store string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	b, err := a.storage.Load(ctx, instancesKey(store))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
	_ redis.Observer     = (*App)(nil)
)
