package config

import (
	"encoding/json"
	"testing"

	"github.com/dianalimiter/diana/internal/key"
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
		var z Zone
		if err := json.Unmarshal([]byte(text), &z); err != nil {
			t.Fatal(err)
		}
		c, err := z.Check()
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

// TestPatternsOfFile checks that the patterns of a file of keys are independent of each other.
func TestPatternsOfFile(t *testing.T) {
	var z Zone
	if err := json.Unmarshal([]byte(`{"name": "z", "key": ["{header.A}"], "rules": [{"limit": 1, "window": "1s"}], "overrides": [{"keys_file": "keys", "unlimited": true}]}`), &z); err != nil {
		t.Fatal(err)
	}
	c, err := z.Check()
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	var all []*key.Pattern
	for p, err := range c.Overrides[0].PatternsOf("*\nb\n") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	for _, p := range all {
		words = append(words, p.Words()...)
	}
	if len(words) != 2 || words[0] != "*" || words[1] != "b" {
		t.Errorf("patterns %q, want * and b", words)
	}
}

// TestDenyingSet checks that a set that denies everything has no other rule: nothing would ask it.
func TestDenyingSet(t *testing.T) {
	var z Zone
	if err := json.Unmarshal([]byte(`{"name": "z", "key": ["{header.A}"], "rules": [{"limit": 1, "window": "1s"}], "overrides": [{"key": ["one"],
		"rules": [{"limit": 5, "window": "1s", "algorithm": {"name": "leaky_bucket"}, "block": "1h"}, {"limit": 0, "window": "1s"}]}]}`), &z); err != nil {
		t.Fatal(err)
	}
	c, err := z.Check()
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Overrides[0].Set; s.Blocked != 1 || len(s.Labels) != 2 || len(s.From) != 0 || s.Blocks != nil || c.MaxDelay() != 0 {
		t.Errorf("%+v, longest delay %d us", s, c.MaxDelay())
	}
}
