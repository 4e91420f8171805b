package diana

import (
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/stores/redis"
)

// What outlives a reload. A new configuration is provisioned before the old one
// is cleaned up, so that what both use is never let go.
var (
	tables  = caddy.NewUsagePool() // tableKey → *stores.Table
	clients = caddy.NewUsagePool() // identity → *client
)

// tableKey tells tables apart: by everything that gives their keys and states a
// meaning, and nothing else, so that a changed limit finds its counts again.
type tableKey struct {
	zone, key, override, kinds string
	holds                      bool
}

// client is a shared store. It is opened when the configuration runs, because
// a configuration that is only validated must not reach out.
type client struct {
	*redis.Store
	hasher hasher
}

// Destruct implements caddy.Destructor.
func (c *client) Destruct() error { return c.Store.Destruct() }

// pooled remembers what was taken from a pool, to be given back once.
type pooled struct {
	pool *caddy.UsagePool
	key  any
}

type references []pooled

func (r *references) add(pool *caddy.UsagePool, key any) { *r = append(*r, pooled{pool, key}) }

// release gives back everything that was taken.
func (r *references) release() (err error) {
	for _, p := range *r {
		if _, e := p.pool.Delete(p.key); e != nil {
			err = e
		}
	}
	*r = nil
	return err
}

var (
	started   = time.Now()
	startedAt = started.UnixMicro()
)

// clock is this process' time in microseconds since 1970. It begins with the
// system's clock and then only goes forward, whatever is done to that.
func clock() int64 { return startedAt + time.Since(started).Microseconds() }
