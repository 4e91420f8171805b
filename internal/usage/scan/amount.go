package scan

import (
	"math/big"
	"regexp"
	"strconv"
)

// MaxAmount is the greatest amount, in whole units. Greater ones count as this.
const MaxAmount = 1 << 52

// Amount is a number that is not negative, in millionths. Its further decimals are rounded up.
type Amount struct {
	Units  int64 // at most MaxAmount
	Micros int64 // less than a million
}

const (
	maxText     = 32 // the longest number that is read, in bytes
	maxExponent = 50 // with any greater one, 32 bytes say 0 or more than MaxAmount; with one below -50, 0 or less than a millionth
)

// number is a JSON number, with its exponent.
var number = regexp.MustCompile(`^(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)(?:[eE]([+-]?[0-9]+))?$`)

// ParseAmount returns the amount that a JSON number says. Negative ones are 0. It returns false if
// the text is none, or longer than 32 bytes.
func ParseAmount(text []byte) (a Amount, ok bool) {
	if len(text) > maxText {
		return a, false
	}
	if whole, err := strconv.ParseUint(string(text), 10, 64); err == nil && (text[0] != '0' || len(text) == 1) {
		return Amount{Units: int64(min(whole, MaxAmount))}, true
	}
	parts := number.FindSubmatch(text)
	if parts == nil {
		return a, false
	}
	e, _ := strconv.Atoi(string(parts[2])) // out of range: the nearest int
	e = max(-maxExponent, min(e, maxExponent))
	micros, ok := new(big.Rat).SetString(string(parts[1]) + "e" + strconv.Itoa(e+6))
	if ok && micros.Sign() > 0 {
		a = amountOf(micros)
	}
	return a, ok
}

var million = big.NewInt(1_000_000)

// amountOf returns an amount of so many millionths.
func amountOf(micros *big.Rat) Amount {
	whole, rest := new(big.Int).QuoRem(micros.Num(), micros.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	units, rest := whole.QuoRem(whole, million, rest)
	if !units.IsInt64() || units.Int64() >= MaxAmount {
		return Amount{Units: MaxAmount}
	}
	return Amount{units.Int64(), rest.Int64()}
}

// Less reports whether a is less than b.
func (a Amount) Less(b Amount) bool {
	return a.Units < b.Units || a.Units == b.Units && a.Micros < b.Micros
}
