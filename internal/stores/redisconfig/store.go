// Package redisconfig is the configuration of the store in Redis.
package redisconfig

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/external"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/stores"
)

// Store is a Redis in which several instances share their counts. {env.*} and
// {file.*} placeholders are replaced in every string when the configuration is loaded.
type Store struct {
	// The name by which zones refer to the store, 1 to 64 of A-Z a-z 0-9 _ and -,
	// but not "local". Default: "redis".
	Name string `json:"name,omitempty"`

	// The server: host, host:port, a redis:// or rediss:// URL with a host, or unix//path. With
	// cluster, the seed nodes; with sentinel, the Sentinels. Required. Default
	// port: 6379.
	Addresses []string `json:"addresses,omitempty"`

	// The user to authenticate as (Redis ACL). Default: the default user.
	Username string `json:"username,omitempty"`

	// The password to authenticate with. What {file.*} names is read again for each
	// connection, as are the files of tls. Default: none.
	Password string `json:"password,omitempty"`

	// The number of the database. Default: 0.
	DB int `json:"db,omitempty"`

	// The addresses are nodes of a Redis Cluster. Default: false.
	Cluster bool `json:"cluster,omitempty"`

	// The addresses are Sentinels, from which the address of the master is
	// obtained. Default: off.
	Sentinel *Sentinel `json:"sentinel,omitempty"`

	// Connect with TLS, also to Sentinels. Default: off, unless an address is a rediss:// URL.
	TLS *TLS `json:"tls,omitempty"`

	// The prefix of the names of all keys in Redis, without braces or white space. All
	// instances of one fleet have the same prefix, and each fleet has another. Default: "diana".
	KeyPrefix string `json:"key_prefix,omitempty"`

	// The secret of the keyed hash of clients' keys, the same on every instance.
	// Without it, anyone who can read the names of keys in Redis can test which
	// client a name belongs to. Default: none.
	KeySecret string `json:"key_secret,omitempty"`

	// The timeout of one decision in Redis, 1ms to 1m. Default: 25ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// The timeout of a new connection. Requests do not wait for it longer than
	// timeout. 1ms to 1m. Default: 2s.
	DialTimeout caddy.Duration `json:"dial_timeout,omitempty"`

	// The greatest age of a connection, 10s to 24h. It is replaced beside requests, and
	// the name in the address is looked up again. Default: 30m.
	MaxAge caddy.Duration `json:"max_age,omitempty"`

	// The greatest number of open connections, at most 100000. Default: 10 per core.
	PoolSize int `json:"pool_size,omitempty"`

	// What happens to requests while Redis is unavailable: "local" enforces this instance's
	// share of every limit in this process, "allow" admits every request, "deny" responds with
	// status 503. Default: "local".
	OnFailure string `json:"on_failure,omitempty"`

	// The share of each limit that this instance enforces while Redis is
	// unavailable and on_failure is "local": "auto", which is 1 divided by the
	// number of instances last seen, or a fraction such as "0.25". Default: "auto".
	FallbackShare config.Value `json:"fallback_share,omitempty"`

	// How long a lease lasts, 1ms to 10s: an instance reserves part of a busy key's
	// limit, and spends it without calling Redis. Rules admit less, so that leases do
	// not exceed their bounds. Default: off.
	Lease caddy.Duration `json:"lease,omitempty"`

	state
}

// Sentinel configures how Redis Sentinels are asked for the address of the master.
type Sentinel struct {
	// The name of the master in the configuration of the Sentinels. Required.
	Master string `json:"master"`

	// The user to authenticate to the Sentinels as. Default: the default user.
	Username string `json:"username,omitempty"`

	// The password to authenticate to the Sentinels with. Default: none.
	Password string `json:"password,omitempty"`

	// Connect to the Sentinels without TLS, though the store has it. Default: false, tls covers them too.
	Plain bool `json:"plain,omitempty"`
}

// TLS configures the TLS connection to Redis.
type TLS struct {
	// A PEM file with the certificate authorities to trust. Default: the system's.
	CA string `json:"ca,omitempty"`

	// A PEM file with the client certificate. Requires key. Default: none.
	Cert string `json:"cert,omitempty"`

	// A PEM file with the private key of the client certificate. Default: none.
	Key string `json:"key,omitempty"`

	// The name to verify in the server's certificate. Default: the host of the
	// address.
	ServerName string `json:"server_name,omitempty"`

	// Do not verify the server's certificate. Default: false.
	InsecureSkipVerify bool `json:"insecure_skip_verify,omitempty"`
}

