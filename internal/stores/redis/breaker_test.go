package redis

import (
	"errors"
	"testing"
)

// TestLateHeartbeatDoesNotCloseBreaker handles the reply to a heartbeat after
// requests have opened the breaker: the reply is older than their failures.
func TestLateHeartbeatDoesNotCloseBreaker(t *testing.T) {
	changes := 0
	b := newBreaker(func() {}, func(bool, error) { changes++ })
	sent := b.opened.Load()
	for range failuresToOpen {
		b.failure(FailAway, errors.New("refused"))
	}
	b.close(sent)
	if !b.open.Load() || changes != 1 {
		t.Errorf("open %v after %d changes, want it open after one", b.open.Load(), changes)
	}
	b.close(b.opened.Load())
	if b.open.Load() || changes != 2 {
		t.Errorf("open %v after %d changes, want it closed after two", b.open.Load(), changes)
	}
}
