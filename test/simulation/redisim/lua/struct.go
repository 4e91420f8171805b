package lua

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unsafe"
)

// The library struct, as in Redis 7: https://www.inf.puc-rio.br/~roberto/struct/.
var structFunctions = map[string]func(m *Machine, args []Value){
	"pack": structPack, "unpack": structUnpack, "size": structSize,
}

const (
	maxIntSize = 32 // bytes of an integer
	maxAlign   = 8
)

// layout is the state of reading a format.
type layout struct {
	m      *Machine
	format string
	at     int
	big    bool
	align  int
}

// more returns the next option and its size.
func (l *layout) next() (opt byte, size int) {
	opt = l.format[l.at]
	l.at++
	switch opt {
	case 'd':
		return opt, 8
	case 'B', 'b', 'x':
		return opt, 1
	case 'H', 'h':
		return opt, 2
	case 'L', 'l', 'T':
		return opt, 8
	case 'f':
		return opt, 4
	case 'c':
		return opt, l.number(1)
	case 'i', 'I':
		size = l.number(4)
		if size > maxIntSize {
			l.m.Fail("integral size %d is larger than limit of %d", size, maxIntSize)
		}
		return opt, size
	}
	return opt, 0
}

func (l *layout) number(other int) int {
	from, n := l.at, 0
	for ; l.at < len(l.format) && l.format[l.at] >= '0' && l.format[l.at] <= '9'; l.at++ {
		d := int(l.format[l.at] - '0')
		if n > math.MaxInt32/10 || n*10 > math.MaxInt32-d {
			l.m.Fail("integral size overflow")
		}
		n = n*10 + d
	}
	if from == l.at {
		return other
	}
	return n
}

// control applies an option that is no value.
func (l *layout) control(opt byte) {
	switch opt {
	case ' ':
	case '<':
		l.big = false
	case '>':
		l.big = true
	case '!':
		n := l.number(maxAlign)
		if n <= 0 || n&(n-1) != 0 {
			l.m.Fail("alignment %d is not a power of 2", n)
		}
		l.align = n
	default:
		l.m.ArgError(1, fmt.Sprintf("invalid format option '%c'", opt))
	}
}

// padding returns the bytes before a value of that size.
func (l *layout) padding(at int, opt byte, size int) int {
	if l.align <= 1 || size == 0 || opt == 'c' {
		return 0
	}
	size = min(size, l.align)
	return (size - at&(size-1)) & (size - 1)
}

// cut returns the part of a format before a zero, at which C's strings end.
func cut(format string) string {
	if i := strings.IndexByte(format, 0); i >= 0 {
		return format[:i]
	}
	return format
}

func structPack(m *Machine, args []Value) {
	l := layout{m: m, format: cut(m.CheckString(args, 1)), align: 1}
	args = append(args, Value{}) // as the library does, which matters to its errors
	b, arg := m.buf[:0], 2
	for l.at < len(l.format) {
		opt, size := l.next()
		for range l.padding(len(b), opt, size) {
			b = append(b, 0)
		}
		switch opt {
		case 'd':
			b = appendBits(b, math.Float64bits(m.checkNumber(args, arg)), 8, l.big)
			arg++
		case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I':
			b = appendInteger(b, m.checkNumber(args, arg), size, l.big)
			arg++
		case 'x':
			b = append(b, 0)
		case 'f':
			b = appendBits(b, uint64(math.Float32bits(float32(m.checkNumber(args, arg)))), 4, l.big)
			arg++
		case 'c', 's':
			s := m.CheckString(args, arg)
			arg++
			if size == 0 {
				size = len(s)
			}
			if len(s) < size {
				m.ArgError(arg, "string too short")
			}
			b = append(b, s[:size]...)
			if opt == 's' {
				b = append(b, 0)
			}
		default:
			l.control(opt)
		}
	}
	m.buf = b
	m.ReturnOne(Str(string(b)))
}

// appendInteger appends a number as an integer, as C converts it on 64-bit x86.
func appendInteger(b []byte, f float64, size int, big bool) []byte {
	var n uint64
	switch {
	case f < 0 || math.IsNaN(f):
		n = uint64(Integer(f))
	case f < 1<<63:
		n = uint64(f)
	case f < 1<<64:
		n = uint64(f-1<<63) ^ 1<<63
	}
	return appendBits(b, n, size, big)
}

