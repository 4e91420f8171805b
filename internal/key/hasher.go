package key

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/dchest/siphash"

	"github.com/dianalimiter/diana/stores/hash"
)

// Hasher hashes keys with SipHash-2-4-128 and a secret.
type Hasher struct{ k0, k1 uint64 }

// NewHasher returns a hasher with a secret of any length.
func NewHasher(secret string) Hasher {
	sum := sha256.Sum256([]byte("diana key " + secret))
	return Hasher{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

// Hash returns the hash of an encoded key.
func (h Hasher) Hash(b []byte) hash.Key {
	hi, lo := siphash.Hash128(h.k0, h.k1, b)
	return hash.Key{Hi: hi, Lo: lo}
}

// Group returns a hash of the network of a key: the /16 of its IPv4 or the /48 of its
// IPv6 address. A key without an address is a group of its own.
func (h Hasher) Group(k *Encoded, key hash.Key) uint32 {
	if !k.group.IsValid() {
		return uint32(key.Lo)
	}
	a := k.group.As16()
	net := binary.BigEndian.Uint64(a[:]) >> 16
	if k.group.Is4() {
		net = 1<<63 | uint64(a[12])<<8 | uint64(a[13])
	}
	hi, lo := bits.Mul64(net^h.k0, h.k1|1)
	return uint32(hi ^ lo)
}
