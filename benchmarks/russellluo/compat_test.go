// Package russellluo has github.com/RussellLuo/caddy-ext/ratelimit answer what
// Diana's tests ask of Diana with the same configurations. It is a binary of its
// own because the two claim the same name in Caddy.
package russellluo

import (
	"testing"

	_ "github.com/RussellLuo/caddy-ext/ratelimit" // registers the handler
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/dianalimiter/diana/internal/trace"
)

// TestCompat tries again, because that plugin's windows begin with the minute
// on the clock, and lets more pass when the next one does.
func TestCompat(t *testing.T) { trace.Compat(t, "../../test/testdata/compat/russellluo", 3) }
