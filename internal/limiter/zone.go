package limiter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/adaptive"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/metrics"
)

// Zone is a zone at run time.
type Zone struct {
	*config.Zone

	// Config is the checked configuration of the zone.
	Config *config.Checked

	env              *Environment
	matchers, exempt caddyhttp.MatcherSets
	store            *Store
	maxKeys          int64         // without those reserved for overrides
	noHeaders        bool          // whether the zone is left out of headers
	readsBody        bool          // whether key or cost have a field of the body
	repeated         bool          // whether a request may pass the zone twice
	enforced         *atomic.Int32 // how many handlers enforce the zone; nil: the zone is in no registry
	options          *Options      // of its handler

	active atomic.Pointer[activeRules]
	id     zoneID
	common *common // with the other handlers that have this zone

	metrics metrics.Zone
	ranking Ranking         // of its keys; nil: they are not ranked
	groups  *metrics.Groups // costs by group; nil: it has no group_by, or is not counted
	refs    pool.References

	places  *places          // nil: the zone has no in_flight adaptive
	placing adaptive.Options // of the places
}

// newZone returns a zone without active rules.
func newZone(env *Environment, o *Options, c *config.Zone) (*Zone, error) {
	checked, err := c.Check(env.Responses)
	if err != nil {
		return nil, err
	}
	z := &Zone{
		Zone: c, Config: checked, env: env,
		noHeaders: c.NoHeaders && o.Headers == "",
		readsBody: checked.Plan.ReadsBody() || checked.Charge.ReadsBody(),
		options:   o, repeated: o.Invoked,
	}
	if z.matchers, z.exempt, err = o.Matchers(c); err != nil {
		return nil, config.InZone(c.Name, err)
	}
	if z.store, err = env.Store(c.Store); err != nil {
		return nil, &config.Error{Zone: c.Name, Pointer: "/store", Err: err}
	}
	z.maxKeys = cmp.Or(c.MaxKeys, env.MaxKeys)
	for _, o := range c.Overrides {
		if o.KeysFile == "" {
			continue
		}
		if err := env.Lists.Read(o.KeysFile); err != nil {
			return nil, fmt.Errorf("zone %s: override: file %s: %w", c.Name, o.KeysFile, err)
		}
	}
	id := zoneID{env.Process, c.Name, checked.Plan.Identity(), z.store.Place, z.store.Hasher}
	z.id = id
	z.common = commons.Acquire(&z.refs, id, func() *common { return new(common) })
	z.acquirePlaces()
	if o.DisableMetrics {
		return z, nil
	}
	if checked.Charge.GroupBy != nil {
		z.groups = groups.Acquire(&z.refs, countersID{env.Process, c.Name, strings.Join(c.GroupBy, "\n")}, func() *metrics.Groups { return new(metrics.Groups) })
	}
	counts := counters.Acquire(&z.refs, countersID{env.Process, c.Name, ""}, func() *metrics.Counters { return new(metrics.Counters) })
	z.metrics = env.Metrics.Zone(counts, z.store.Name)
	z.ranking = env.Rank(&z.refs, id)
	return z, nil
}

// counters holds the metrics of the zones in use, ruleCounters those of their rules, and groups their
// costs by group. They survive reloads.
var (
	counters     pool.Pool[*metrics.Counters] = "counters"      // by countersID
	ruleCounters pool.Pool[*metrics.Rule]     = "rule counters" // by countersID
	groups       pool.Pool[*metrics.Groups]   = "groups"        // by countersID
)

// countersID identifies the counters of a zone, of a label of its rules, or of the parts of its
// group_by.
type countersID struct {
	process     *process.Process
	zone, label string
}

// zoneID identifies a zone by its name, by how its keys are built and hashed, and by where
// they are counted.
type zoneID struct {
	process          *process.Process
	zone, key, place string
	hasher           key.Hasher
}

// WrittenName returns the zone's name as it was written, which another plugin's zone may
// have in other characters.
func (z *Zone) WrittenName() string { return cmp.Or(z.Written, z.Name) }

// StoreName returns the name of the zone's store.
func (z *Zone) StoreName() string { return z.store.Name }

// Unit returns what the zone's limits count: its unit, or "requests", "tokens", or "units" of a cost.
func (z *Zone) Unit() string {
	switch {
	case z.Zone.Unit != "":
		return z.Zone.Unit
	case z.Tokens != nil:
		return "tokens"
	case z.Settle != "" || z.Cost != "":
		return "units"
	}
	return "requests"
}

// Shared reports whether the zone's counts are shared by several instances.
func (z *Zone) Shared() bool { return !z.store.local() }

// LeaseOf returns the duration of the leases of rules of the zone, in microseconds; 0: none.
func (z *Zone) LeaseOf(s *config.RuleSet) int64 { return s.Lease(z.Zone, z.store.Lease) }

// Matchers returns the matchers of the requests that the zone applies to; nil: all.
func (z *Zone) Matchers() caddyhttp.MatcherSets { return z.matchers }

// exempts reports whether a request passes uncounted: exempt names its address, or its kind.
func (z *Zone) exempts(r *http.Request) (bool, error) {
	if len(z.exempt) == 0 {
		return false, nil
	}
	if restore := key.UnmapClient(r); restore != nil {
		defer restore()
	}
	return z.exempt.AnyMatchWithError(r)
}

// Exempt returns the matchers of the requests that the zone does not count; nil: none.
func (z *Zone) Exempt() caddyhttp.MatcherSets { return z.exempt }

// LogsKeys reports whether the zone's keys may be logged, and shown by name.
func (z *Zone) LogsKeys() bool { return z.options.LogKey }

// Ranking returns the ranking of the zone's keys, of the type that [Environment.Rank] returns; nil: they
// are not ranked.
func (z *Zone) Ranking() Ranking { return z.ranking }

// ReadsBody reports whether requests of the zone are not decided before their body is read.
func (z *Zone) ReadsBody() bool {
	return z.readsBody || z.PreventDuplicates != nil && z.PreventDuplicates.Body
}

// clustered reports whether the zone's keys are distributed over the slots of a cluster.
func (z *Zone) clustered() bool { return z.store.at != nil }

// kinds returns a fingerprint of how the rules count: if it changes, the counts are
// reset.
func (z *Zone) kinds(c *config.Checked) string {
	return c.Rules.Kinds(c.Rules.Lease(c.Zone, z.store.Lease)) + z.Config.Plan.Identity()
}

// definition returns the options that must be equal in all handlers with this zone, as
// JSON.
func (z *Zone) definition() string {
	c, p := z.Zone, z.Config.Plan
	text, err := json.Marshal(&config.Zone{
		Key: p.Parts(), KeyMissing: p.Missing, KeyRepeated: p.Repeated, IPv4Prefix: &p.V4, IPv6Prefix: &p.V6, Algorithm: c.Algorithm,
		Rules: c.Rules, InFlight: c.InFlight, InFlightAdaptive: c.InFlightAdaptive, CountStatus: c.CountStatus, Overrides: c.Overrides, Store: z.store.Name,
		GroupBy: c.GroupBy,
	})
	if err != nil {
		return err.Error()
	}
	if z.Config.Rules.Lease(c, z.store.Lease) > 0 { // some count otherwise with one
		text = append(text, withLease...)
	}
	return string(text)
}

// release releases the resources of the zone.
func (z *Zone) release() error {
	err := z.refs.Release()
	if a := z.active.Load(); a != nil {
		err = errors.Join(err, a.release())
	}
	return err
}
