package test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// TestVariablesAreLeftAlone checks that nothing is written to the variables of a request once a next handler has run:
// what reverse_proxy begins, such as a dial that outlives the request, may still read them.
func TestVariablesAreLeftAlone(t *testing.T) {
	type variables = map[string]any
	zone := func(name, lines string) string {
		return "rate_limit {\nheaders all\nzone " + name + " {\nrule 100/1h\n" + lines + "\n}\n}\n"
	}
	const settle = "settle {http.response.header.X-Tokens}"
	for name, site := range map[string]string{
		"an error":        zone("a", "") + "HANDLER",
		"error routes":    zone("a", "in_flight 5") + "HANDLER handle_errors {\nroute {\nheader X-Tokens 7\n" + zone("b", settle) + zone("a", "in_flight 5") + "respond page\n}\n}",
		"costs":           "route {\n" + zone("a", settle) + zone("b", settle) + "HANDLER }\nhandle_errors {\nheader X-Tokens 7\nrespond page\n}",
		"only the errors": "HANDLER handle_errors {\nroute {\n" + zone("a", settle) + zone("b", "count_status 2xx") + "respond page\n}\n}",
		"a denial there":  zone("a", "") + "HANDLER handle_errors {\nroute {\n" + zone("b", "key {header.X-No}\nkey_missing deny") + "respond page\n}\n}",
	} {
		t.Run(name, func(t *testing.T) {
			var now, then variables
			h := handle(t, "/", func(_ http.ResponseWriter, r *http.Request) error {
				now = r.Context().Value(caddyhttp.VarsCtxKey).(variables)
				then = maps.Clone(now)
				return caddyhttp.Error(http.StatusBadGateway, http.ErrHandlerTimeout)
			})
			s := serve(t, setup{site: strings.ReplaceAll(site, "HANDLER", h+"\n")})
			s.send(req{})
			ended(t)
			if len(now) != len(then) {
				t.Errorf("variables %v, and before %v", now, then)
			}
			for k, v := range now {
				if then[k] != v {
					t.Errorf("variable %s: %v, before %v", k, v, then[k])
				}
			}
		})
	}
}