// Defaults of a store.
const (
	DefaultName      = "redis"
	DefaultKeyPrefix = "diana"

	defaultTimeout     = 25 * time.Millisecond
	defaultDialTimeout = 2 * time.Second
	defaultMaxAge      = 30 * time.Minute
	leastMaxAge        = 10 * time.Second // shorter ones cost connections, and find no server sooner that is used
	greatestMaxAge     = 24 * time.Hour
	leastTimeout       = time.Millisecond // no Redis answers sooner at all times
	greatestTimeout    = time.Minute      // no client waits for longer
	maxPoolSize        = 100_000          // the pool allocates for all of them; more than an address has ports
	maxDB              = math.MaxInt32    // Redis reads no greater number
)

const (
	shareMillionths = 1_000_000

	minLease = caddy.Duration(time.Millisecond)
	maxLease = caddy.Duration(10 * time.Second)
)

// resolve returns a copy of the configuration with {env.*} and {file.*} replaced. The
// configuration itself keeps the placeholders, so that it never shows a secret.
func (c *Store) resolve() (*Store, error) {
	r := *c
	r.Addresses = append([]string(nil), c.Addresses...)
	fields := map[string]*string{
		"name": &r.Name, "username": &r.Username, "password": &r.Password,
		"key_prefix": &r.KeyPrefix, "key_secret": &r.KeySecret, "on_failure": &r.OnFailure,
		"fallback_share": (*string)(&r.FallbackShare),
	}
	for i := range r.Addresses {
		fields["address"+strconv.Itoa(i)] = &r.Addresses[i]
	}
	if c.Sentinel != nil {
		s := *c.Sentinel
		r.Sentinel = &s
		fields["sentinel"], fields["sentinel username"], fields["sentinel password"] = &s.Master, &s.Username, &s.Password
	}
	if c.TLS != nil {
		t := *c.TLS
		r.TLS = &t
		fields["ca"], fields["cert"], fields["key"], fields["server_name"] = &t.CA, &t.Cert, &t.Key, &t.ServerName
	}
	for name, s := range fields {
		value, err := external.Resolve(strings.TrimRight(name, "0123456789"), *s)
		if err != nil {
			return nil, err
		}
		*s = value
	}
	return &r, nil
}

// Options checks the configuration and returns the options of the store and the secret
// of its keys.
func (c *Store) Options() (o redis.Options, secret string, err error) {
	r, err := c.resolve()
	if err != nil {
		return o, "", err
	}
	o = redis.Options{
		Name:  cmp.Or(r.Name, DefaultName),
		Lease: time.Duration(r.Lease),
		Clock: clock.Now,
		ConnOptions: redis.ConnOptions{
			Username: r.Username, Password: r.Password, DB: r.DB, Cluster: r.Cluster,
			Prefix:      cmp.Or(r.KeyPrefix, DefaultKeyPrefix),
			Timeout:     cmp.Or(time.Duration(r.Timeout), defaultTimeout),
			DialTimeout: cmp.Or(time.Duration(r.DialTimeout), defaultDialTimeout),
			MaxAge:      cmp.Or(time.Duration(r.MaxAge), defaultMaxAge),
			PoolSize:    r.PoolSize,
		},
	}
	if err := option.Join(config.CheckName(o.Name), r.checkBounds(), r.setFailure(&o), r.setTLS(&o), r.setAddresses(&o)); err != nil {
		return o, "", err
	}
	if r.Sentinel != nil {
		o.Master, o.SentinelUsername, o.SentinelPassword = r.Sentinel.Master, r.Sentinel.Username, r.Sentinel.Password
		o.PlainSentinels = r.Sentinel.Plain
	}
	if c.rotates() {
		o.Secrets = &redis.Secrets{Logins: c.logins, TLS: c.tlsConfig}
	}
	if r.KeySecret != "" {
		h := key.NewHasher(r.KeySecret)
		o.Fleet = h.Hash([]byte("instances")).String()[:8]
	}
	return o, r.KeySecret, nil
}

