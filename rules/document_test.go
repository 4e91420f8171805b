package rules

import (
	"strings"
	"testing"
	"unicode"

	"github.com/dianalimiter/diana/config"
)

// TestParse parses valid documents.
func TestParse(t *testing.T) {
	d, err := Parse([]byte(`{"zones": {"a": {"enabled": false, "shadow": true, "rules": [{"limit": 1, "window": "1s"}], "overrides": []}, "b": {"rules": null}}}`))
	if err != nil {
		t.Fatal(err)
	}
	a, b := d.Of("a"), d.Of("b")
	if a == nil || a.Enabled == nil || *a.Enabled || a.Shadow == nil || !*a.Shadow || len(a.Rules) != 1 || a.Rules[0].Limit != 1 || a.Overrides == nil {
		t.Errorf("zone a: %+v", a)
	}
	if b == nil || b.Enabled != nil || b.Rules != nil || b.Overrides != nil {
		t.Errorf("zone b: %+v", b)
	}
	for _, fine := range []string{`{"zones": {"a": {"rules": [{"name": "name"}, {"name": "name"}]}, "b": {"shadow": true}, "c": null}}`, `{"zones": {"zones": {}}}`, `{"zones": {"�": {}}}`, "\ufeff{\"zones\": {}}"} {
		if _, err := Parse([]byte(fine)); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
	if d.Of("c") != nil || (*config.Document)(nil).Of("a") != nil {
		t.Error("a zone that is not in the document, want nil")
	}
}

// TestParseErrors checks that errors name what is wrong, and where.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     "line 1, column 1: not JSON",
		`{"zones": {}`:                         "line 1, column 13: not JSON",
		"{\"zones\":\n  {\"a\" 1}}":            "line 2, column",
		`{"zones": {}} x`:                      "not JSON",
		`{"zones": {}} {}`:                     "line 1, column 15: not JSON",
		`[]`:                                   "[]: want an object",
		"{\"zones\":\n  {\"\xff\": {}}}":       "line 2, column 5: byte 0xff: want UTF-8",
		"\xff\xfe{\x00":                        "line 1, column 1: byte 0xff: want UTF-8",
		`{}`:                                   `no "zones"`,
		`{"zones": null}`:                      `no "zones"`,
		`{"zones": 7}`:                         "/zones: 7: want an object",
		`{"zone": {}}`:                         "/zone: unknown: did you mean zones",
		`{"zones": {"a": 7}}`:                  "/zones/a: 7: want an object",
		`{"zones": {"a": {"enabled": "yes"}}}`: `/zones/a/enabled: "yes": want true or false`,
		`{"zones": {"a": {"key": ["x"]}}}`:     "/zones/a/key: unknown: want enabled, exceptions, overrides, rules or shadow",
		`{"zones": {"a": {"rules": {}}}}`:      "/zones/a/rules: {}: want a list",
		`{"zones": {"a": {"overrides": "x"}}}`: `/zones/a/overrides: "x": want a list`,
		`{"zones": {"a": {"rules": [{"max_wait": "1 minute"}]}}}`:                                           `/zones/a/rules/0/max_wait: "1 minute": want a duration such as 10s, 1m, 1h30m or 1d`,
		`{"zones": {"a": {}, "a": {}}}`:                                                                     "/zones/a: is given twice",
		`{"zones": {"a": {"rules": [{}, {"algorithm": {"name": "gcra", "burst": {"a": 1}, "burst": 2}}]}}}`: "/zones/a/rules/1/algorithm/burst: is given twice",
		`{"zones": {"a": {"rules": [{"algorithm": "gcra"}]}}}`:                                              `/zones/a/rules/0/algorithm: "gcra": want an object`,
		`{"zones": {"a": {"rules": [{"limit_from": "{x}"}]}}}`:                                              "/zones/a/rules/0/limit_from: unknown: want algorithm, block, limit, max_wait, name, notify or window",
		`{"zones": {"a": {"overrides": [{"key": ["x", 1]}]}}}`:                                              "/zones/a/overrides/0/key/1: 1: want a string",
		`{"zones": {"a": {"overrides": [{"keys": ["x", 1]}]}}}`:                                             "/zones/a/overrides/0/keys/1: 1: want a list",
		`{"zones": {"a": {}}, "zones": {}}`:                                                                 "/zones: is given twice",
		`{"zones": {"a/b~c": 1}}`:                                                                           "/zones/a~1b~0c: 1: want an object",
		"{\"zones\": {\"\\u0000\\u001b[31m\": 1}}":                                                          `/zones/\x00\x1b[31m: 1: want an object`,
		strings.Repeat("[", 100_000):                                                                        "line 1, column 10001: not JSON",
		strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000):                                           "[[[...: want an object",
		strings.Repeat(`{"zones":`, 500_000)[:MaxSize]:                                                      "exceeded max depth",
		strings.Repeat(" ", MaxSize+1):                                                                      "over 1048576 bytes",
		`{"zones": {"` + strings.Repeat("x", 10_000) + `": 1}}`:                                             "/zones/xxx",
	} {
		_, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("%.60q: no error", text)
			continue
		}
		got := err.Error()
		if !strings.Contains(got, want) || len(got) > 400 {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
		if strings.IndexFunc(got, unicode.IsControl) >= 0 {
			t.Errorf("%.60q: control characters in %q", text, got)
		}
	}
}

