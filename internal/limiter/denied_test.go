package limiter

import (
	"net/http"
	"testing"
	"time"

	"github.com/dianalimiter/diana/config"
)

// TestDenialThatIsServedAfterAll has an inner handler deny with an error, after which the request is
// served elsewhere, as an error route may do: that costs what the outer handler holds.
func TestDenialThatIsServedAfterAll(t *testing.T) {
	hour := config.Window{Duration: time.Hour}
	outer := newTestLimiter(t, nil, &config.Zone{Name: "outer", Cost: "6", Settle: "{http.response.header.X-Cost}", Hold: true, Rules: []*config.Rule{{Limit: 10, Window: hour}}})
	inner := newTestLimiter(t, nil, &config.Zone{Name: "inner", Rules: []*config.Rule{{Limit: 1, Window: hour}}})
	inner.follows = true
	if status := ask(t.Context(), inner, "a", takes(0)); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	elsewhere := handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		if err := inner.ServeHTTP(w, r, takes(0)); err == nil {
			t.Error("the inner handler did not deny")
		}
		w.WriteHeader(http.StatusOK)
		return nil
	})
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if status := ask(t.Context(), outer, "a", elsewhere); status != want {
			t.Errorf("status %d, want %d", status, want)
		}
	}
}
