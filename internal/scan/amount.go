package scan

import (
	"bytes"
	"errors"
	"strconv"
)

// MaxAmount is the greatest amount, in whole units. Greater ones count as this.
const MaxAmount = 1 << 52

// Amount is a number that is not negative, in millionths. Its further decimals are rounded up.
type Amount struct {
	Units  int64 // at most MaxAmount
	Micros int64 // less than a million
}

// maxText is the longest number that is read, in bytes.
const maxText = 32

// ParseAmount returns the amount that a JSON number says. Negative ones are 0. It returns false if
// the text is none, or longer than 32 bytes.
func ParseAmount(text []byte) (a Amount, ok bool) {
	if len(text) > maxText {
		return a, false
	}
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	whole, rest := digits(text)
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' {
		return a, false
	}
	var part []byte
	if len(rest) > 0 && rest[0] == '.' {
		if part, rest = digits(rest[1:]); len(part) == 0 {
			return a, false
		}
	}
	exponent, ok := exponentOf(rest)
	if !ok || negative {
		return a, ok
	}
	return amountOf(whole, part, exponent), true
}

// digits returns the decimal digits that a text begins with, and the rest.
func digits(text []byte) (leading, rest []byte) {
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	return text[:n], text[n:]
}

// exponentOf returns the exponent that a text is, if it is not empty.
func exponentOf(text []byte) (e int, ok bool) {
	if len(text) == 0 {
		return 0, true
	}
	if text[0] != 'e' && text[0] != 'E' {
		return 0, false
	}
	e, err := strconv.Atoi(string(text[1:]))
	if errors.Is(err, strconv.ErrRange) {
		err = nil // e is clamped
	}
	return max(-1000, min(e, 1000)), err == nil // beyond all digits
}

// amountOf returns whole.part times ten to the power of the exponent.
func amountOf(whole, part []byte, exponent int) (a Amount) {
	all := append(append(make([]byte, 0, maxText), whole...), part...)
	point := len(whole) + exponent // digits before the decimal point
	if leading := len(all) - len(bytes.TrimLeft(all, "0")); leading > 0 {
		all, point = all[leading:], point-leading
	}
	if len(all) == 0 {
		return a
	}
	if point > 16 {
		return Amount{Units: MaxAmount}
	}
	digit := func(i int) int64 { // of those before and after the point
		if i < 0 || i >= len(all) {
			return 0
		}
		return int64(all[i] - '0')
	}
	for i := range max(point, 0) {
		a.Units = 10*a.Units + digit(i)
	}
	for i := range 6 {
		a.Micros = 10*a.Micros + digit(point+i)
	}
	if further := max(point+6, 0); further < len(all) && len(bytes.TrimRight(all[further:], "0")) > 0 {
		a.Micros++
	}
	if a.Micros == 1_000_000 {
		a.Units, a.Micros = a.Units+1, 0
	}
	if a.Units >= MaxAmount {
		return Amount{Units: MaxAmount}
	}
	return a
}

// Less reports whether a is less than b.
func (a Amount) Less(b Amount) bool {
	return a.Units < b.Units || a.Units == b.Units && a.Micros < b.Micros
}
