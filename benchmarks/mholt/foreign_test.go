package mholt

import (
	"testing"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/dianalimiter/diana/internal/trace"
)

// TestForeign puts to the plugin itself what Diana's own tests put to Diana:
// both must give the same answers.
func TestForeign(t *testing.T) { trace.Foreign(t, "../../test/testdata/foreign/mholt", 1) }
