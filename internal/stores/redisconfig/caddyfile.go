package redisconfig

import (
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
)

func init() {
	option.AddPlace("the block of a store in the global option rate_limit", new(Store).options().Has)
	option.AddPlace("the block of tls", new(TLS).options().Has)
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler:
//
//	store redis <address...> {
//		<options>
//	}
func (c *Store) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	at := d.Token()
	if c.Addresses = d.RemainingArgs(); len(c.Addresses) == 0 {
		return d.Errf("store redis: want an address, such as localhost:6379")
	}
	if err := c.options().Block(d); err != nil {
		return err
	}
	if err := c.checkUnresolved(true); err != nil {
		return option.At(at, fmt.Errorf("store: %w", err))
	}
	return nil
}

// options returns the options of the block.
func (c *Store) options() *option.Set {
	return &option.Set{
		One: map[string]option.Parse{
			"name":           option.Text(&c.Name, "a name"),
			"username":       option.Text(&c.Username, "a user"),
			"password":       option.Secret(&c.Password),
			"db":             option.Whole(&c.DB, 0, maxDB),
			"cluster":        option.Flag(&c.Cluster),
			"sentinel":       c.parseSentinel,
			"tls":            c.parseTLS,
			"key_prefix":     option.Text(&c.KeyPrefix, "a prefix"),
			"key_secret":     option.Secret(&c.KeySecret),
			"timeout":        option.Duration(&c.Timeout),
			"dial_timeout":   option.Duration(&c.DialTimeout),
			"max_age":        option.Duration(&c.MaxAge),
			"pool_size":      option.Whole(&c.PoolSize, 1, maxPoolSize),
			"on_failure":     option.Text(&c.OnFailure, "local, allow or deny"),
			"fallback_share": option.Text(&c.FallbackShare, "auto, or a fraction such as 0.25"),
			"lease":          option.Duration(&c.Lease),
		},
		Check: func() error { return c.checkUnresolved(false) },
	}
}

func (c *Store) parseSentinel(d *caddyfile.Dispenser) error {
	c.Sentinel = new(Sentinel)
	if err := option.Text(&c.Sentinel.Master, "the name of the master")(d); err != nil {
		return err
	}
	s := &option.Set{One: map[string]option.Parse{
		"username": option.Text(&c.Sentinel.Username, "a user"),
		"password": option.Secret(&c.Sentinel.Password),
		"plain":    option.Flag(&c.Sentinel.Plain),
	}}
	return s.Block(d)
}

func (c *Store) parseTLS(d *caddyfile.Dispenser) error {
	c.TLS = new(TLS)
	return c.TLS.options().Block(d)
}

func (t *TLS) options() *option.Set {
	return &option.Set{One: map[string]option.Parse{
		"ca":                   option.Text(&t.CA, "a file"),
		"cert":                 option.Text(&t.Cert, "a file"),
		"key":                  option.Text(&t.Key, "a file"),
		"server_name":          option.Text(&t.ServerName, "a name"),
		"insecure_skip_verify": option.Flag(&t.InsecureSkipVerify),
	}}
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Store)(nil)