func appendBits(b []byte, n uint64, size int, big bool) []byte {
	if size == 8 && !big {
		return binary.LittleEndian.AppendUint64(b, n)
	}
	from := len(b)
	for range size {
		b = append(b, byte(n))
		n >>= 8
	}
	if big {
		for i, j := from, len(b)-1; i < j; i, j = i+1, j-1 {
			b[i], b[j] = b[j], b[i]
		}
	}
	return b
}

func structUnpack(m *Machine, args []Value) {
	l := layout{m: m, format: cut(m.CheckString(args, 1)), align: 1}
	s, pos := m.CheckString(args, 2), 0
	if len(args) > 2 {
		if pos = m.optInt(args, 3, 1); pos == 0 {
			m.ArgError(3, "offset must be 1 or greater")
		}
		pos--
	}
	out := m.out[:0]
	for l.at < len(l.format) {
		opt, size := l.next()
		pos += l.padding(pos, opt, size)
		if pos < 0 || size > len(s) || pos > len(s)-size {
			m.ArgError(2, "data string too short")
		}
		switch opt {
		case 'd':
			out = append(out, Value{n: bitsAt(s[pos:pos+8], l.big), kind: Number})
		case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I':
			out = append(out, Num(readInteger(s[pos:pos+size], l.big, opt >= 'a')))
		case 'x':
		case 'f':
			out = append(out, Num(float64(math.Float32frombits(uint32(bitsAt(s[pos:pos+4], l.big))))))
		case 'c':
			if size == 0 {
				out, size = m.lastSize(out)
				if size < 0 || size > len(s) || pos > len(s)-size {
					m.ArgError(2, "data string too short")
				}
			}
			out = append(out, Str(s[pos:pos+size]))
		case 's':
			if size = strings.IndexByte(s[pos:], 0); size < 0 {
				m.Fail("unfinished string in data")
			}
			out = append(out, Str(s[pos:pos+size]))
			size++
		default:
			l.control(opt)
		}
		pos += size
	}
	out = append(out, Num(float64(pos+1)))
	m.out = out
}

// lastSize takes the last value that was unpacked as the size of the next.
func (m *Machine) lastSize(out []Value) ([]Value, int) {
	if len(out) > 0 {
		if n, is := out[len(out)-1].tonumber(); is {
			return out[:len(out)-1], int(Integer(n))
		}
	}
	m.Fail("format 'c0' needs a previous size")
	return nil, 0
}

func bitsAt(s string, big bool) (n uint64) {
	b := unsafe.Slice(unsafe.StringData(s), len(s)) //nolint:gosec // it is only read
	if len(s) == 8 && !big {
		return binary.LittleEndian.Uint64(b)
	}
	for i := range b {
		c := b[len(s)-1-i]
		if big {
			c = b[i]
		}
		n = n<<8 | uint64(c)
	}
	return n
}

func readInteger(s string, big, signed bool) float64 {
	n := bitsAt(s, big)
	if !signed {
		return float64(n)
	}
	// The sign is extended from a bit whose number is taken modulo 64, as x86 shifts.
	if mask := ^uint64(0) << ((8*len(s) - 1) & 63); n&mask != 0 {
		n |= mask
	}
	return float64(int64(n))
}

func structSize(m *Machine, args []Value) {
	l := layout{m: m, format: cut(m.CheckString(args, 1)), align: 1}
	pos := 0
	for l.at < len(l.format) {
		opt, size := l.next()
		pos += l.padding(pos, opt, size)
		switch {
		case opt == 's':
			m.ArgError(1, "option 's' has no fixed size")
		case opt == 'c' && size == 0:
			m.ArgError(1, "option 'c0' has no fixed size")
		case opt < '0' || opt > '9' && opt < 'A' || opt > 'Z' && opt < 'a' || opt > 'z':
			l.control(opt)
		}
		pos += size
	}
	m.ReturnOne(Num(float64(pos)))
}
