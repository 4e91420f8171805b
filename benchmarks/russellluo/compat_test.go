// Package russellluo runs the traces of Diana's compatibility tests against
// github.com/RussellLuo/caddy-ext/ratelimit with the same configurations. It is a
// separate binary because both register the same Caddy module.
package russellluo

import (
	"testing"

	_ "github.com/RussellLuo/caddy-ext/ratelimit" // registers the handler
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// TestCompat retries, because the plugin's windows are aligned to the minute and more
// requests pass when a new one begins.
func TestCompat(t *testing.T) { trace.Compat(t, "../../test/testdata/compat/russellluo", 3) }
