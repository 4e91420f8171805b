package config

import (
	"fmt"
	"strconv"

	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/key"
)

// MaxCost is the greatest cost of one request: above any capacity, and exact in Lua.
const MaxCost = 1 << 52

// parseCost parses an option that is a cost: a number, or a placeholder. Empty is the default.
func parseCost(name string, value Value) (key.Template, error) {
	t, err := key.Parse(Expand(string(value)))
	if err != nil {
		return t, fmt.Errorf("%s: %w", name, err)
	}
	if text, ok := t.Constant(); ok && text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < 1 || !option.IsWhole(text) {
			return t, fmt.Errorf("%s %q: want a number of at least 1, or a placeholder", name, text)
		}
	} else if !ok && !t.MayBeNumber() {
		return t, fmt.Errorf("%s %q: text beside a placeholder is never a number: want only the placeholder", name, string(value))
	}
	return t, nil
}
