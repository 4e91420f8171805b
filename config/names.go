package config

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
)

// maxName is the length of the longest name of a zone or of a rule.
const maxName = 64

// CheckName checks the name of a zone or of a rule: 1 to 64 of A-Z a-z 0-9 _ and -,
// but not "exceeded".
func CheckName(name string) error {
	ok := len(name) >= 1 && len(name) <= maxName
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	switch {
	case name == "exceeded":
		return errors.New(`name "exceeded" is taken by the placeholders of denied requests: want another`)
	case !ok:
		return fmt.Errorf("name %q: want 1 to 64 of A-Z a-z 0-9 _ and -", name)
	}
	return nil
}

// DefinitionOf returns what the automatic name of a one-line zone is made from.
func DefinitionOf(matcher caddy.ModuleMap, z *Zone, inNamedRoute bool) []byte {
	parts := z.Key
	if len(parts) == 0 {
		parts = Parts{Expand("{client_ip}")}
	}
	def, _ := json.Marshal([]any{matcher, z.MatcherSetsRaw, parts, z.Rules, inNamedRoute})
	return def
}

// AutoName returns the automatic name of a one-line zone: "auto-" and 8 hexadecimal
// digits of its matcher, key and rules, so that moving it does not rename it.
func AutoName(matcher caddy.ModuleMap, z *Zone, inNamedRoute bool) string {
	return fmt.Sprintf("auto-%x", sha256.Sum256(DefinitionOf(matcher, z, inNamedRoute)))[:len("auto-")+8]
}

// Values of headers: which rate limit headers a response gets.
const (
	HeadersDraft  = "draft"
	HeadersLegacy = "legacy"
	HeadersAll    = "all"
	HeadersOff    = "off"
)

// CheckHeaders checks a value of headers. Empty is the default.
func CheckHeaders(s string) error {
	switch s {
	case "", HeadersDraft, HeadersLegacy, HeadersAll, HeadersOff:
		return nil
	}
	return fmt.Errorf("headers %q: want draft, legacy, all or off", s)
}

// Error is an error in one part of a zone, so that a parser can name its line.
type Error struct {
	At  any   // the *Rule or *Override; nil: the zone
	Err error // what is wrong with it
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its place.
func (e *Error) Unwrap() error { return e.Err }
