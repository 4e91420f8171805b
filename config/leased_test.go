package config_test

import (
	"encoding/json"
	"testing"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/usage/settle"
)

// TestLeasedRules checks which rules of a store with leases are leased.
func TestLeasedRules(t *testing.T) {
	const store = 50_000
	for text, want := range map[string]int64{
		`{"name": "z", "rules": [{"limit": 100, "window": "1s"}]}`:                                              store,
		`{"name": "z", "rules": [{"limit": 100, "window": "1s", "algorithm": {"name": "leaky_bucket"}}]}`:       0,
		`{"name": "z", "rules": [{"limit": 100, "window": "1s"}], "in_flight": 1}`:                              0,
		`{"name": "z", "rules": [{"limit": 100, "window": "1s"}], "count_status": [401]}`:                       0,
		`{"name": "z", "rules": [{"limit": 100, "window": "1s"}], "settle": "{http.response.header.X-Tokens}"}`: 0,
		`{"name": "z", "rules": [{"limit": 100, "window": "1s"}], "prevent_duplicates": {}}`:                    store,
	} {
		var z config.Zone
		if err := json.Unmarshal([]byte(text), &z); err != nil {
			t.Fatal(err)
		}
		c, err := z.Check(settle.Responses{})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := c.Rules.Lease(&z, store); got != want {
			t.Errorf("%s: leased for %d us, want %d", text, got, want)
		}
		if c.Duplicates != nil && c.Duplicates.Lease(&z, store) != 0 {
			t.Errorf("%s: prevent_duplicates is leased", text)
		}
	}
}
