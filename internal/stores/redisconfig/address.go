package redisconfig

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dianalimiter/diana/internal/lib/subscribe"
	"github.com/dianalimiter/diana/internal/stores/redis"
)

// setAddresses parses the addresses. URLs among them may set the user, the password,
// the database and TLS.
func (c *Store) setAddresses(o *redis.Options) error {
	if len(c.Addresses) == 0 {
		return errors.New("no address: want such as localhost:6379")
	}
	if len(c.Addresses) > 1 && !c.Cluster && c.Sentinel == nil {
		return fmt.Errorf("%d addresses: want one, or cluster or sentinel beside them", len(c.Addresses))
	}
	for i, a := range c.Addresses {
		switch {
		case strings.Contains(a, "://"):
			if err := c.setURL(o, i+1, a); err != nil {
				return err
			}
		case strings.HasPrefix(a, "unix/") && strings.Trim(a, "/") != "unix":
			o.Network = "unix"
			o.Addresses = append(o.Addresses, strings.TrimPrefix(a, "unix/"))
		default:
			addr, ok := subscribe.HostPort(a)
			if !ok {
				shown := strconv.Quote(a)
				if strings.ContainsAny(a, "@") { // a password may be in it
					shown = strconv.Itoa(i + 1)
				}
				return fmt.Errorf("address %s: want host:port, a redis:// or rediss:// URL, or unix//path", shown)
			}
			o.Addresses = append(o.Addresses, addr)
		}
	}
	return nil
}

// setURL adds the n-th address, which is a URL.
func (c *Store) setURL(o *redis.Options, n int, address string) error {
	u, ok := subscribe.ParseURL(address)
	if !ok { // neither the URL nor why is shown, because each may have a part of a password
		return fmt.Errorf("address %d: want a URL such as rediss://user:password@host:6379/0, with special characters of a password percent-encoded", n)
	}
	if u.DB < 0 || u.DB > maxDB || c.Cluster && u.DB != 0 {
		return fmt.Errorf("address %d: db %d: want 0 to %d, and in a Redis Cluster only 0", n, u.DB, maxDB)
	}
	o.Network = u.Network
	o.Username, o.Password = cmp.Or(o.Username, u.Username), cmp.Or(o.Password, u.Password)
	o.DB = cmp.Or(o.DB, u.DB)
	o.TLS = cmp.Or(o.TLS, u.TLSConfig)
	o.Addresses = append(o.Addresses, u.Addr)
	return nil
}
