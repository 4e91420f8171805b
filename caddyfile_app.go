package diana

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/internal/option"
	"github.com/dianalimiter/diana/internal/stores/redis"
)

// parseGlobalOption reads the global option:
//
//	rate_limit {
//		store redis <address...> {
//			<store options>
//		}
//		max_keys <n>
//		headers  draft|legacy|all|off
//		rules    redis|http|file <source> {
//			interval <duration>
//		}
//	}
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	d.Next()
	at := d.Token()
	if existing != nil {
		return nil, d.Errf("rate_limit stands twice among the global options: want all of it in one block")
	}
	var app App
	s := &option.Set{
		One: map[string]option.Parse{
			"max_keys": option.Whole(&app.MaxKeys, 1, option.Max),
			"headers":  option.Checked(&app.Headers, "draft, legacy, all or off", checkHeaders),
			"rules":    app.parseRules,
		},
		Many: map[string]option.Parse{"store": app.parseStore},
	}
	if err := s.Block(d); err != nil {
		return nil, err
	}
	if err := option.End(d, at.Text); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "rate_limit", Value: caddyconfig.JSON(&app, nil)}, nil
}

// parseStore reads store redis <address...> and its block.
func (a *App) parseStore(d *caddyfile.Dispenser) error {
	at := d.Token()
	const want = "redis and its address, such as store redis localhost:6379"
	if !d.NextArg() {
		return d.Errf("store: want %s", want)
	}
	if v := d.Val(); v != "redis" {
		if strings.Contains(v, "@") { // a URL with a password, perhaps
			return d.Errf("store: want %s", want)
		}
		return d.Errf("store %q: want %s", v, want)
	}
	c := &RedisStore{Addresses: d.RemainingArgs()}
	if len(c.Addresses) == 0 {
		return d.Errf("store redis: want an address, such as localhost:6379")
	}
	s := c.parser()
	if err := s.Block(d); err != nil {
		return err
	}
	if err := c.checkWritten(true); err != nil {
		return option.At(at, fmt.Errorf("store: %w", err))
	}
	for _, other := range a.Stores {
		if name := orDefault(c.Name, defaultStoreName); name == orDefault(other.Name, defaultStoreName) {
			return option.At(at, fmt.Errorf("store %q stands twice: want another name", name))
		}
	}
	a.Stores = append(a.Stores, c)
	return nil
}

func (c *RedisStore) parser() *option.Set {
	return &option.Set{
		One: map[string]option.Parse{
			"name":           option.Text(&c.Name, "a name"),
			"username":       option.Text(&c.Username, "a user"),
			"password":       option.Secret(&c.Password),
			"db":             option.Whole(&c.DB, 0, math.MaxInt32),
			"cluster":        option.Flag(&c.Cluster),
			"sentinel":       c.parseSentinel,
			"tls":            c.parseTLS,
			"key_prefix":     option.Text(&c.KeyPrefix, "a prefix"),
			"key_secret":     option.Secret(&c.KeySecret),
			"timeout":        option.Duration(&c.Timeout),
			"dial_timeout":   option.Duration(&c.DialTimeout),
			"pool_size":      option.Whole(&c.PoolSize, 1, math.MaxInt32),
			"on_failure":     option.Text(&c.OnFailure, "local, allow or deny"),
			"fallback_share": option.Text(&c.FallbackShare, "auto, or a fraction such as 0.25"),
			"lease":          option.Duration(&c.Lease),
		},
		Check: func() error { return c.checkWritten(false) },
	}
}

// checkWritten checks what can be told before placeholders are replaced. The
// addresses depend on options that may follow them, and are checked at the end.
func (c *RedisStore) checkWritten(end bool) error {
	w := *c
	for _, s := range []*string{&w.Name, &w.KeyPrefix, &w.OnFailure, (*string)(&w.FallbackShare)} {
		if strings.Contains(*s, "{") {
			*s = ""
		}
	}
	var o redis.Options
	err := errors.Join(checkName(orDefault(w.Name, defaultStoreName)), w.checkBounds(), w.setFailure(&o))
	if end && !strings.Contains(strings.Join(w.Addresses, " "), "{") {
		err = errors.Join(err, w.setAddresses(&o))
	}
	return err
}

func (c *RedisStore) parseSentinel(d *caddyfile.Dispenser) error {
	c.Sentinel = new(Sentinel)
	if err := option.Text(&c.Sentinel.Master, "the name of the master")(d); err != nil {
		return err
	}
	s := &option.Set{One: map[string]option.Parse{
		"username": option.Text(&c.Sentinel.Username, "a user"),
		"password": option.Secret(&c.Sentinel.Password),
	}}
	return s.Block(d)
}

func (c *RedisStore) parseTLS(d *caddyfile.Dispenser) error {
	c.TLS = new(TLS)
	s := &option.Set{One: map[string]option.Parse{
		"ca":                   option.Text(&c.TLS.CA, "a file"),
		"cert":                 option.Text(&c.TLS.Cert, "a file"),
		"key":                  option.Text(&c.TLS.Key, "a file"),
		"server_name":          option.Text(&c.TLS.ServerName, "a name"),
		"insecure_skip_verify": option.Flag(&c.TLS.InsecureSkipVerify),
	}}
	return s.Block(d)
}
