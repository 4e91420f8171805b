package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// Options configure a [Store].
type Options struct {
	ConnOptions

	// Name is the store's name in logs and metrics.
	Name string

	// Process is the ID of this process in the heartbeats of all its stores: those that
	// share a Redis and a prefix count as one instance. 0: a random one.
	Process uint64

	// Fleet tells apart instances that share a prefix but no counts, because the secrets of
	// their keys differ: only those of the same fleet count each other. Empty: no secret.
	Fleet string

	// OnFailure says what happens to requests while Redis is unavailable.
	OnFailure stores.OnFailure

	// ShareOf is the number of instances, in millionths, among which the limits
	// are divided while Redis is unavailable. 0: as many as were last seen.
	ShareOf int64

	// Lease is for how long hot keys are charged in advance. 0: they are not.
	Lease time.Duration

	// Clock returns the time of this process in microseconds.
	Clock func() int64

	// Held is what the requests of all stores of this process at the same [Options.Place] hold,
	// which counts without Redis; nil: what those of this store hold.
	Held *memory.Permits

	// Seen is the number of live instances that the stores of this process at the same
	// [Options.Place] last saw; nil: that this store saw.
	Seen *Seen
}

// share returns among how many instances the limits are divided without Redis, in millionths.
func (o *Options) share() int64 { return cmp.Or(o.ShareOf, max(1, o.Seen.Load())*1e6) }

// Seen is a number of live instances. It outlives the store that counted them. 0: none was ever
// counted.
type Seen struct{ atomic.Int64 }

// Destruct implements caddy.Destructor. No store needs the number any more.
func (*Seen) Destruct() error { return nil }

// ConnOptions configure the connections to a Redis.
type ConnOptions struct {
	Addresses []string // host:port, or the path of a socket
	Network   string   // "tcp" or "unix"
	Username  string   // empty: the default user
	Password  string   // empty: none is sent
	DB        int      // its number; 0 in a Cluster

	// Cluster says that the addresses are nodes of a Redis Cluster.
	Cluster bool

	// Master is the server's name at the Sentinels, whose addresses Addresses
	// then are.
	Master           string
	SentinelUsername string // for the Sentinels themselves
	SentinelPassword string // for the Sentinels themselves
	PlainSentinels   bool   // they are called without TLS

	// TLS is nil for connections without TLS.
	TLS *tls.Config

	// Secrets, unless it is nil, takes the place of the users, the passwords and TLS for connections
	// that are opened later.
	Secrets *Secrets

	// MaxAge is the greatest age of a connection. 0: it has none.
	MaxAge time.Duration

	// Prefix begins the name of every key.
	Prefix string

	// Timeout is the longest that one decision waits for Redis.
	Timeout time.Duration

	// DialTimeout is the longest that opening a connection may take. No request
	// waits for it longer than Timeout.
	DialTimeout time.Duration

	// Dial opens connections. nil: over the network of this machine.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// PoolSize is the highest number of connections. Default: 10 per core.
	PoolSize int

	// Lazy opens no connection before one is needed.
	Lazy bool

	// Script is what Redis runs. Default: scripts.Decide. Tests run it with a
	// clock of their own.
	Script string
}
