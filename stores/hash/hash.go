// Package hash has the hashes by which stores know keys. It is a package of its own so that what
// builds keys needs no store.
package hash

import (
	"encoding/base64"
	"encoding/binary"
)

// Key is a 128-bit keyed hash of everything that identifies a client in a zone.
type Key struct {
	Hi, Lo uint64 // the first and the last 64 bits
}

// String returns the key as it stands in the names of keys in Redis: unpadded
// base64 of 16 bytes.
func (k Key) String() string { return string(AppendKey(nil, k)) }

// AppendKey appends what [Key.String] returns.
func AppendKey(b []byte, k Key) []byte {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], k.Hi)
	binary.BigEndian.PutUint64(raw[8:], k.Lo)
	return base64.RawURLEncoding.AppendEncode(b, raw[:])
}

// ParseKey parses what [Key.String] returns.
func ParseKey(s string) (Key, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(raw) != 16 {
		return Key{}, false
	}
	return Key{binary.BigEndian.Uint64(raw), binary.BigEndian.Uint64(raw[8:])}, true
}
