package diana

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2"
)

// App holds what all rate_limit handlers of a configuration share: the stores,
// and their defaults.
type App struct {
	// Stores that instances share. The first is what zones use that name none.
	// Default: none; the counts are kept in this process.
	Stores []*RedisStore `json:"stores,omitempty"`

	// How many keys are kept in this process at most, per zone. Default:
	// 1000000.
	MaxKeys int64 `json:"max_keys,omitempty"`

	// The headers that tell clients where they stand, where a handler does not
	// say: "draft", "legacy", "all" or "off". Default: "draft".
	Headers string `json:"headers,omitempty"`

	// Rules from outside, which win over those of the zones: a module that says
	// where they are. Default: none.
	RulesRaw json.RawMessage `json:"rules,omitempty" caddy:"namespace=http.rate_limit.rule_sources inline_key=source"`

	appState
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "rate_limit", New: func() caddy.Module { return new(App) }}
}

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
