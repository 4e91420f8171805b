package loglimit

import (
	"encoding/json"
	"testing"
)

// TestEscape checks that nothing that a terminal obeys is left of a text, and that JSON means the same.
func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"a b": "a b", "é日本": "é日本", "\u009b31m": `\u009b31m`, "a\u0080\u0085b": `a\u0080\u0085b`, "\x7f": `\u007f`, "\u202ex": `\u202ex`, "\u2028": `\u2028`,
		"\U000e0001": `\udb40\udc01`, "\xff": "\xff", "\x1b": "\x1b",
	} {
		if got := Escape(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	before, _ := json.Marshal("é\u0085\U000e0001\u202e\x7f")
	var after string
	if err := json.Unmarshal(EscapeJSON(before), &after); err != nil || after != "é\u0085\U000e0001\u202e\x7f" {
		t.Errorf("%q, %v", after, err)
	}
}
