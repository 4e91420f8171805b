package mholt

import (
	"testing"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/dianalimiter/diana/internal/trace"
)

// TestCompat puts to the plugin itself what Diana's own tests put to Diana:
// both must give the same answers.
func TestCompat(t *testing.T) { trace.Compat(t, "../../test/testdata/compat/mholt", 1) }
