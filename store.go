package diana

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/stores/redis"
)

const (
	defaultStoreName   = "redis"
	defaultKeyPrefix   = "diana"
	defaultTimeout     = 25 * time.Millisecond
	defaultDialTimeout = 2 * time.Second
	shareMillionths    = 1_000_000

	minLease = caddy.Duration(time.Millisecond)
	maxLease = caddy.Duration(10 * time.Second)
)

// resolve returns the store's configuration with {env.*} and {file.*} replaced.
// The configuration itself keeps them, so that no secret is shown where a
// configuration is.
func (c *RedisStore) resolve() (*RedisStore, error) {
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
	repl := caddy.NewReplacer()
	for name, s := range fields {
		if !strings.Contains(*s, "{") {
			continue
		}
		value, err := repl.ReplaceOrErr(*s, true, true)
		if err != nil || value == "" {
			return nil, fmt.Errorf("%s %s: the placeholder resolves to nothing", strings.TrimRight(name, "0123456789"), *s)
		}
		*s = strings.TrimRight(value, "\r\n") // a file's last line ends so
	}
	return &r, nil
}

// options checks a store and says how to reach it.
func (c *RedisStore) options() (o redis.Options, h hasher, err error) {
	r, err := c.resolve()
	if err != nil {
		return o, h, err
	}
	o = redis.Options{
		Name:  orDefault(r.Name, defaultStoreName),
		Lease: time.Duration(r.Lease),
		Clock: clock,
		ConnOptions: redis.ConnOptions{
			Username: r.Username, Password: r.Password, DB: r.DB, Cluster: r.Cluster,
			Prefix:      orDefault(r.KeyPrefix, defaultKeyPrefix),
			Timeout:     orDefault(time.Duration(r.Timeout), defaultTimeout),
			DialTimeout: orDefault(time.Duration(r.DialTimeout), defaultDialTimeout),
			PoolSize:    r.PoolSize,
		},
	}
	if err := errors.Join(checkName(o.Name), r.checkBounds(), r.setFailure(&o), r.setTLS(&o), r.setAddresses(&o)); err != nil {
		return o, h, err
	}
	if r.Sentinel != nil {
		o.Master, o.SentinelUsername, o.SentinelPassword = r.Sentinel.Master, r.Sentinel.Username, r.Sentinel.Password
	}
	return o, newHasher(r.KeySecret), nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

func (c *RedisStore) checkBounds() error {
	switch {
	case c.Name == "local":
		return errors.New(`name "local" is this process: want another`)
	case c.Timeout < 0:
		return fmt.Errorf("timeout %v: want a positive duration", time.Duration(c.Timeout))
	case c.DialTimeout < 0:
		return fmt.Errorf("dial_timeout %v: want a positive duration", time.Duration(c.DialTimeout))
	case c.Lease < 0 || c.Lease != 0 && c.Lease < minLease || c.Lease > maxLease:
		return fmt.Errorf("lease %v: want %v to %v", time.Duration(c.Lease), time.Duration(minLease), time.Duration(maxLease))
	case c.PoolSize < 0:
		return fmt.Errorf("pool_size %d: want at least 1", c.PoolSize)
	case c.DB < 0:
		return fmt.Errorf("db %d: want 0 or more", c.DB)
	case c.Cluster && c.Sentinel != nil:
		return errors.New("cluster and sentinel: want one of them")
	case c.Cluster && c.DB != 0:
		return errors.New("db: a Redis Cluster has only database 0")
	case c.Sentinel != nil && c.Sentinel.Master == "":
		return errors.New("sentinel: want the name of the master")
	case strings.ContainsAny(c.KeyPrefix, "{} \t\r\n"):
		return fmt.Errorf("key_prefix %q: want no braces and no white space", c.KeyPrefix)
	}
	return nil
}

func (c *RedisStore) setFailure(o *redis.Options) error {
	switch c.OnFailure {
	case "", "local":
		o.OnFailure = redis.FailLocal
	case "allow":
		o.OnFailure = redis.FailAllow
	case "deny":
		o.OnFailure = redis.FailDeny
	default:
		return fmt.Errorf("on_failure %q: want local, allow or deny", c.OnFailure)
	}
	if s := string(c.FallbackShare); s != "" && s != "auto" {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 1e-6 && f <= 1) {
			return fmt.Errorf("fallback_share %q: want auto, or a fraction above 0 and up to 1 such as 0.25", s)
		}
		o.ShareOf = int64(math.Round(shareMillionths / f))
	}
	return nil
}

