package rules

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/option"
	"github.com/dianalimiter/diana/internal/subscribe"
)

func init() {
	caddy.RegisterModule((*Redis)(nil))
}

// Redis reads rules from a key in Redis. A message on the channel of the same
// name, whatever it says, tells that the key has changed.
type Redis struct {
	// The key, which is also the channel. {env.*} and {file.*} are replaced.
	Key string `json:"key"`

	// A Redis of the rules' own, as a URL such as
	// rediss://user:password@host:6379/0. {env.*} and {file.*} are replaced.
	// Default: that of the first store.
	Address string `json:"address,omitempty"`

	// How often to read the key in any case, at least 1s, because a message may
	// be lost. Default: 30s.
	Interval caddy.Duration `json:"interval,omitempty"`

	key, address string
	open         func() redis.UniversalClient
	store        string
	once         sync.Once
	client       redis.UniversalClient
}

// CaddyModule returns the Caddy module information.
func (*Redis) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: Namespace + ".redis", New: func() caddy.Module { return new(Redis) }}
}

// Provision implements caddy.Provisioner.
func (r *Redis) Provision(caddy.Context) (err error) {
	if r.Key == "" {
		return errors.New("key: want the name of a key, such as diana:rules")
	}
	if r.key, err = option.Resolve("key", r.Key); err != nil {
		return err
	}
	if r.Address == "" {
		return checkInterval(r.Interval)
	}
	if r.address, err = option.Resolve("address", r.Address); err != nil {
		return err
	}
	o, err := redis.ParseURL(r.address)
	if err != nil { // which may show a password
		return errors.New("address: want a URL such as rediss://user:password@host:6379/0")
	}
	o.Protocol, o.DisableIdentity, o.PoolSize, o.MaxRetries = 2, true, 2, -1
	o.ContextTimeoutEnabled = true
	r.open = func() redis.UniversalClient { return redis.NewClient(o) }
	return checkInterval(r.Interval)
}

// UseStore has the source read from a store's Redis, unless it has an address
// of its own. open opens a client, identity tells stores apart.
func (r *Redis) UseStore(identity string, open func() redis.UniversalClient) error {
	if r.open != nil {
		return nil
	}
	if open == nil {
		return errors.New("no address and no store: want store redis, or an address")
	}
	r.open, r.store = open, identity
	return nil
}

// redis opens the client, once.
func (r *Redis) redis() redis.UniversalClient {
	r.once.Do(func() { r.client = r.open() })
	return r.client
}

// Fetch implements [Source].
func (r *Redis) Fetch(ctx context.Context) ([]byte, error) {
	// No more is read than may be, however long the value is.
	text, err := r.redis().GetRange(ctx, r.key, 0, MaxSize).Bytes()
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", r.key, err)
	}
	if text, err = sized(text); err != nil {
		return nil, fmt.Errorf("key %s: %w", r.key, err)
	}
	return text, nil
}

// Notify implements [Source]. A subscription that was made anew may have missed
// a message, and so is one.
func (r *Redis) Notify(ctx context.Context, changed func(), failed func(error)) {
	subscribe.Subscribe(ctx, r.redis(), r.key, subscribe.Callbacks{
		Subscribed: changed,
		Message:    func(string) { changed() },
		Failed:     func(err error) { failed(fmt.Errorf("channel %s: %w", r.key, err)) },
	})
	_ = r.redis().Close()
}

// Every implements [Source].
func (r *Redis) Every() time.Duration { return interval(r.Interval) }

// Identity implements [Source].
func (r *Redis) Identity() string { return "redis " + r.key + " " + r.address + r.store }

var (
	_ Source            = (*Redis)(nil)
	_ caddy.Provisioner = (*Redis)(nil)
)
