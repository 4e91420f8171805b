package redistest

import (
	"testing"

	"github.com/dianalimiter/diana/internal/freeport"
)

// FreePort returns a port of 127.0.0.1 that is held until the tests end, see [freeport.Get].
func FreePort(tb testing.TB) int {
	tb.Helper()
	return freePort(tb)
}

func freePort(tb testing.TB, offsets ...int) int {
	tb.Helper()
	port, err := freeport.Get(offsets...)
	if err != nil {
		tb.Fatal(err)
	}
	return port
}
