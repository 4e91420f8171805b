package diana

import (
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/pool"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/rules"
)

// followers are the followers of rule sources in use. They survive reloads, and so does
// the last document.
var followers = pool.New[*rules.Follower]("followers") // by identity

// provisionRules loads the rule source without reading it. The document kept from an
// earlier run is in force from the first request on.
func (a *App) provisionRules() error {
	a.registry = limiter.NewRegistry(a.logger, nil)
	if len(a.RulesRaw) == 0 {
		return nil
	}
	v, err := a.ctx.LoadModule(a, "RulesRaw")
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	source, ok := v.(rules.Source)
	if !ok {
		return fmt.Errorf("rules: %T is not a rule source", v)
	}
	if s, ok := source.(storeUser); ok {
		if err := a.lendStore(s); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
	}
	id := rules.Fingerprint(source.Identity() + " " + source.Every().String())
	a.follower = followers.Take(&a.refs, id, func() *rules.Follower {
		return rules.NewFollower(source, a.ctx.Storage(), a.logger, metrics.Get().RulesErrors.Inc)
	})
	a.registry = limiter.NewRegistry(a.logger, a.follower.Good())
	return nil
}

// storeUser is a rule source that can use the Redis of a store.
type storeUser interface {
	UseStore(identity string, open func() goredis.UniversalClient) error
}

func (a *App) lendStore(s storeUser) error {
	if len(a.Stores) == 0 {
		return s.UseStore("", nil)
	}
	o, _, err := a.Stores[0].Options()
	if err != nil {
		return err
	}
	id, err := a.Stores[0].Identity()
	if err != nil {
		return err
	}
	o.PoolSize, o.Lazy = rulesConnections, true
	o.Timeout = o.DialTimeout
	return s.UseStore(id, func() goredis.UniversalClient { return redis.NewClient(&o.ConnOptions) })
}

// rulesConnections is one connection for reading and one for the subscription.
const rulesConnections = 2

// origin returns the origin of the rules of a zone: config, or the kind of source.
func (a *App) origin(s limiter.Status) string {
	if !s.FromSource || a.follower == nil {
		return "config"
	}
	return a.follower.Name()
}

// runningRules returns the rules of the running configuration, for the metrics.
func runningRules() (r metrics.Rules) {
	a := running.current()
	if a == nil {
		return r
	}
	r.Origins = make(map[string]string)
	for _, z := range a.registry.Zones() {
		if _, seen := r.Origins[z.Name]; !seen && z.Counters() != nil {
			r.Origins[z.Name] = a.origin(z.Status())
		}
	}
	if a.follower != nil {
		r.Confirmed = a.follower.Status().Confirmed
	}
	return r
}

// runningLeases returns the leases of the stores of the running configuration, for the
// metrics.
func runningLeases() (all []metrics.Leases) {
	a := running.current()
	if a == nil {
		return nil
	}
	for _, s := range a.stores.list {
		if sum, ok := s.LeaseStats(); ok {
			all = append(all, metrics.Leases{Store: s.Name(), LeaseStats: sum})
		}
	}
	return all
}
