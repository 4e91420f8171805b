package redis

import (
	"crypto/tls"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Login is a user and its password.
type Login struct {
	Username string // empty: the default user
	Password string // empty: none is sent
}

// Logins are what a store logs in with.
type Logins struct {
	// Servers is for the servers that decide.
	Servers Login

	// Sentinels is for the Sentinels that name the master.
	Sentinels Login
}

// Secrets are the logins and the TLS options of a store that reads them again while it runs, because they are
// in files. Stores that follow each other may share them.
type Secrets struct {
	// Logins reads the logins. After an error, the last ones stay in use.
	Logins func() (Logins, error)

	// TLS reads the TLS options; nil without TLS. After an error, the last ones stay in use.
	TLS func() (*tls.Config, error)

	mu     sync.Mutex
	logins Logins    // that were read last
	read   time.Time // when
	tls    *tls.Config

	accepted, sentinels atomic.Pointer[Login] // that a server accepted last
}

// readEvery is how often logins are read without a connection that needs one.
const readEvery = 5 * time.Second

// login returns the logins. Those that were read less than d ago are not read again.
func (o *ConnOptions) login(d time.Duration) Logins {
	s := o.Secrets
	if s == nil {
		return Logins{Login{o.Username, o.Password}, Login{o.SentinelUsername, o.SentinelPassword}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.read.IsZero() || now.Sub(s.read) >= d {
		s.read = now
		if logins, err := s.Logins(); err == nil {
			s.logins = logins
		}
	}
	return s.logins
}

// tlsConfig returns the TLS options of a new connection; nil: it has no TLS.
func (o *ConnOptions) tlsConfig() *tls.Config {
	s := o.Secrets
	if s == nil || o.TLS == nil {
		return o.TLS
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if config, err := s.TLS(); err == nil && config != nil {
		s.tls = config
	} else if s.tls == nil {
		s.tls = o.TLS
	}
	return s.tls
}

// refusesLogin says whether a server has refused a login, or does not accept that of a connection any more.
func refusesLogin(err error) bool {
	for _, words := range [...]string{"WRONGPASS", "NOAUTH", "invalid password", "invalid username-password"} {
		if goredis.HasErrorPrefix(err, words) {
			return true
		}
	}
	return false
}

// logIn logs in with a login that is read again, and with the last one that was accepted if that is refused:
// who changes a password may write it before the server knows it. newest: not so.
func (o *ConnOptions) logIn(newest bool, sentinel bool, greet func(Login) error) (Login, error) {
	logins := o.login(0)
	login, accepted := logins.Servers, (*atomic.Pointer[Login])(nil)
	if o.Secrets != nil {
		accepted = &o.Secrets.accepted
	}
	if sentinel {
		if login = logins.Sentinels; accepted != nil {
			accepted = &o.Secrets.sentinels
		}
	}
	err := greet(login)
	switch {
	case accepted == nil:
	case err == nil:
		accepted.Store(&login)
	case !newest && refusesLogin(err):
		if before := accepted.Load(); before != nil && *before != login && greet(*before) == nil {
			return *before, nil
		}
	}
	return login, err
}

// errAged ends a connection to a Sentinel that is older than the greatest age.
var errAged = errors.New("the connection has reached its greatest age")
