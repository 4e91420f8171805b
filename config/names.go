package config

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/caddyserver/caddy/v2"
)

// maxName is the greatest length of the name of a zone or rule.
const maxName = 64

const nameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// CheckName checks the name of a zone or rule: 1 to 64 of A-Z a-z 0-9 _ and -, but not
// "exceeded".
func CheckName(name string) error {
	switch {
	case name == "exceeded":
		return errors.New(`name "exceeded" is taken by the placeholders of denied requests: want another`)
	case name == "" || len(name) > maxName || strings.Trim(name, nameCharacters) != "":
		return fmt.Errorf("name %q: want 1 to 64 of A-Z a-z 0-9 _ and -", name)
	}
	return nil
}

// DefinitionOf returns what the automatic name of a one-line zone is derived from. site, or
// the name of a server, tells equal zones of several apart; empty: it is not known, or they are one.
func DefinitionOf(matcher caddy.ModuleMap, z *Zone, inNamedRoute bool, site string) []byte {
	parts := z.Key
	if len(parts) == 0 {
		parts = Parts{Expand("{client_ip}")}
	}
	def, _ := json.Marshal([]any{matcher, z.MatcherSetsRaw, parts, z.Rules, inNamedRoute, site})
	return def
}

// AutoName returns the automatic name of a one-line zone: "auto-" and 8 hexadecimal
// digits of a hash of its definition. Moving the zone, or its site, does not rename it.
func AutoName(definition []byte) string {
	return fmt.Sprintf("auto-%x", sha256.Sum256(definition))[:len("auto-")+8]
}

// Values of the option headers, which selects the rate limit headers of responses.
const (
	HeadersDraft  = "draft"
	HeadersLegacy = "legacy"
	HeadersAll    = "all"
	HeadersOpenAI = "openai"
	HeadersOff    = "off"
)

// CheckHeaders checks a value of the option headers. Empty means the default.
func CheckHeaders(s string) error {
	switch s {
	case "", HeadersDraft, HeadersLegacy, HeadersAll, HeadersOpenAI, HeadersOff:
		return nil
	}
	return fmt.Errorf("headers %q: want draft, legacy, all, openai or off", s)
}

// SafeName returns a valid zone name: name, or, if it is none, name with every invalid
// character replaced by _, followed by - and 6 hexadecimal digits of its hash, so that
// different names stay different.
func SafeName(name string) string {
	if CheckName(name) == nil {
		return name
	}
	suffix := fmt.Sprintf("-%x", sha256.Sum256([]byte(name)))[:1+6]
	safe := strings.Map(func(r rune) rune {
		if r == '-' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, name)
	return safe[:min(len(safe), maxName-len(suffix))] + suffix
}
