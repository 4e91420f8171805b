// Package autoname gives names to zones that have none, or one that is no name.
package autoname

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/config"
)

// Definition returns what the automatic name of a one-line zone is derived from: where it stands and its key, and
// not its rules, so that a zone whose rate changes keeps its counts. site, or the name of a server, tells equal zones of
// several apart; empty: it is not known, or they are one.
func Definition(matcher caddy.ModuleMap, z *config.Zone, inNamedRoute bool, site string) []byte {
	parts := z.Key
	if len(parts) == 0 {
		parts = config.Parts{config.Expand("{client_ip}")}
	}
	def, _ := json.Marshal([]any{matcher, z.MatcherSetsRaw, parts, inNamedRoute, site})
	return def
}

// Of returns the automatic name of a one-line zone: "auto-" and 8 hexadecimal
// digits of a hash of its definition. Moving the zone, or its site, does not rename it.
func Of(definition []byte) string {
	return fmt.Sprintf("auto-%x", sha256.Sum256(definition))[:len("auto-")+8]
}

// Safe returns a valid zone name: name, or, if it is none, name with every invalid
// character replaced by _, followed by - and 6 hexadecimal digits of its hash, so that
// different names stay different.
func Safe(name string) string {
	if config.CheckName(name) == nil {
		return name
	}
	suffix := fmt.Sprintf("-%x", sha256.Sum256([]byte(name)))[:1+6]
	safe := strings.Map(func(r rune) rune {
		if r == '-' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, name)
	return safe[:min(len(safe), config.MaxName-len(suffix))] + suffix
}
