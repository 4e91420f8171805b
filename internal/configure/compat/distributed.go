package compat

import "github.com/caddyserver/caddy/v2"

// Distributed is the distributed mode of github.com/mholt/caddy-ratelimit. It
// requires one of the app's Redis stores and sets nothing else.
type Distributed struct {
	// Accepted for compatibility and ignored: every decision is made in Redis.
	// Default: none.
	ReadInterval caddy.Duration `json:"read_interval,omitempty"`

	// Accepted for compatibility and ignored: every decision is made in Redis.
	// Default: none.
	WriteInterval caddy.Duration `json:"write_interval,omitempty"`

	// Accepted for compatibility and ignored: every key in Redis has a TTL.
	// Default: none.
	PurgeAge caddy.Duration `json:"purge_age,omitempty"`
}
