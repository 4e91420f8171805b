package mholt

import (
	"testing"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// TestCompat runs the traces of Diana's compatibility tests against the plugin itself:
// both must give the same responses.
func TestCompat(t *testing.T) { trace.Compat(t, "../../test/testdata/compat/mholt", 1) }
