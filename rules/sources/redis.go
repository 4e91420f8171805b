package sources

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/configure/external"
	"github.com/dianalimiter/diana/internal/lib/subscribe"
	"github.com/dianalimiter/diana/rules"
)

func init() {
	caddy.RegisterModule(new(Redis))
}

// Redis reads rules from a key in Redis, and again after any message on the channel of
// the same name.
type Redis struct {
	// The name of the key and of the channel. {env.*} and {file.*} placeholders are
	// replaced. Required.
	Key string `json:"key"`

	// The server, as a URL such as rediss://user:password@host:6379/0. {env.*} and
	// {file.*} placeholders are replaced, for the user and the password anew for each
	// connection. Default: the Redis of the first store.
	Address string `json:"address,omitempty"`

	// The interval at which the key is read in case a message was lost, at least 1s.
	// Default: 30s.
	Interval caddy.Duration `json:"interval,omitempty"`

	key     string
	address string // what tells the server from others; empty: the store's
	store   string // identity of the store whose Redis it is
	place   string // of the server

	// redis returns the client, which it opens on the first call; nil: there is no server yet.
	redis func() redis.UniversalClient

	// turn is taken by each call: of the client's two connections, one subscribes.
	turn chan struct{}
}

// CaddyModule returns the Caddy module information.
func (*Redis) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.rule_sources.redis", New: func() caddy.Module { return new(Redis) }}
}

// Provision implements caddy.Provisioner.
func (r *Redis) Provision(caddy.Context) (err error) {
	r.turn = make(chan struct{}, 1)
	if r.Key == "" {
		return errors.New("key: want the name of a key, such as diana:rules")
	}
	if r.key, err = external.Resolve("key", r.Key); err != nil {
		return err
	}
	if r.Address == "" {
		return checkInterval(r.Interval)
	}
	o, err := r.options()
	if err != nil {
		return err
	}
	r.address = fmt.Sprint(r.Address, " ", o.Addr)
	if strings.Contains(r.Address, "{file.") {
		o.CredentialsProviderContext = r.login
	}
	o.ConnMaxLifetime, o.ConnMaxLifetimeJitter = maxAge, maxAge/10
	o.Protocol, o.DisableIdentity, o.PoolSize, o.MaxRetries = 2, true, 2, -1
	o.ContextTimeoutEnabled = true
	r.place = fmt.Sprint(o.Addr, o.DB)
	r.redis = sync.OnceValue(func() redis.UniversalClient { return redis.NewClient(o) })
	return checkInterval(r.Interval)
}

// maxAge is the greatest age of a connection: the name in the address may lead to another server by then.
const maxAge = 30 * time.Minute

// options returns the options of a client, with what files have now.
func (r *Redis) options() (*redis.Options, error) {
	address, err := external.Resolve("address", r.Address)
	if err != nil {
		return nil, err
	}
	o, ok := subscribe.ParseURL(address)
	if !ok { // why may contain a password
		return nil, errors.New("address: want a URL such as rediss://user:password@host:6379/0")
	}
	return o, nil
}

// login returns the user and the password of a new connection.
func (r *Redis) login(context.Context) (username, password string, err error) {
	o, err := r.options()
	if err != nil {
		return "", "", err
	}
	return o.Username, o.Password, nil
}

// UseStore sets the Redis of a store as the server, unless an address is configured. open
// returns a client, identity identifies the store with all its options, and place the server.
func (r *Redis) UseStore(identity, place string, open func() redis.UniversalClient) error {
	if r.redis != nil {
		return nil
	}
	if open == nil {
		return errors.New("no address and no store: want store redis, or an address")
	}
	r.redis, r.store, r.place = sync.OnceValue(open), identity, place
	return nil
}

// call calls Redis with the client, once no other call is under way.
func (r *Redis) call(ctx context.Context, call func(redis.UniversalClient) error) error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return r.named(ctx.Err())
	}
	defer func() { <-r.turn }()
	if err := call(r.redis()); err != nil {
		return r.named(err)
	}
	return nil
}

// named adds the key to an error.
func (r *Redis) named(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") {
		err = rules.ErrWrongType
	}
	return fmt.Errorf("key %s: %w", r.key, err)
}

// Answered implements [rules.Remote].
func (r *Redis) Answered(err error) bool { return errors.As(err, new(redis.Error)) }

// Fetch implements [rules.Source].
func (r *Redis) Fetch(ctx context.Context) (text []byte, err error) {
	err = r.call(ctx, func(c redis.UniversalClient) (err error) {
		text, err = get(ctx, c, r.key)
		switch {
		case err == nil && len(text) == 0:
			return rules.ErrEmpty
		case err == nil && len(text) > rules.MaxSize:
			return rules.ErrTooLarge
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return text, nil
}

// Notify implements [rules.Source]. It also notifies after every new subscription, because
// messages may have been missed.
func (r *Redis) Notify(ctx context.Context, changed func(), failed func(error)) {
	subscribe.Subscribe(ctx, r.redis(), r.key, maxAge, subscribe.Callbacks{
		Subscribed: changed,
		Message:    func(string) { changed() },
		Failed:     func(err error) { failed(fmt.Errorf("channel %s: %w", r.key, err)) },
	})
	_ = r.redis().Close()
}

// Every implements [rules.Source].
func (r *Redis) Every() time.Duration { return interval(r.Interval) }

// Identity implements [rules.Source].
func (r *Redis) Identity() string { return "redis " + r.key + " " + r.address + r.store }

// Place implements [rules.Placed].
func (r *Redis) Place() string { return "redis " + r.key + " " + r.place }

var (
	_ rules.Placed      = (*Redis)(nil)
	_ rules.Writer      = (*Redis)(nil)
	_ caddy.Provisioner = (*Redis)(nil)
)
