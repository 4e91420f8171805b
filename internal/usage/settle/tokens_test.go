package settle

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dianalimiter/diana/config"
)

// TestTokensOfAnnouncedLength checks that a longer body, as a client announces it, never costs less:
// before the response, and after a stream that tells no tokens of the input.
func TestTokensOfAnnouncedLength(t *testing.T) {
	var z config.Zone
	if err := json.Unmarshal([]byte(`{"name": "z", "tokens": {}, "rules": [{"limit": 1000, "window": "1h"}]}`), &z); err != nil {
		t.Fatal(err)
	}
	checked, err := z.Check(Responses{})
	if err != nil {
		t.Fatal(err)
	}
	c := &checked.Charge
	var held, charged int64
	for _, length := range []int64{-1, 0, 8, 1 << 53, math.MaxInt64 - 3, math.MaxInt64 - 2, math.MaxInt64} {
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.ContentLength = length
		hold, _ := c.Cost(r)
		cost := hold.Cost
		m := c.Settle.Measure(r, false)
		m.Begin(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}})
		m.Write([]byte("data: {\"usage\":{\"completion_tokens\":50}}\n\n"))
		m.End(true)
		charge, _ := c.Settlement(r, cost, &config.Response{Measured: m, Status: http.StatusOK, End: config.Whole})
		if cost < held || charge < charged {
			t.Errorf("%d bytes: %d held and %d charged, want at least %d and %d as for fewer", length, cost, charge, held, charged)
		}
		held, charged = cost, charge
	}
}
