package config

import (
	"errors"
	"fmt"
	"strings"
)

// MaxName is the greatest length of the name of a zone or rule.
const MaxName = 64

const nameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// CheckName checks the name of a zone or rule: 1 to 64 of A-Z a-z 0-9 _ and -, but not
// "exceeded".
func CheckName(name string) error {
	switch {
	case name == "exceeded":
		return errors.New(`name "exceeded" is taken by the placeholders of denied requests: want another`)
	case name == "" || len(name) > MaxName || strings.Trim(name, nameCharacters) != "":
		return fmt.Errorf("name %q: want 1 to 64 of A-Z a-z 0-9 _ and -", name)
	}
	return nil
}
