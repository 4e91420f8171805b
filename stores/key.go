package stores

import (
	"encoding/base64"
	"encoding/binary"
)

// Key is 128 bits of a keyed hash of everything that one client is counted by.
type Key struct {
	Hi, Lo uint64 // the first and the last 64 bits
}

// String is the key as it stands in the names of keys in Redis.
func (k Key) String() string { return string(appendKey(nil, k)) }

// ParseKey reads what [Key.String] writes.
func ParseKey(s string) (Key, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(raw) != 16 {
		return Key{}, false
	}
	return Key{binary.BigEndian.Uint64(raw), binary.BigEndian.Uint64(raw[8:])}, true
}

// AppendKey appends what [Key.String] returns.
func appendKey(b []byte, k Key) []byte {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], k.Hi)
	binary.BigEndian.PutUint64(raw[8:], k.Lo)
	return base64.RawURLEncoding.AppendEncode(b, raw[:])
}
