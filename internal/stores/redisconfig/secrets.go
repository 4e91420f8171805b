package redisconfig

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/dianalimiter/diana/internal/stores/redis"
)

// What is in files may change while the store runs: users and passwords, and the certificates and keys of TLS.
// Connections that are opened later use what the files have then. Whatever else is in a file, such as an
// address, is read when the configuration is loaded.

// rotates reports whether a user, a password or an option of TLS is in a file.
func (c *Store) rotates() bool {
	texts := append([]string{c.Username, c.Password}, c.Addresses...) // URLs have users and passwords
	if c.Sentinel != nil {
		texts = append(texts, c.Sentinel.Username, c.Sentinel.Password)
	}
	if strings.Contains(strings.Join(texts, " "), "{file.") {
		return true
	}
	return c.TLS != nil && c.TLS.CA+c.TLS.Cert+c.TLS.Key != ""
}

// logins reads the users and passwords again.
func (c *Store) logins() (logins redis.Logins, err error) {
	r, err := c.resolve()
	if err != nil {
		return logins, err
	}
	o := redis.Options{ConnOptions: redis.ConnOptions{Username: r.Username, Password: r.Password}}
	if err := r.setAddresses(&o); err != nil {
		return logins, err
	}
	logins.Servers = redis.Login{Username: o.Username, Password: o.Password}
	if r.Sentinel != nil {
		logins.Sentinels = redis.Login{Username: r.Sentinel.Username, Password: r.Sentinel.Password}
	}
	return logins, nil
}

// tlsConfig reads the files of TLS again.
func (c *Store) tlsConfig() (*tls.Config, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	var o redis.Options
	err = r.setTLS(&o)
	return o.TLS, err
}

// identity returns a hash of all options, for which a store reads files itself that may change. Stores with the
// same identity share one client, across handlers and reloads. It reveals no secret.
func (c *Store) identity(o *redis.Options) (string, error) {
	r, err := c.resolve()
	if err != nil {
		return "", err
	}
	r.Addresses = append(append([]string{o.Network}, o.Addresses...), c.Addresses...)
	if strings.Contains(c.Username+c.Password, "{file.") {
		r.Username, r.Password = c.Username, c.Password
	}
	if c.Sentinel != nil && strings.Contains(c.Sentinel.Username+c.Sentinel.Password, "{file.") {
		r.Sentinel.Username, r.Sentinel.Password = c.Sentinel.Username, c.Sentinel.Password
	}
	b, err := json.Marshal([]any{r, o.DB, o.TLS != nil})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