// FuzzParse parses arbitrary bytes: into a document or an error of bounded length.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"zones": {"a": {"enabled": false, "rules": [{"limit": 1, "window": "1s"}]}}}`))
	f.Add([]byte(`{"zones": {"a": {"overrides": [{"key": ["x"], "rules": [{"limit": 0, "window": 1}]}]}}}`))
	f.Add([]byte("{\"zones\":\x00}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if (d == nil) == (err == nil) {
			t.Fatalf("document %v and error %v, want one of them", d, err)
		}
		if err != nil && len(err.Error()) > 2000 {
			t.Errorf("an error of %d bytes, want at most 2000", len(err.Error()))
		}
	})
}

// TestAllZones checks that the zone "*" wins over every zone.
func TestAllZones(t *testing.T) {
	parse := func(text string) *config.Document {
		t.Helper()
		d, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := parse(`{"zones": {"*": {"enabled": false, "shadow": true}, "a": {"enabled": true, "shadow": false, "rules": [{"limit": 1}]}}}`)
	for _, name := range []string{"a", "b"} {
		if z := d.Of(name); z == nil || *z.Enabled || !*z.Shadow || (z.Rules != nil) != (name == "a") {
			t.Errorf("zone %s: %+v", name, z)
		}
	}
	for _, all := range []string{`{}`, `{"enabled": false}`, `{"shadow": true}`} {
		d := parse(`{"zones": {"*": ` + all + `, "a": {"shadow": true}}}`)
		if (d.Of("b") == nil) != (all == `{}`) || d.Zones["*"] != nil {
			t.Errorf("%s: zone b is %+v", all, d.Of("b"))
		}
	}
	for _, text := range []string{`{"enabled": true}`, `{"shadow": false}`, `{"rules": []}`, `{"overrides": []}`, `7`} {
		if _, err := Parse([]byte(`{"zones": {"*": ` + text + `}}`)); err == nil || !strings.HasPrefix(err.Error(), "/zones/*") {
			t.Errorf("%s: %v, want an error at /zones/*", text, err)
		}
	}
}

// TestParseExactly checks that a document means what it says letter by letter: names of options in
// their own case, characters as written, and positions of what is wrong.
func TestParseExactly(t *testing.T) {
	rule := func(s string) string { return `{"zones": {"a": {"rules": [` + s + `]}}}` }
	for text, want := range map[string]string{
		`{"zones": {},}`:               "line 1, column 14: not JSON",
		"{\"zones\":\n{\"a\": {},\n}}": "line 3, column 1: not JSON",
		`{"zones": {}`:                 "line 1, column 13: not JSON",
		`{"zones": {"a": {"overrides": [{"key": ["\ud800"], "unlimited": true}]}}}`:  `line 1, column 42: \ud800: half of a surrogate pair`,
		`{"zones": {"a": {"overrides": [{"key": ["\uDFFFx"], "unlimited": true}]}}}`: `\uDFFF: half of a surrogate pair`,
		`{"zones": {"a": {"overrides": [{"key": ["\ud83d\u0041"]}]}}}`:               "half of a surrogate pair",
		rule(`{"limit": 9223372036854775808, "window": "1m"}`):                       "below 2^63",
		rule(`{"limit": 1.5, "window": "1m"}`):                                       "want a whole number",
		rule(`{"Limit": 5, "window": "1m"}`):                                         "did you mean limit",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{`{"zones": {"a": {"overrides": [{"key": ["\ud83d\ude00", "\\ud800", "\ufffd"], "unlimited": true}]}}}`} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
