package body

import (
	"math"
	"strconv"
	"strings"
)

// number returns the shortest form of a JSON number, by its value: 100, 1e2 and 100.00 are
// one. Integers are exact if they fit into 64 bits. All others are rounded to a float64, as
// those that read them do. It is empty if the number is too large for one.
func number(raw string) string {
	if !strings.ContainsAny(raw, ".eE") && raw != "-0" {
		if _, err := strconv.ParseInt(raw, 10, 64); err == nil {
			return raw
		}
		if _, err := strconv.ParseUint(raw, 10, 64); err == nil {
			return raw
		}
	}
	f, err := strconv.ParseFloat(raw, 64)
	switch abs := math.Abs(f); {
	case err != nil:
		return ""
	case f == 0: // -0 too
		return "0"
	case abs < 1e-6 || abs >= 1e21:
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
