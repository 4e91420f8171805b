package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/key"
)

// TestPatternsOfFile checks that the patterns of a file of keys are independent of each other.
func TestPatternsOfFile(t *testing.T) {
	var z Zone
	if err := json.Unmarshal([]byte(`{"name": "z", "key": ["{header.A}"], "rules": [{"limit": 1, "window": "1s"}], "overrides": [{"keys_file": "keys", "unlimited": true}]}`), &z); err != nil {
		t.Fatal(err)
	}
	c, err := z.Check(nil)
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
	c, err := z.Check(nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Overrides[0].Set; s.Blocked != 1 || len(s.Labels) != 2 || len(s.From) != 0 || s.Blocks != nil || c.MaxDelay() != 0 {
		t.Errorf("%+v, longest delay %d us", s, c.MaxDelay())
	}
}

// TestRulesAreCompiledOnce checks that rules which are decided together with one that delays are not
// compiled again for each store.
func TestRulesAreCompiledOnce(t *testing.T) {
	var z Zone
	if err := json.Unmarshal([]byte(`{"name": "z", "rules": [{"limit": 10, "window": "1s", "algorithm": {"name": "leaky_bucket", "burst": 5}}, {"limit": 100, "window": "1m"}]}`), &z); err != nil {
		t.Fatal(err)
	}
	c, err := z.Check(nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxDelay() == 0 {
		t.Error("no rule delays")
	}
	for i, checked := range c.Rules.compiled {
		r, _, err := c.Rules.Compile(i, algorithms.Spec{MaxTurn: c.MaxDelay()})
		if err != nil || r != checked {
			t.Errorf("rule %d: %p and %v, want %p as it was checked", i, r, err, checked)
		}
	}
}

// TestCheckWithoutResponses checks a zone with settle without what reads responses.
func TestCheckWithoutResponses(t *testing.T) {
	var z Zone
	if err := json.Unmarshal([]byte(`{"name": "z", "settle": "{http.response.header.X-Cost}", "rules": [{"limit": 1, "window": "1s"}]}`), &z); err != nil {
		t.Fatal(err)
	}
	if _, err := z.Check(nil); err == nil || !strings.Contains(err.Error(), "Responses") {
		t.Errorf("%v, want an error that names Responses", err)
	}
}
