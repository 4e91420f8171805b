// Package external reads what an option names and the configuration does not contain: variables of the
// environment, and files.
package external

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

var placeholder = regexp.MustCompile(`{[^{}]*}`)

// Resolve replaces {env.*} and {file.*} in the value of an option. It is called when
// provisioning, so that the configuration contains no secret. A placeholder without a
// value is an error, which shows nothing else of the value: a password may stand beside it.
func Resolve(name, value string) (string, error) {
	if !strings.Contains(value, "{") {
		return value, nil
	}
	resolved, err := caddy.NewReplacer().ReplaceOrErr(value, true, true)
	if resolved = strings.TrimRight(resolved, "\r\n"); err != nil || resolved == "" { // a file may end with a newline
		return "", fmt.Errorf("%s %s: the placeholder resolves to nothing: want a variable that is set, or a file with a text", name, strings.Join(placeholder.FindAllString(value, -1), " "))
	}
	return resolved, nil
}
