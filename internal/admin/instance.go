package admin

import (
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/cli"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/process"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/rules"
)

// Instance is what the API shows and changes: an instance with a configuration that runs.
type Instance struct {
	Process  *process.Process  // its history and marks are shown
	Registry *limiter.Registry // of its zones
	Stores   []*redis.Store    // its shared stores
	Follower *rules.Follower   // nil: no rule source is configured
	Lists    *limiter.Lists    // its files of keys
	Logger   *zap.Logger       // logs what the API changes
	Started  time.Time         // when the configuration was provisioned

	// Hash returns a short hash of the rate limits of the configuration.
	Hash func() string

	// Servers returns the HTTP servers of the configuration.
	Servers func() (map[string]*caddyhttp.Server, error)

	// Limiter returns the limiter of a rate_limit handler; nil: h is another handler.
	Limiter func(h caddyhttp.MiddlewareHandler) *limiter.Limiter

	snapshot snapshot // of the live messages
}

// Origin returns the origin of the rules of a zone: config, or the kind of source.
func (in *Instance) Origin(s limiter.Status) string {
	if !s.FromSource || in.Follower == nil {
		return "config"
	}
	return in.Follower.Name()
}

// processStarted is when the process started.
var processStarted = time.Now()

// answerInstance returns the process that answers.
func (in *Instance) answerInstance() cli.Instance {
	host, _ := os.Hostname() // empty if the system has none
	version, _ := caddy.Version()
	return cli.Instance{
		Host: host, Caddy: version, Diana: moduleVersion(), Config: in.Hash(),
		Since: in.Started, Started: processStarted,
	}
}

const modulePath = "github.com/dianalimiter/diana"

// moduleVersion returns the version of this module in the build.
var moduleVersion = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "" {
			return m.Version
		}
	}
	return "unknown"
})
