package redisconfig

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/stores"
)

func init() { caddy.RegisterModule(new(Store)) }

// CaddyModule returns the Caddy module information.
func (*Store) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.stores.redis", New: func() caddy.Module { return new(Store) }}
}

// held is what requests hold of the stores, by [redis.Options.Place]: a store that another one
// replaces still has requests, which count without Redis.
var held pool.Pool[*memory.Permits] = "permits"

// seen are the live instances that the stores last saw, by [redis.Options.Place]: a store that
// has another name, or other options, is at the same place.
var seen pool.Pool[*redis.Seen] = "instances"

// placeKey is the key of a value in these pools.
type placeKey struct {
	process *process.Process
	place   string
}

// state is the state of a provisioned store.
type state struct {
	process *process.Process
	refs    pool.References
	secret  string
}

// Provision implements caddy.Provisioner. The options are checked by Open, whose errors are
// reported together with those of other stores.
func (c *Store) Provision(ctx caddy.Context) error {
	c.process = process.Of(ctx)
	if c.plainPassword() {
		ctx.Logger().Warn("a password is written in the configuration: use {env.NAME} or {file./path} instead", zap.String("store", cmp.Or(c.Name, DefaultName)))
	}
	return nil
}

// Open implements [stores.Module].
func (c *Store) Open(keep func(identity string, open func() stores.Shared) stores.Shared) (stores.Shared, error) {
	o, secret, err := c.Options()
	if err != nil {
		return nil, err
	}
	id, err := c.identity(&o)
	if err != nil {
		return nil, err
	}
	at := placeKey{c.process, o.Place()}
	o.Clock, o.Process, o.Dial = clock.Now, c.process.ID, c.process.Dial
	o.Held = held.Acquire(&c.refs, at, func() *memory.Permits { return new(memory.Permits) })
	o.Seen = seen.Acquire(&c.refs, at, func() *redis.Seen { return new(redis.Seen) })
	c.secret = secret
	goredis.SetLogger(redisLog{})
	return keep(id, func() stores.Shared { return redis.New(o, nil) }), nil
}

// Cleanup implements caddy.CleanerUpper.
func (c *Store) Cleanup() error { return c.refs.Release() }

// Secret implements [stores.Secret].
func (c *Store) Secret() string { return c.secret }

// Public implements [stores.Public].
func (c *Store) Public() any {
	p := Store{Name: c.Name, DB: c.DB, KeyPrefix: c.KeyPrefix, OnFailure: c.OnFailure, FallbackShare: c.FallbackShare, Lease: c.Lease, Timeout: c.Timeout, Cluster: c.Cluster}
	if c.Sentinel != nil {
		p.Sentinel = &Sentinel{Master: c.Sentinel.Master}
	}
	for _, address := range c.Addresses {
		p.Addresses = append(p.Addresses, address[strings.LastIndexByte(address, '@')+1:]) // a URL may have a password
	}
	return &p
}

// lent is how many connections a source of rules has: one for reading and one that looks up the
// slots of a Cluster.
const lent = 2

// Lend returns what a source of rules needs that reads from the same Redis. dial is
// [process.Process.Dial].
func (c *Store) Lend(dial func(ctx context.Context, network, address string) (net.Conn, error)) (identity, place string, open func() goredis.UniversalClient, err error) {
	o, _, err := c.Options()
	if err != nil {
		return "", "", nil, err
	}
	if identity, err = c.identity(&o); err != nil {
		return "", "", nil, err
	}
	o.PoolSize, o.Lazy, o.Dial = lent, true, dial
	o.Timeout = o.DialTimeout
	return identity, fmt.Sprint(o.Addresses, o.Master, o.DB), func() goredis.UniversalClient { return redis.NewClient(&o.ConnOptions) }, nil
}

// plainPassword reports whether the configuration contains a password in plain text.
func (c *Store) plainPassword() bool {
	plain := isPlain(c.Password) || c.Sentinel != nil && isPlain(c.Sentinel.Password)
	for _, a := range c.Addresses {
		if u, err := url.Parse(a); err == nil && u.User != nil {
			secret, _ := u.User.Password()
			plain = plain || isPlain(secret)
		}
	}
	return plain
}

// isPlain reports whether a password has no placeholder.
func isPlain(password string) bool {
	_, name, _ := strings.Cut(password, "{")
	return password != "" && !strings.Contains(name, "}")
}

// redisLog passes the log lines of the Redis client to Caddy's log. By default the client
// writes them to standard error.
type redisLog struct{}

// Printf implements go-redis' logger.
func (redisLog) Printf(_ context.Context, format string, v ...any) {
	caddy.Log().Named("rate_limit.redis").Debug(fmt.Sprintf(format, v...))
}

// Interface guards
var (
	_ caddy.CleanerUpper = (*Store)(nil)
	_ caddy.Provisioner  = (*Store)(nil)
	_ stores.Module      = (*Store)(nil)
	_ stores.Public      = (*Store)(nil)
	_ stores.Secret      = (*Store)(nil)
)
