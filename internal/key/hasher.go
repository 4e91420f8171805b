package key

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/dchest/siphash"

	"github.com/dianalimiter/diana/internal/stores"
)

// Hasher makes the names of keys: 128 bits of SipHash-2-4 under a secret.
type Hasher struct{ k0, k1 uint64 }

func NewHasher(secret string) Hasher {
	sum := sha256.Sum256([]byte("diana key " + secret))
	return Hasher{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

func (h Hasher) Hash(b []byte) stores.Key {
	hi, lo := siphash.Hash128(h.k0, h.k1, b)
	return stores.Key{Hi: hi, Lo: lo}
}

// Group is what the keys of one network have in common: the /16 of an IPv4
// or the /48 of an IPv6 address. A key without an address is its own group.
func (h Hasher) Group(k *Encoded, key stores.Key) uint32 {
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
