package diana

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/rules"
)

// followers are the followers of rule sources in use. They survive reloads, and so does
// the last document.
var followers pool.Pool[*follow.Follower] = "followers" // by identity

// provisionRules loads the rule source without reading it. The document kept from an
// earlier run is in force from the first request on.
func (a *App) provisionRules() error {
	a.registry = limiter.NewRegistry(a.logger, nil)
	if a.process.Clock != nil {
		return nil
	}
	source, err := a.loadSource()
	if source == nil || err != nil {
		return err
	}
	id := rules.Fingerprint(source.Identity() + " " + source.Every().String())
	a.follower = followers.Acquire(&a.refs, processKey{a.process, id}, func() *follow.Follower {
		return follow.New(source, a.ctx.Storage(), a.logger, metrics.Of(a.process).RulesErrors.Inc)
	})
	a.inherit(apps.Of(a.process).current())
	a.registry = limiter.NewRegistry(a.logger, a.follower.Good())
	a.registry.Changed = func(zones []string) {
		history.MarksOf(a.process).Add(history.Mark{At: time.Now(), Kind: history.MarkRules, Name: a.follower.Name(), Zone: follow.FirstNames(zones)})
	}
	return nil
}

// inherit takes over the document in force of the app before; nil: there is none.
func (a *App) inherit(before *App) {
	if before != nil && before.follower != nil && a.follower != nil {
		a.follower.Inherit(before.follower)
	}
}

// loadSource returns the configured source of rules, which may use the first store's Redis; nil: none is
// configured.
func (a *App) loadSource() (rules.Source, error) {
	if len(a.RulesRaw) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	if err := a.checkSource(); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	v, err := a.ctx.LoadModule(a, "RulesRaw")
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	source, ok := v.(rules.Source)
	if !ok {
		return nil, fmt.Errorf("rules: %T is not a rule source", v)
	}
	if s, ok := source.(storeUser); ok {
		if err := a.lendStore(s); err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
	}
	return source, nil
}

// checkSource decodes the options of the source, of which Caddy says less if one is unknown.
func (a *App) checkSource() error {
	var fields map[string]json.RawMessage
	var name string
	_ = json.Unmarshal(a.RulesRaw, &fields) // what is no object, and a source without a name, are left to Caddy
	_ = json.Unmarshal(fields["source"], &name)
	info, err := caddy.GetModule(rules.Namespace + "." + name)
	if err != nil {
		return nil //nolint:nilerr // said by Caddy
	}
	delete(fields, "source")
	options, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return option.Unmarshal(options, info.New())
}

// checkPlaces checks the options of the stores and of the source of rules, which need files and
// variables of the machine.
func (a *App) checkPlaces() error {
	for _, raw := range a.StoresRaw {
		s, err := parseStoreJSON(raw)
		if err == nil {
			err = s.check(a.ctx)
		}
		if err != nil {
			return fmt.Errorf("store %s: %w", s.called(), err)
		}
	}
	_, err := a.loadSource()
	return err
}

// storeUser is a rule source that can use the Redis of a store.
type storeUser interface {
	UseStore(identity, place string, open func() goredis.UniversalClient) error
}

// storeLender is a store whose Redis a rule source can use.
type storeLender interface {
	Lend(dial func(ctx context.Context, network, address string) (net.Conn, error)) (identity, place string, open func() goredis.UniversalClient, err error)
}

// lendStore gives a rule source the Redis of the first store that has one.
func (a *App) lendStore(to storeUser) error {
	for _, raw := range a.StoresRaw {
		s, err := parseStoreJSON(raw)
		if err != nil {
			return err
		}
		m, err := s.decode()
		if err != nil {
			return err
		}
		if m, ok := m.(storeLender); ok {
			id, place, open, err := m.Lend(a.process.Dial)
			if err != nil {
				return err
			}
			return to.UseStore(id, place, open)
		}
	}
	return to.UseStore("", "", nil)
}
