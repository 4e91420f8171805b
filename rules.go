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

// followers follow the sources of the configurations that run, so that a reload keeps
// what they said last.
var followers = pool.New[*rules.Follower]("followers") // by identity

// provisionRules loads the source. Nothing is read from it yet; the document that was
// kept of it is in force from the first request on.
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
		return fmt.Errorf("rules: a %T is no source of rules", v)
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

// storeUser is a source that can be read from a store's Redis.
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

// rulesConnections are enough for one reading and one subscription.
const rulesConnections = 2

// origin returns where the rules of a zone come from: config, or the kind of source.
func (a *App) origin(s limiter.Status) string {
	if !s.FromSource || a.follower == nil {
		return "config"
	}
	return a.follower.Name()
}

// runningRules are the rules of the configuration that runs, for the metrics.
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

// runningLeases are the leases of the stores of the configuration that runs, for the
// metrics.
func runningLeases() (all []metrics.Leases) {
	a := running.current()
	if a == nil {
		return nil
	}
	for _, s := range a.stores.list {
		if sum, ok := s.LeaseStats(); ok {
			all = append(all, metrics.Leases{Store: s.Name(), Times: sum.Times, Granted: sum.Granted, Spent: sum.Spent})
		}
	}
	return all
}
