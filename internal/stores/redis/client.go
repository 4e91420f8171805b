package redis

import (
	"context"
	"runtime"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// silence is how long the client itself waits for an answer where no deadline
// of ours ends the wait: when it asks Sentinels, and a cluster's nodes for the
// slots.
const silence = 500 * time.Millisecond

// NewClient returns a client for other uses of the same Redis.
func NewClient(o *ConnOptions) goredis.UniversalClient {
	c, _ := newClient(o)
	return c
}

// newClient returns a client that never repeats a command, because a decision
// that is made twice is charged twice, and that keeps the deadline of a context.
func newClient(o *ConnOptions) (goredis.UniversalClient, *connTracker) {
	size := o.PoolSize
	if size == 0 {
		size = 10 * runtime.GOMAXPROCS(0)
	}
	idle := min(2, size)
	if o.Lazy {
		idle = 0
	}
	answer := max(o.Timeout, silence)
	u := &goredis.UniversalOptions{
		Addrs:      slices.Clip(o.Addresses), // a Cluster's client appends to them
		MasterName: o.Master, IsClusterMode: o.Cluster,
		Username: o.Username, Password: o.Password, DB: o.DB,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: o.DialTimeout, PoolTimeout: o.Timeout, ReadTimeout: answer, WriteTimeout: answer,
		PipelinePoolSize: -1, // loading the script takes no connections beside these
		PoolSize:         size, MinIdleConns: idle, MaxActiveConns: size,
		TLSConfig:                o.TLS,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	all := newConnTracker(answer)
	switch {
	case o.Cluster:
		c := u.Cluster()
		c.DisableRoutingPolicies = true // they would ask for COMMAND
		c.ClusterStateReloadInterval = time.Second
		c.NewClient = func(node *goredis.Options) *goredis.Client {
			node.Dialer = all.dialer(goredis.NewDialer(node), size)
			return goredis.NewClient(node)
		}
		return goredis.NewClusterClient(c), all
	case o.Master != "":
		f := u.Failover()
		plain := goredis.NewDialer(&goredis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLS})
		bounded := all.dialer(plain, size)
		f.Dialer = func(ctx context.Context, network, addr string) (connection, error) {
			if slices.Contains(o.Addresses, addr) {
				return plain(ctx, network, addr) // a Sentinel
			}
			return bounded(ctx, network, addr)
		}
		return goredis.NewFailoverClient(f), all
	}
	simple := u.Simple()
	simple.Network = o.Network
	simple.Dialer = all.dialer(goredis.NewDialer(simple), size)
	return goredis.NewClient(simple), all
}

// failed is told of a call that went wrong. What Redis refused it said on a
// connection that is in order; after anything else no connection is trusted any
// more, and a cluster's slots are looked up again, which the client itself does
// only when a node redirects it.
func (c *conn) failed(f Failure) {
	if f == FailRefused || f == FailWrong {
		return
	}
	c.tracker.retire()
	if cluster, ok := c.client.(*goredis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}
