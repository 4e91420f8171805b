package harness

import (
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// FreePort returns a port that is held until the tests end, see [redistest.FreePort].
func FreePort(t testing.TB) int {
	t.Helper()
	return redistest.FreePort(t)
}
