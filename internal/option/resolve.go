package option

import (
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// Resolve replaces {env.*} and {file.*} in the value of an option when it is
// provisioned, so that the configuration shows no secret. A placeholder that resolves
// to nothing is an error.
func Resolve(name, value string) (string, error) {
	if !strings.Contains(value, "{") {
		return value, nil
	}
	resolved, err := caddy.NewReplacer().ReplaceOrErr(value, true, true)
	if resolved = strings.TrimRight(resolved, "\r\n"); err != nil || resolved == "" { // the last line of a file ends so
		return "", fmt.Errorf("%s %s: the placeholder resolves to nothing", name, value)
	}
	return resolved, nil
}
