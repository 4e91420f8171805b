package diana

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/rules"
)

// remote is what an app has to do with rules from outside.
type remote struct {
	mu       sync.Mutex
	handlers []*Handler
	given    *rules.Document // in force; nil: the zones' own rules
	feed     *feed           // nil: no source is configured
}

// list are the handlers of the app.
func (r *remote) list() []*Handler {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.handlers)
}

// feeds are the sources of the configurations that run, so that a reload keeps
// what they said last.
var feeds = caddy.NewUsagePool() // identity → *feed

// provisionRules loads the source. Nothing is asked of it yet; what was kept of
// it is in force from the first request on.
func (a *App) provisionRules() error {
	if len(a.RulesRaw) == 0 {
		return nil
	}
	v, err := a.ctx.LoadModule(a, "RulesRaw")
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	source, ok := v.(rules.Source)
	if !ok {
		return fmt.Errorf("rules: a %T is no source of rules", v)
	}
	if s, ok := source.(storeUser); ok {
		if err := a.lendStore(s); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
	}
	id := fingerprint(source.Identity() + " " + source.Every().String())
	f, _, _ := feeds.LoadOrNew(id, func() (caddy.Destructor, error) {
		return newFeed(source, a.storage, a.logger), nil
	})
	a.refs.add(feeds, id)
	a.remote.feed, _ = f.(*feed) // nothing else is put there
	a.remote.given = a.remote.feed.last()
	return nil
}

// storeUser is a source that can be read from a store's Redis.
type storeUser interface {
	UseStore(identity string, open func() goredis.UniversalClient) error
}

func (a *App) lendStore(s storeUser) error {
	if len(a.Stores) == 0 {
		return s.UseStore("", nil)
	}
	o, _, err := a.Stores[0].options()
	if err != nil {
		return err
	}
	id, err := a.Stores[0].identity()
	if err != nil {
		return err
	}
	o.PoolSize, o.Lazy = rulesConnections, true
	o.Timeout = o.DialTimeout
	return s.UseStore(id, func() goredis.UniversalClient { return redis.NewClient(&o.ConnOptions) })
}

// rulesConnections are enough for one reading, and one for its notices.
const rulesConnections = 2

// join enters a handler whose own rules are in force, and gives it those from
// outside. A document that the configuration has no use for is left aside until
// the source is heard.
func (a *App) join(h *Handler) {
	r := &a.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers = append(r.handlers, h)
	if r.given == nil {
		return
	}
	c, err := h.change(r.given)
	if err == nil {
		err = c.commit()
	}
	if err == nil {
		return
	}
	a.logger.Error("the rules kept from outside do not fit this configuration: the zones' own rules hold",
		errField(err))
	r.given = nil
	for _, other := range r.handlers {
		if c, err := other.change(nil); err == nil {
			_ = c.commit()
		}
	}
}

// leave gives back what a handler took.
func (a *App) leave(h *Handler) error {
	r := &a.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers = slices.DeleteFunc(r.handlers, func(o *Handler) bool { return o == h })
	var err error
	for _, z := range h.zones {
		if t := z.terms.Load(); t != nil {
			err = errors.Join(err, h.release([]*terms{t}, nil))
		}
		err = errors.Join(err, z.refs.release())
	}
	return err
}

// apply puts a document in force, for all zones of all handlers or for none.
func (a *App) apply(d *rules.Document) error {
	r := &a.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := make([]*change, 0, len(r.handlers))
	for _, h := range r.handlers {
		c, err := h.change(d)
		if err != nil {
			for _, c := range changes {
				err = errors.Join(err, c.undo())
			}
			return err
		}
		changes = append(changes, c)
	}
	anew := make(map[string]bool)
	for _, c := range changes {
		for i, z := range c.h.zones {
			anew[z.Name] = anew[z.Name] || c.next[i].kinds != c.old[i].kinds
		}
	}
	var err error
	for _, c := range changes {
		err = errors.Join(err, c.commit())
	}
	r.given = d
	for _, zone := range slices.Sorted(maps.Keys(anew)) {
		if anew[zone] {
			a.tellAnew(zone)
		}
	}
	return err
}

// unknown are the zones of a document that the configuration does not have.
func (a *App) unknown(d *rules.Document) (names []string) {
	if d == nil {
		return nil
	}
	for name := range d.Zones {
		if _, ok := a.zones[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// takeRules has the source tell this app. It may be called again.
func (a *App) takeRules() {
	if a.remote.feed != nil {
		a.remote.feed.take(a)
	}
}

// releaseRules ends what takeRules began, if no other app has taken the source.
func (a *App) releaseRules() {
	if a.remote.feed != nil {
		a.remote.feed.leave(a)
	}
}

// bounds are the tables of all zones.
func (a *App) bounds() (all []bound) {
	seen := make(map[*memory.Table]bool)
	for _, h := range a.remote.list() {
		for _, z := range h.zones {
			for _, b := range z.terms.Load().bounds {
				if !seen[b.table] {
					seen[b.table] = true
					all = append(all, b)
				}
			}
		}
	}
	return all
}
