package redis

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// minReadTimeout is the least read timeout of the client itself. It matters for
// calls without a deadline: those to Sentinels, and those that look up a
// Cluster's slots.
const minReadTimeout = 500 * time.Millisecond

// keptReady is how many connections of a pool wait for requests.
const keptReady = 2

// NewClient returns a client for other uses of the same Redis. It may have one subscription, whose
// connection is in addition to those of the pool.
func NewClient(o *ConnOptions) goredis.UniversalClient {
	tracker := newConnTracker(max(o.Timeout, minReadTimeout))
	return newClient(o, 1, func(string) *connTracker { return tracker }, func(*goredis.Client) {})
}

// newClient returns a client that observes context deadlines and never retries
// a command: a decision that is made twice is charged twice. tracker returns the
// tracker of the connections to an address of a Cluster. created is called with the
// client of each node. The pool does not know of the connections of subscriptions.
func newClient(o *ConnOptions, subscriptions int, tracker func(address string) *connTracker, created func(*goredis.Client)) goredis.UniversalClient {
	size := o.poolSize()
	idle := min(keptReady, size)
	if o.Lazy {
		idle = 0
	}
	answer, most := max(o.Timeout, minReadTimeout), size+subscriptions
	u := &goredis.UniversalOptions{
		Addrs:      slices.Clip(o.Addresses), // a Cluster's client appends to them
		MasterName: o.Master, IsClusterMode: o.Cluster,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: o.DialTimeout, PoolTimeout: o.Timeout, ReadTimeout: answer, WriteTimeout: answer,
		PipelinePoolSize: -1, // the script is loaded over the connections of the pool
		PoolSize:         size, MinIdleConns: idle, MaxActiveConns: size,
		TLSConfig:                o.TLS,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if subscriptions > 0 { // no node of the store watches them
		u.ConnMaxLifetime = o.MaxAge
	}
	only := opener{tracker: func() *connTracker { return tracker("") }, greet: o.greeting(), age: o.MaxAge}
	switch {
	case o.Cluster:
		c := u.Cluster()
		c.DisableRoutingPolicies = true // they would need the right to run COMMAND
		c.ClusterStateReloadInterval = time.Second
		c.NewClient = func(node *goredis.Options) *goredis.Client {
			of := only
			of.tracker, of.dial = func() *connTracker { return tracker(node.Addr) }, o.dialer(node)
			node.Dialer = newDialer(of, most)
			client := goredis.NewClient(node)
			client.AddHook(newEndpointHook(node.Addr))
			created(client)
			return client
		}
		return goredis.NewClusterClient(c)
	case o.Master != "":
		f := u.Failover()
		f.MinIdleConns = 0 // they would be opened before the hook is there: see conn.fill
		hook := masterHook{opener: only, most: most, timeout: o.DialTimeout}
		both := &goredis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLS}
		if o.PlainSentinels && o.TLS != nil {
			both.TLSConfig, hook.tls = nil, o.tlsConfig
		}
		f.Dialer = o.toSentinels(o.dialer(both))
		client := goredis.NewFailoverClient(f)
		client.AddHook(hook)
		created(client)
		return client
	}
	simple := u.Simple()
	simple.Network = o.Network
	only.dial = o.dialer(simple)
	simple.Dialer = newDialer(only, most)
	client := goredis.NewClient(simple)
	created(client)
	return client
}

// poolSize returns the highest number of connections of the pool.
func (o *ConnOptions) poolSize() int { return cmp.Or(o.PoolSize, 10*runtime.GOMAXPROCS(0)) }

// dialer returns what opens the connections of a client, which are named: of the master that Sentinels name,
// a hook is told no address.
func (o *ConnOptions) dialer(c *goredis.Options) dialer {
	if o.Dial != nil {
		return naming(func(ctx context.Context, network, addr string) (connection, error) {
			ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
			defer cancel()
			return o.Dial(ctx, network, addr)
		})
	}
	plain := *c
	plain.TLSConfig = nil
	dial := naming(goredis.NewDialer(&plain))
	if c.TLSConfig == nil {
		return dial
	}
	return securing(dial, o.tlsConfig, c.DialTimeout)
}
