package stores

import "github.com/dianalimiter/diana/stores/hash"

// Key is a 128-bit keyed hash of everything that identifies a client in a zone.
type Key = hash.Key
