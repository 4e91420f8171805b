package diana

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/usage/settle"
)

// adaptedContext is the key, in the state of an adaptation, of the context of its matchers.
const adaptedContext = "rate_limit.context"

// context returns the context in which matchers that need nothing are provisioned. A new one takes longer than they
// do. It is ended already: they have nothing to clean up.
func (c *directive) context() caddy.Context {
	ctx, ok := c.State[adaptedContext].(caddy.Context)
	if !ok {
		var end context.CancelFunc
		ctx, end = caddy.NewContext(caddy.Context{Context: context.Background()})
		end()
		c.State[adaptedContext] = ctx
	}
	return ctx
}

// adaptedZones is the key, in the state of an adaptation, of the registry of its zones.
const adaptedZones = "rate_limit.zones"

// provision provisions a zone as a handler does, in order that what is invalid has a file and a line,
// and releases it. It opens nothing. Files of keys need not be there yet.
func (c *directive) provision(z *config.Zone) error {
	if slices.ContainsFunc(z.Overrides, func(o *config.Override) bool { return o.KeysFile != "" }) {
		return nil
	}
	small := *z
	small.MaxKeys = 1
	env := &limiter.Environment{Process: new(process.Process), Store: c.store, Responses: settle.Responses{}, MaxKeys: small.MaxKeys}
	l, err := limiter.New(env, limiter.Options{
		Zones: []*config.Zone{&small}, Place: c.placeOf(z), DisableMetrics: true, Logger: zap.NewNop(),
		Matchers: func(z *config.Zone) (match, exempt caddyhttp.MatcherSets, err error) {
			if len(z.MatcherSetsRaw)+len(z.ExemptRaw) == 0 || !needsNothing(z.MatcherSetsRaw) || !needsNothing(z.ExemptRaw) {
				return nil, nil, nil
			}
			return matchersIn(c.context())(z)
		},
	})
	if err == nil {
		r, _ := c.State[adaptedZones].(*limiter.Registry)
		if r == nil {
			r = limiter.NewRegistry(zap.NewNop(), nil)
			c.State[adaptedZones] = r
		}
		err = r.Join(l)
	}
	return option.Join(err, l.Close())
}

// placeOf returns where a zone stands.
func (c *directive) placeOf(z *config.Zone) string {
	at, ok := c.zones[z.Name]
	if !ok {
		at = c.at
	}
	return fmt.Sprintf("at %s:%d", filepath.Base(at.File), at.Line)
}

// needsNothing reports whether matchers can be provisioned without the configuration around them.
func needsNothing(sets caddyhttp.RawMatcherSets) bool {
	alone := []string{
		"client_ip", "expression", "header", "header_regexp", "host", "method", "path", "path_regexp", "protocol", "query", "remote_ip", "vars", "vars_regexp",
	}
	for _, set := range sets {
		for name, raw := range set {
			if !slices.Contains(alone, name) || resolvedLater(raw) {
				return false
			}
		}
	}
	return true
}

// resolvedLater reports whether options have placeholders that are resolved when they are provisioned.
func resolvedLater(raw json.RawMessage) bool {
	return strings.Contains(string(raw), "{env.") || strings.Contains(string(raw), "{file.")
}

// globalOption returns the JSON of the global option of a name; nil: it is not given.
func (c *directive) globalOption(name string) json.RawMessage {
	app, _ := c.Option(name).(httpcaddyfile.App)
	if app.Name != name {
		return nil
	}
	return app.Value
}

// optionTwice reports whether the global option is given under both of its names.
func (c *directive) optionTwice() bool {
	return !slices.ContainsFunc(names.Own(), func(name string) bool { return c.globalOption(name) == nil }) && len(names.Own()) > 1
}

// stores returns the stores in the global options.
func (c *directive) stores() (list []storeJSON) {
	var a App
	for _, name := range names.Own() {
		_ = json.Unmarshal(c.globalOption(name), &a) // nothing: it is not given
	}
	for _, raw := range a.StoresRaw {
		if s, err := parseStoreJSON(raw); err == nil {
			list = append(list, s)
		}
	}
	return list
}

// store returns what is known of a zone's store before it is opened.
func (c *directive) store(name string) (*limiter.Store, error) {
	s := &limiter.Store{Name: name, Hasher: localHasher}
	if name == localStore {
		return s, nil
	}
	possible := false
	for i, o := range c.stores() {
		called := o.called()
		if called == name || name == "" && i == 0 {
			s.Name, s.Lease = called, time.Duration(o.Lease).Microseconds()
			return s, nil
		}
		possible = possible || strings.Contains(called, "{") // the environment may name it so
	}
	if name == "" { // the default store is this process
		s.Name = localStore
	}
	if possible || name == "" {
		return s, nil
	}
	return nil, errNoStore(name)
}
