package config

import (
	"fmt"
	"strconv"

	"github.com/dianalimiter/diana/internal/key"
)

// MaxCost is the greatest cost of one request: above any capacity, and exact in Lua.
const MaxCost = 1 << 52

// parseCost parses an option that is a cost: a number, or a placeholder. Empty is the default.
func parseCost(option string, text Value) (key.Template, error) {
	t, err := key.Parse(Expand(string(text)))
	if err != nil {
		return t, fmt.Errorf("%s: %w", option, err)
	}
	if text, ok := t.Constant(); ok && text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < 1 {
			return t, fmt.Errorf("%s %q: want a number of at least 1, or a placeholder", option, text)
		}
	}
	return t, nil
}
