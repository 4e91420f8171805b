// Package running is what tools see of a configuration that runs, as data: they know no app and no
// handler, and the app knows no tool.
package running

import (
	"context"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/follow/lists"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/stores"
)

// Instance is an instance with a configuration that runs, or that is opened without running it.
type Instance struct {
	Process  *process.Process  // its history and marks are shown
	Registry *limiter.Registry // of its zones
	Stores   []stores.Shared   // its shared stores
	Follower *follow.Follower  // nil: no rule source is configured
	Lists    *lists.Lists      // its files of keys
	Logger   *zap.Logger       // logs what tools change
	Started  time.Time         // when the configuration was provisioned

	// Hash returns a short hash of the rate limits of the configuration.
	Hash func() string

	// Servers returns the HTTP servers of the configuration.
	Servers func() (map[string]*caddyhttp.Server, error)

	// Limiter returns the limiter of a rate_limit handler; nil: h is another handler.
	Limiter func(h caddyhttp.MiddlewareHandler) *limiter.Limiter

	// Source opens the configured source of rules; nil: there is none.
	Source func() (rules.Source, error)

	// Check returns an error for options of the stores and of the source that this machine does not
	// have the files or variables for.
	Check func() error

	// Complete ends the provisioning of an instance that does not start: handlers look up zones.
	Complete func() error
}

// Zones returns the zones of the configuration, of those with the same name the one that is shown.
func (in *Instance) Zones() (all []*limiter.Zone) {
	known := make(map[string]bool)
	for _, z := range in.Registry.Zones() {
		if !known[z.Name] {
			known[z.Name] = true
			all = append(all, z)
		}
	}
	return all
}

// Origin returns the origin of the rules of a zone: config, or the kind of source.
func (in *Instance) Origin(s limiter.Status) string {
	if !s.FromSource || in.Follower == nil {
		return "config"
	}
	return in.Follower.Name()
}

// Tools are what an instance asks of the tools, which set it when the program starts.
var Tools struct {
	// Started is called before an instance runs.
	Started func(in *Instance)

	// Figures returns what an instance tells the others that share its store, as JSON.
	Figures func(in *Instance) []byte
}

// Current is the instance of a process that runs.
type Current struct {
	mu      sync.Mutex
	in      *Instance
	changed chan struct{} // closed when in changes; nil: nobody waits
}

var current process.Var[Current]

// Of returns the instance of a process that runs.
func Of(p *process.Process) *Current { return current.Of(p) }

// Set replaces the instance; nil: none runs.
func (c *Current) Set(in *Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = in
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Watch returns the instance, nil if none runs, and a channel that is closed when another does.
func (c *Current) Watch() (*Instance, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.in, c.changed
}

// serverName is the key, in the context of handlers, of the name of their server.
type serverName struct{}

// WithServer returns a context for the handlers of a server that is not provisioned itself.
func WithServer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, serverName{}, name)
}

// ServerName returns the name of the server whose handlers a context provisions; empty: there is
// none.
func ServerName(ctx caddy.Context) string {
	if s, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		return s.Name()
	}
	name, _ := ctx.Value(serverName{}).(string)
	return name
}
