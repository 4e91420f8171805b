package compat

import (
	"fmt"
	"strings"

	"github.com/dianalimiter/diana/internal/key"
)

// unfit are placeholders, or the beginnings of their names, that a key cannot have, with the
// reason.
var unfit = []struct{ name, why string }{
	{"http.request.remote", varies},
	{"http.request.remote.port", varies},
	{"http.request.uuid", varies},
	{"http.request.duration", varies},
	{"http.request.duration_ms", varies},
	{"time.now", varies},
	{"time.now.", varies},
	{"http.time_until_shutdown", varies},
	{"system.now", absent},
	{"http.response.", unknown},
	{"http.error.", unknown},
	{"http.request.header.", nameless},
	{"http.request.cookie.", nameless},
	{"http.request.uri.query.", nameless},
}

const (
	varies   = "it is new with each request, so that nobody is limited"
	unknown  = "it is empty until the request has passed"
	absent   = "Caddy does not have it, so that it is always empty"
	nameless = "its name is missing, so that it is always empty"
)

// checkFit returns an error if a part of a key has a placeholder that no key can have.
func checkFit(part string) error {
	t, err := key.Parse(part)
	if err != nil {
		return nil //nolint:nilerr // [key.NewPlan] returns it
	}
	for _, name := range t.Placeholders() {
		for _, u := range unfit {
			if name == u.name || u.why != nameless && strings.HasSuffix(u.name, ".") && strings.HasPrefix(name, u.name) {
				return fmt.Errorf("key {%s}: %s: want what stays the same for a client, such as {client_ip}", name, u.why)
			}
		}
	}
	return nil
}
