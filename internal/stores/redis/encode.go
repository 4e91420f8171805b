package redis

import (
	"encoding/binary"
	"math"
	"sync/atomic"
)

// appendNumber appends an integer as a double, the number type of Lua.
func appendNumber(b []byte, v int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
}

func appendSize(b []byte, n int) []byte {
	return binary.LittleEndian.AppendUint32(b, uint32(n))
}

// appendCount appends the number of keys or zones of an entry that decides several zones.
// The limiter rejects handlers with more zones than fit.
func appendCount(b []byte, n int) []byte {
	return binary.LittleEndian.AppendUint16(b, uint16(n))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// argument is an argument of a command that is sent as it is.
type argument struct {
	b     []byte
	zones int // in the reply, if it is an operation
}

// MarshalBinary implements encoding.BinaryMarshaler, by which go-redis sends it
// without a copy.
func (a *argument) MarshalBinary() ([]byte, error) { return a.b, nil }

// String returns the name of a key, by which a Cluster's slot is found.
func (a *argument) String() string { return string(a.b) }

// heading is the argument before the operations of a call. Redis runs no call whose heading was not
// written.
type heading struct {
	argument
	is atomic.Int32
}

// What may be with a call.
const (
	unwritten = iota
	written
	revoked // before it was written: if it is, Redis does not run it
)

// begin begins a call with a number, which is worth running until last.
func (h *heading) begin(seq, last int64) {
	h.b = appendNumber(appendNumber(h.b[:0], seq), last)
	h.is.CompareAndSwap(written, unwritten)
}

// revoke keeps Redis from running a call. It returns false if the call was written.
func (h *heading) revoke() bool { return h.is.CompareAndSwap(unwritten, revoked) }

// MarshalBinary implements encoding.BinaryMarshaler.
func (h *heading) MarshalBinary() ([]byte, error) {
	if !h.is.CompareAndSwap(unwritten, written) && h.is.Load() == revoked {
		h.b = appendNumber(h.b[:8], 0)
	}
	return h.b, nil
}
