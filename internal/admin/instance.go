package admin

import (
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/cli"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/process"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/stores"
)

// Instance is what the API shows and changes: an instance with a configuration that runs.
type Instance struct {
	Process  *process.Process  // its history and marks are shown
	Registry *limiter.Registry // of its zones
	Stores   []stores.Shared   // its shared stores
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

	mu  sync.Mutex
	now *zonesNow // as the last stream sent them; nil: none was sent
}

// zonesNow is the zones at a step of the history.
type zonesNow struct {
	step    int64
	zones   []cli.Zone       // without their counts
	version string           // a hash of them
	blocked map[string]int64 // how many keys, by name; absent: none
}

// Origin returns the origin of the rules of a zone: config, or the kind of source.
func (in *Instance) Origin(s limiter.Status) string {
	if !s.FromSource || in.Follower == nil {
		return "config"
	}
	return in.Follower.Name()
}
