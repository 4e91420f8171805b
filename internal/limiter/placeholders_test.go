package limiter

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
)

// TestRetryInMilliseconds checks that waits below a second are told, and rounded up.
func TestRetryInMilliseconds(t *testing.T) {
	for retry, want := range map[int64]any{
		1: int64(1), 1_000: int64(1), 200_000: int64(200), 200_001: int64(201), 60_000_000: int64(60_000), algorithms.Never: "",
	} {
		e := &exceeded{zone: &Zone{}, retry: retry}
		if got, ok := e.value("retry_after_ms"); !ok || got != want {
			t.Errorf("retry %d us: %v, %v, want %v", retry, got, ok, want)
		}
	}
	if got, ok := (*exceeded)(nil).value("retry_after_ms"); !ok || got != "" {
		t.Errorf("admitted: %v, %v", got, ok)
	}
}