func (c *Store) checkBounds() error {
	switch {
	case c.Name == "local":
		return errors.New(`name "local" is this process: want another`)
	case !isTimeout(c.Timeout):
		return fmt.Errorf("timeout %v: want %v to %v", time.Duration(c.Timeout), leastTimeout, greatestTimeout)
	case !isTimeout(c.DialTimeout):
		return fmt.Errorf("dial_timeout %v: want %v to %v", time.Duration(c.DialTimeout), leastTimeout, greatestTimeout)
	case c.MaxAge != 0 && (time.Duration(c.MaxAge) < leastMaxAge || time.Duration(c.MaxAge) > greatestMaxAge):
		return fmt.Errorf("max_age %v: want %v to %v", time.Duration(c.MaxAge), leastMaxAge, greatestMaxAge)
	case c.Lease < 0 || c.Lease != 0 && c.Lease < minLease || c.Lease > maxLease:
		return fmt.Errorf("lease %v: want %v to %v", time.Duration(c.Lease), time.Duration(minLease), time.Duration(maxLease))
	case c.PoolSize < 0 || c.PoolSize > maxPoolSize:
		return fmt.Errorf("pool_size %d: want 1 to %d", c.PoolSize, maxPoolSize)
	case c.DB < 0 || c.DB > maxDB:
		return fmt.Errorf("db %d: want 0 to %d", c.DB, maxDB)
	case c.Cluster && c.Sentinel != nil:
		return errors.New("cluster and sentinel: want one of them")
	case c.Cluster && c.DB != 0:
		return errors.New("db: a Redis Cluster has only database 0: want cluster without db")
	case c.Sentinel != nil && c.Sentinel.Master == "":
		return errors.New("sentinel: want the name of the master")
	case strings.ContainsAny(c.KeyPrefix, "{} \t\r\n"):
		return fmt.Errorf("key_prefix %q: want no braces and no white space", c.KeyPrefix)
	}
	return nil
}

// isTimeout reports whether a timeout may be meant; 0 is the default.
func isTimeout(d caddy.Duration) bool {
	return d == 0 || time.Duration(d) >= leastTimeout && time.Duration(d) <= greatestTimeout
}

func (c *Store) setFailure(o *redis.Options) error {
	switch c.OnFailure {
	case "", "local":
		o.OnFailure = stores.FailLocal
	case "allow":
		o.OnFailure = stores.FailAllow
	case "deny":
		o.OnFailure = stores.FailDeny
	default:
		return fmt.Errorf("on_failure %q: want local, allow or deny", c.OnFailure)
	}
	if s := string(c.FallbackShare); s != "" && s != "auto" {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 1e-6 && f <= 1) {
			return fmt.Errorf("fallback_share %q: want auto, or a fraction from 0.000001 to 1 such as 0.25", s)
		}
		o.ShareOf = int64(math.Round(shareMillionths / f))
	}
	return nil
}

func (c *Store) setTLS(o *redis.Options) error {
	t := c.TLS
	if t == nil {
		return nil
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify} //nolint:gosec // the operator's choice
	if t.CA != "" {
		pool, err := external.CertPool(t.CA)
		if err != nil {
			return fmt.Errorf("tls: %w", err)
		}
		o.TLS.RootCAs = pool
	}
	if (t.Cert == "") != (t.Key == "") {
		return errors.New("tls: want both cert and key, or neither")
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return fmt.Errorf("tls: cert: %w", err)
		}
		o.TLS.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// checkUnresolved checks everything that does not depend on the values of placeholders.
// The addresses depend on options that may follow them, so they are checked only if
// the configuration is complete.
func (c *Store) checkUnresolved(complete bool) error {
	w := *c
	for _, s := range []*string{&w.Name, &w.KeyPrefix, &w.OnFailure, (*string)(&w.FallbackShare)} {
		if strings.Contains(*s, "{") {
			*s = ""
		}
	}
	var o redis.Options
	err := option.Join(config.CheckName(cmp.Or(w.Name, DefaultName)), w.checkBounds(), w.setFailure(&o))
	if complete && !strings.Contains(strings.Join(w.Addresses, " "), "{") {
		err = option.Join(err, w.setAddresses(&o))
	}
	return err
}
