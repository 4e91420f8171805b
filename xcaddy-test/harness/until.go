package harness

import (
	"testing"
	"time"
)

// Patience is how long a busy machine may take for what an idle one does at once. It is no
// promise of the plugin.
const Patience = 2 * time.Minute

// Until polls ok until it returns true and fails the test if it does not in time.
func Until(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