// setAddresses reads the addresses, which may be URLs that bring a user, a
// password, a database and TLS.
func (c *RedisStore) setAddresses(o *redis.Options) error {
	if len(c.Addresses) == 0 {
		return errors.New("no address: want such as localhost:6379")
	}
	if len(c.Addresses) > 1 && !c.Cluster && c.Sentinel == nil {
		return fmt.Errorf("%d addresses: want one, or cluster or sentinel beside them", len(c.Addresses))
	}
	for i, a := range c.Addresses {
		switch {
		case strings.Contains(a, "://"):
			u, err := goredis.ParseURL(a)
			if err != nil {
				return fmt.Errorf("address %d: %w: want such as rediss://user:password@host:6379/0", i+1, hideURL(err))
			}
			o.Network = u.Network
			o.Username, o.Password = orDefault(o.Username, u.Username), orDefault(o.Password, u.Password)
			o.DB = orDefault(o.DB, u.DB)
			if o.TLS == nil {
				o.TLS = u.TLSConfig
			}
			o.Addresses = append(o.Addresses, u.Addr)
		case strings.HasPrefix(a, "unix/"):
			o.Network = "unix"
			o.Addresses = append(o.Addresses, strings.TrimPrefix(a, "unix/"))
		default:
			addr, err := caddy.ParseNetworkAddressWithDefaults(a, "tcp", 6379)
			if err != nil || addr.PortRangeSize() != 1 {
				_, shown, found := strings.Cut(a, "@") // what is before it may be a password
				if !found {
					shown = a
				}
				return fmt.Errorf("address %q: want host:port, a redis:// or rediss:// URL, or unix//path", shown)
			}
			o.Addresses = append(o.Addresses, addr.JoinHostPort(0))
		}
	}
	return nil
}

// hideURL leaves the URL, which may hold a password, out of an error.
func hideURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return errors.New("cannot be read")
}

func (c *RedisStore) setTLS(o *redis.Options) error {
	t := c.TLS
	if t == nil {
		return nil
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify} //nolint:gosec // the operator's choice
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return fmt.Errorf("tls: ca: %w", err)
		}
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("tls: ca %s: want a PEM file with certificates", t.CA)
		}
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

// plainPassword says whether a password stands in the configuration itself.
func (c *RedisStore) plainPassword() bool {
	plain := c.Password != "" && !strings.Contains(c.Password, "{")
	if c.Sentinel != nil && c.Sentinel.Password != "" {
		plain = plain || !strings.Contains(c.Sentinel.Password, "{")
	}
	for _, a := range c.Addresses {
		if u, err := url.Parse(a); err == nil && u.User != nil {
			secret, has := u.User.Password()
			plain = plain || has && !strings.Contains(secret, "{")
		}
	}
	return plain
}

// identity tells stores with different options apart, so that those with the
// same share one client, over handlers and reloads. It shows no secret.
func (c *RedisStore) identity() (string, error) {
	r, err := c.resolve()
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(r) //nolint:gosec // only its hash is kept
	if err != nil {
		return "", err
	}
	if r.TLS != nil {
		for _, f := range []string{r.TLS.CA, r.TLS.Cert, r.TLS.Key} {
			if pem, err := os.ReadFile(f); err == nil { //nolint:gosec // the operator's file
				b = append(b, pem...) // a renewed certificate is another client
			}
		}
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
