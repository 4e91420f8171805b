package stores

import "github.com/caddyserver/caddy/v2"

// Namespace is the Caddy module namespace of the shared stores.
const Namespace = "http.rate_limit.stores"

// Module is a store in a configuration: a Caddy module in [Namespace]. Zones refer to it by its
// JSON field "name", or else by the name of the module. In Caddyfiles it is caddyfile.Unmarshaler.
type Module interface {
	caddy.Module

	// Open checks the options and returns the store. It connects to nothing, because a
	// configuration may only be validated: see [Starter].
	//
	// The store may be what keep returns: the store that the running configuration has for the
	// same identity, so that it survives a reload, or else the one that open returns, which is a
	// caddy.Destructor if it holds anything. The identity is a text that is equal only for the
	// same options. It is hashed. keep returns nil if only the options are to be checked.
	Open(keep func(identity string, open func() Shared) Shared) (Shared, error)
}

// Secret is a [Module] with a secret.
type Secret interface {
	// Secret returns the secret of the keyed hash of clients' keys, the same on every instance
	// that shares the counts. Empty, and of modules without the method: who can read a key can
	// test which client it belongs to.
	Secret() string
}

// Public is a [Module] with options beside its name that operators compare between instances.
type Public interface {
	// Public returns the module's JSON without what is secret, or only of one machine. A hash
	// of it is shown.
	Public() any
}
