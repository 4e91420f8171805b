package config

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestOptionsInTheirOwnCase checks that options of an algorithm are read by their exact names.
func TestOptionsInTheirOwnCase(t *testing.T) {
	for raw, ok := range map[string]bool{
		`{"name": "gcra", "burst": 5}`: true, `{"name": "gcra", "Burst": 5}`: false, `{"name": "gcra", "burst": 5, "BURST": 2}`: false,
		`{"name": "fixed_window", "ALIGN": true}`: false, `{"Name": "gcra"}`: false, `{"name": "sliding_window", "Buckets": 3}`: false,
	} {
		r := &Rule{Limit: 10, Window: Window{Duration: time.Minute}, AlgorithmRaw: json.RawMessage(raw)}
		if _, err := LoadAlgorithm(r, ""); (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestValuesOfOptions checks that a value of another type is told with what is wanted.
func TestValuesOfOptions(t *testing.T) {
	for raw, want := range map[string]string{
		`{"name": "gcra", "burst": 9223372036854775808}`: "burst 9223372036854775808: want a number below 2^63",
		`{"name": "gcra", "burst": 2.0}`:                 "burst 2.0: want a whole number",
		`{"name": "gcra", "burst": "5"}`:                 `burst "5": want a whole number`,
		`{"name": "fixed_window", "align": 1}`:           "align 1: want true or false",
		`{"name": "sliding_window", "buckets": [1e400]}`: "buckets [1e400]: want a whole number",
		`{"Name": "gcra"}`:                               `option "Name": want name`,
	} {
		r := &Rule{Limit: 10, Window: Window{Duration: time.Minute}, AlgorithmRaw: json.RawMessage(raw)}
		if _, err := LoadAlgorithm(r, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
}

// TestNumbersAsWritten checks that numbers are read only as people write them.
func TestNumbersAsWritten(t *testing.T) {
	for text, ok := range map[string]bool{"401": true, "4xx": true, "+401": false, "0401": false, "-401": false, "00401": false, "": false} {
		if _, err := parseStatuses([]Value{Value(text)}); (err == nil) != ok {
			t.Errorf("count_status %s: %v", text, err)
		}
	}
	for text, ok := range map[string]bool{
		"5": true, "{header.X}": true, "": true, "+5": false, "05": false, "0": false,
		"a{header.X}": false, "{header.X}a": false, "{header.X} ": false, "{header.X}-{header.Y}": false, "1{header.X}": true, //nolint:gocritic // a space is no part of a placeholder
	} {
		if _, err := parseCost("cost", Value(text)); (err == nil) != ok {
			t.Errorf("cost %q: %v", text, err)
		}
	}
	for text, want := range map[string]string{"9223372036854775808/s": "below 2^63", "+5/s": "whole number", "010/s": "whole number", "-5/s": "whole number"} {
		if _, _, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rate %s: %v, want %s", text, err, want)
		}
	}
}
