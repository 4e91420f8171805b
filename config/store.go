package config

import (
	"cmp"
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

	"github.com/dianalimiter/diana/internal/clock"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/option"
	"github.com/dianalimiter/diana/internal/stores/redis"
)

// RedisStore is a Redis that keeps the counts of several instances. In every
// string {env.*} and {file.*} are replaced when the configuration is loaded.
type RedisStore struct {
	// The name by which zones choose it. Default: "redis".
	Name string `json:"name,omitempty"`

	// Where it is: host:port, a redis:// or rediss:// URL, or unix//path. With
	// cluster the nodes to begin with, with sentinel the Sentinels.
	Addresses []string `json:"addresses,omitempty"`

	// The user, for Redis' access control lists.
	Username string `json:"username,omitempty"`

	// The password.
	Password string `json:"password,omitempty"`

	// The number of the database. Default: 0.
	DB int `json:"db,omitempty"`

	// The addresses are nodes of a Redis Cluster. Default: false.
	Cluster bool `json:"cluster,omitempty"`

	// The addresses are Sentinels, which know where the server is.
	Sentinel *Sentinel `json:"sentinel,omitempty"`

	// Encrypt the connection.
	TLS *TLS `json:"tls,omitempty"`

	// What the names of all keys begin with. Default: "diana".
	KeyPrefix string `json:"key_prefix,omitempty"`

	// The secret of the hash that names keys in Redis, the same on every
	// instance. Without it, who can read the names can try out which client
	// they stand for.
	KeySecret string `json:"key_secret,omitempty"`

	// The most that one decision waits for Redis. Default: 25ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// The most that a new connection may take; no request waits for it longer
	// than timeout. Default: 2s.
	DialTimeout caddy.Duration `json:"dial_timeout,omitempty"`

	// How many connections are open at most. Default: 10 per core.
	PoolSize int `json:"pool_size,omitempty"`

	// What becomes of requests while Redis is away: "local" lets this instance
	// go on alone with its share of every limit, "allow" lets everything pass,
	// "deny" answers 503. Default: "local".
	OnFailure string `json:"on_failure,omitempty"`

	// The part of each limit that one instance enforces alone: "auto", which is
	// one over the number of instances last seen, or a fraction such as "0.25".
	// Default: "auto".
	FallbackShare Value `json:"fallback_share,omitempty"`

	// For how long a part of the limit of a key that comes often may be charged
	// in advance, and spent by one instance without asking Redis: 1ms to 10s. The
	// rules keep back what that could add to their bounds, and one to which
	// nothing would be left is refused. Default: nothing is charged in advance.
	Lease caddy.Duration `json:"lease,omitempty"`
}

// Sentinel says how to ask Redis Sentinels for the server.
type Sentinel struct {
	// The name by which the Sentinels know the server.
	Master string `json:"master"`

	// The user to give to the Sentinels.
	Username string `json:"username,omitempty"`

	// The password to give to the Sentinels.
	Password string `json:"password,omitempty"`
}

// TLS says how to encrypt the connection to Redis.
type TLS struct {
	// A PEM file of the authorities to trust. Default: the system's.
	CA string `json:"ca,omitempty"`

	// A PEM file with the client's certificate.
	Cert string `json:"cert,omitempty"`

	// A PEM file with the certificate's key.
	Key string `json:"key,omitempty"`

	// The name that the server's certificate must have. Default: the host of
	// the address.
	ServerName string `json:"server_name,omitempty"`

	// Do not check the server's certificate. Default: false.
	InsecureSkipVerify bool `json:"insecure_skip_verify,omitempty"`
}

// Defaults of a store.
const (
	DefaultStoreName = "redis"
	DefaultKeyPrefix = "diana"

	defaultTimeout     = 25 * time.Millisecond
	defaultDialTimeout = 2 * time.Second
)

const (
	shareMillionths = 1_000_000

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
	for name, s := range fields {
		value, err := option.Resolve(strings.TrimRight(name, "0123456789"), *s)
		if err != nil {
			return nil, err
		}
		*s = value
	}
	return &r, nil
}

// StoreName returns the name by which zones choose the store.
func (c *RedisStore) StoreName() string { return cmp.Or(c.Name, DefaultStoreName) }

// Options checks a store. It returns how to reach it, and how its keys are hashed.
func (c *RedisStore) Options() (o redis.Options, h key.Hasher, err error) {
	r, err := c.resolve()
	if err != nil {
		return o, h, err
	}
	o = redis.Options{
		Name:  cmp.Or(r.Name, DefaultStoreName),
		Lease: time.Duration(r.Lease),
		Clock: clock.Now,
		ConnOptions: redis.ConnOptions{
			Username: r.Username, Password: r.Password, DB: r.DB, Cluster: r.Cluster,
			Prefix:      cmp.Or(r.KeyPrefix, DefaultKeyPrefix),
			Timeout:     cmp.Or(time.Duration(r.Timeout), defaultTimeout),
			DialTimeout: cmp.Or(time.Duration(r.DialTimeout), defaultDialTimeout),
			PoolSize:    r.PoolSize,
		},
	}
	if err := errors.Join(CheckName(o.Name), r.checkBounds(), r.setFailure(&o), r.setTLS(&o), r.setAddresses(&o)); err != nil {
		return o, h, err
	}
	if r.Sentinel != nil {
		o.Master, o.SentinelUsername, o.SentinelPassword = r.Sentinel.Master, r.Sentinel.Username, r.Sentinel.Password
	}
	return o, key.NewHasher(r.KeySecret), nil
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
			o.Username, o.Password = cmp.Or(o.Username, u.Username), cmp.Or(o.Password, u.Password)
			o.DB = cmp.Or(o.DB, u.DB)
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

// PlainPassword reports whether a password stands in the configuration itself.
func (c *RedisStore) PlainPassword() bool {
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

// Identity tells stores with different options apart, so that those with the
// same share one client, over handlers and reloads. It shows no secret.
func (c *RedisStore) Identity() (string, error) {
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

// CheckWritten checks what can be told before placeholders are replaced. The
// addresses depend on options that may follow them: they are checked at the end.
func (c *RedisStore) CheckWritten(end bool) error {
	w := *c
	for _, s := range []*string{&w.Name, &w.KeyPrefix, &w.OnFailure, (*string)(&w.FallbackShare)} {
		if strings.Contains(*s, "{") {
			*s = ""
		}
	}
	var o redis.Options
	err := errors.Join(CheckName(cmp.Or(w.Name, DefaultStoreName)), w.checkBounds(), w.setFailure(&o))
	if end && !strings.Contains(strings.Join(w.Addresses, " "), "{") {
		err = errors.Join(err, w.setAddresses(&o))
	}
	return err
}
