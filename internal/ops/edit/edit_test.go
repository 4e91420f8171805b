package edit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC)

// zones are those that run: api with one rule, login with two, pair with a key of two parts, and
// varies with a limit from the request.
func zones(name string) *Zone {
	rule := func(algorithm, text string) Rule { return Rule{algorithm, json.RawMessage(text)} }
	return map[string]*Zone{
		"api":    {Parts: 1, Rules: []Rule{rule("sliding_log", `{"limit": 100, "window": 60000000000}`)}},
		"login":  {Parts: 1, Shadow: true, Rules: []Rule{rule("gcra", `{"name": "fast", "limit": 5, "window": 1000000000, "block": 3600000000000, "algorithm": {"name": "gcra", "burst": 9}}`), rule("calendar", `{"limit": 9007199254740993, "window": "month", "algorithm": {"name": "calendar"}}`)}},
		"pair":   {Parts: 2, Rules: []Rule{rule("sliding_log", `{"limit": 1, "window": 1000000000}`)}},
		"varies": {Parts: 1, Rules: []Rule{rule("sliding_window", `{"limit": 1, "limit_from": "{a}", "window": 1000000000}`)}},
	}[name]
}

// TestApply checks what edits make of a document, or why they make nothing of it.
func TestApply(t *testing.T) {
	const none = `{}`
	for _, c := range []struct{ do, before, want string }{
		{"set api 200/m", none, `{"api":{"rules":[{"algorithm":{"name":"sliding_log"},"limit":200,"window":"1m"}]}}`},
		{"set api 120/2m", none, `{"api":{"rules":[{"limit":120,"window":"2m"}]}}`},
		{"set api 120/1h30m burst 7 block 1h", none, `{"api":{"rules":[{"algorithm":{"burst":7,"name":"sliding_log"},"block":"1h","limit":120,"window":"1h30m"}]}}`},
		{"set api 6/1m block 1m 10m 1h burst 7", none, `{"api":{"rules":[{"algorithm":{"burst":7,"name":"sliding_log"},"block":["1m","10m","1h"],"limit":6,"window":"1m"}]}}`},
		{"set api 7/s block 0", `{"api": {"shadow": true, "rules": [{"limit": 1, "window": "1s", "block": "1h"}]}}`, `{"api":{"rules":[{"limit":7,"window":"1s"}],"shadow":true}}`},
		{"set login fast 6/s burst 10", none, `{"login":{"rules":[{"algorithm":{"burst":10,"name":"gcra"},"block":"1h","limit":6,"name":"fast","window":"1s"},{"algorithm":{"name":"calendar"},"limit":9007199254740993,"window":"month"}]}}`},
		{"set login 2 8/day", none, `{"login":{"rules":[{"algorithm":{"burst":9,"name":"gcra"},"block":"1h","limit":5,"name":"fast","window":"1s"},{"algorithm":{"name":"calendar"},"limit":8,"window":"day"}]}}`},
		{"set api configured", `{"api": {"shadow": true, "rules": []}, "gone": {"enabled": false}}`, `{"gone":{"enabled":false}}`},
		{"set login 8/s", none, `! set: the rules of the zone are ["fast" "2"]: want one of them`},
		{"set login slow 8/s", none, `! rule "slow": want one of fast, 2`},
		{"set api", none, `! want a rate`},
		{"set api 8", none, `! rule "8"`},
		{"set api 8/", none, `! window ""`},
		{"set api 8/s burst", none, `! want burst <n>`},
		{"set api 8/s block soon", none, `! block "soon"`},
		{"set varies 8/s", none, `! from requests`},
		{"set gone 8/s", none, `! zone "gone": there is none`},
		{"set * 8/s", none, `! set of all zones`},
		{"shadow api on", none, `{"api":{"shadow":true}}`},
		{"shadow api off", `{"api": {"shadow": true}}`, `{}`},
		{"shadow login off", none, `{"login":{"shadow":false}}`},
		{"shadow * on", none, `{"*":{"shadow":true}}`},
		{"shadow api", none, `! want on or off`},
		{"off api", `{"api": {"shadow": true}}`, `{"api":{"enabled":false,"shadow":true}}`},
		{"on api", `{"api": {"enabled": false}}`, `{}`},
		{"off api login", none, `! off: ["login"] behind the zone: want one zone, or --all`},
		{"on * api", none, `! on: ["api"] behind the zone`},
		{"off *", none, `{"*":{"enabled":false}}`},
		{"on *", `{"*": {"enabled": false}}`, `{}`},
		{"block api 192.0.2.1 1h", none, `{"api":{"exceptions":[{"key":["192.0.2.1"],"rules":[{"limit":0,"name":"blocked","window":"1s"}],"until":"2027-01-02T04:04:05Z"}]}}`},
		{"block pair a b 2027-02-01", none, `{"pair":{"exceptions":[{"key":["a","b"],"rules":[{"limit":0,"name":"blocked","window":"1s"}],"until":"2027-02-02T00:00:00Z"}]}}`},
		{"block api a", none, `! block: []: want a duration such as 1h, a day`},
		{"block pair a 1h", none, `! block: []: want a duration`},
		{"block api a Friday 18:00", none, `! block: ["Friday"]: want a duration such as 1h, a day`},
		{"block api a later", none, `! block: ["later"]: want a duration such as 1h, a day`},
		{"block api a until", none, `! block: ["until"]: want a duration such as 1h, a day`},
		{"block api a 2020-01-01", none, `! block: 2020-01-01 is past`},
		{"allow api a 5/s soon", none, `! and at the end a duration such as 1h, a day`},
		{"allow api a 5/s 2027-01-01T18:00", none, `! allow: 2027-01-01T18:00 is past`},
		{"allow api a 50/m until friday", none, `{"api":{"exceptions":[{"key":["a"],"rules":[{"limit":50,"window":"1m"}],"until":"2027-01-09T00:00:00Z"}]}}`},
		{"allow api a until 3d", none, `{"api":{"exceptions":[{"key":["a"],"unlimited":true,"until":"2027-01-05T03:04:05Z"}]}}`},
		{"block pair a", none, `! the key of the zone has 2 parts, 1 given`},
		{"allow api a", none, `{"api":{"exceptions":[{"key":["a"],"unlimited":true}]}}`},
		{"allow api a 3d", `{"api": {"exceptions": [{"key": ["a"], "unlimited": true}, {"key": ["b"], "unlimited": true}, {"key": ["c"], "unlimited": true, "until": "2027-01-02T03:04:05Z"}]}}`, `{"api":{"exceptions":[{"key":["b"],"unlimited":true},{"key":["a"],"unlimited":true,"until":"2027-01-05T03:04:05Z"}]}}`},
		{"allow api a 50/m", none, `{"api":{"exceptions":[{"key":["a"],"rules":[{"limit":50,"window":"1m"}]}]}}`},
		{"allow api a 500/m 2027-01-03T00:00:00+01:00", none, `{"api":{"exceptions":[{"key":["a"],"rules":[{"algorithm":{"name":"sliding_log"},"limit":500,"window":"1m"}],"until":"2027-01-02T23:00:00Z"}]}}`},
		{"allow login a 500/m", none, `{"login":{"exceptions":[{"key":["a"],"rules":[{"limit":500,"window":"1m"}]}]}}`},
		{"allow api a 500/m burst 7", none, `{"api":{"exceptions":[{"key":["a"],"rules":[{"algorithm":{"burst":7,"name":"sliding_log"},"limit":500,"window":"1m"}]}]}}`},
		{"allow login a 500/m burst 7", none, `{"login":{"exceptions":[{"key":["a"],"rules":[{"algorithm":{"burst":7},"limit":500,"window":"1m"}]}]}}`},
		{"allow api a soon", none, `! rate "soon"`},
		{"unblock api a", `{"api": {"exceptions": [{"key": ["a"], "unlimited": true}]}}`, `{}`},
		{"unblock api a", none, `! unblock: there is no exception for a; a block that a rule started ends with: caddy rate-limit reset api a`},
		{"unblock pair a$ it's", none, `! caddy rate-limit reset pair 'a$' 'it'\''s'`},
		{"unblock api a b", none, `! behind the key`},
		{"undo", none, `{"before":{}}`},
		{"set api 9/s", "{\"\xff\": {}}", `! the document is invalid, replace it as a whole: want UTF-8`},
		{"set api 9/s", `{"api": {"rules": [null]}}`, `! of the document is invalid, replace it as a whole`},
		{"dance api", none, `! "dance": want set, shadow`},
	} {
		words := strings.Fields(c.do)
		e := Edit{Do: words[0]}
		if len(words) > 1 {
			e.Zone, e.Words = words[1], words[2:]
		}
		if e.String() != c.do {
			t.Errorf("%s is printed as %s", c.do, e)
		}
		text, err := Apply(Base{Document: []byte(`{"zones": ` + c.before + `}`), Previous: []byte(`{"zones": {"before": {}}}`), Zone: zones, Zones: func() []string { return nil }, Now: now}, []Edit{e})
		var got string
		if err != nil {
			got = "! " + err.Error()
		} else {
			var doc struct{ Zones json.RawMessage }
			if err := json.Unmarshal(text, &doc); err != nil {
				t.Fatal(err)
			}
			compact, _ := json.Marshal(doc.Zones)
			got = string(compact)
		}
		if part, fails := strings.CutPrefix(c.want, "! "); fails != (err != nil) || fails && !strings.Contains(got, part) || !fails && got != c.want {
			t.Errorf("%s of %s:\n%s, want\n%s", c.do, c.before, got, c.want)
		}
	}
}

// TestApplyInOrder checks that edits are applied one after another, and that no undo is made up.
func TestApplyInOrder(t *testing.T) {
	b := Base{Document: []byte(`{"zones": {}}`), Zone: zones, Zones: func() []string { return nil }, Now: now}
	text, err := Apply(b, []Edit{{Do: "set", Zone: "api", Words: []string{"9/s"}}, {Do: "set", Zone: "api", Words: []string{"8/s", "burst", "3"}}, {Do: "off", Zone: "login"}})
	if want := "{\n  \"zones\": {\n    \"api\": {\n      \"rules\": [\n        {\n          \"algorithm\": {\n            \"burst\": 3,\n            \"name\": \"sliding_log\"\n          },\n          \"limit\": 8,\n          \"window\": \"1s\"\n        }\n      ]\n    },\n    \"login\": {\n      \"enabled\": false\n    }\n  }\n}\n"; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	if _, err := Apply(b, []Edit{{Do: "undo"}}); err == nil {
		t.Error("undo without a document before")
	}
	for _, text := range []string{`{"zones`, `null`} {
		b.Document = []byte(text)
		if _, err := Apply(b, []Edit{{Do: "off", Zone: "api"}}); err == nil || !strings.Contains(err.Error(), "replace it as a whole") {
			t.Errorf("an invalid document: %v", err)
		}
	}
}

// TestEnding checks what the end of words means as a time, on a Saturday in a summer that the
// location has an hour later than UTC.
func TestEnding(t *testing.T) {
	zone, err := time.LoadLocation("Europe/London")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2027, 10, 30, 14, 5, 6, 0, zone) // the clocks go back in the night
	for text, want := range map[string]string{
		"1h":                        "+15:05 30",
		"a until 2d":                "+14:05 01",
		"until friday":              "00:00 06",
		"a Fri":                     "00:00 06",
		"saturday":                  "00:00 31",
		"until sun":                 "00:00 01",
		"today":                     "00:00 31",
		"TOMORROW":                  "00:00 01",
		"2027-11-27":                "00:00 28",
		"until 2027-12-31":          "00:00 01",
		"2027-11-27T18:00":          "18:00 27",
		"2027-11-27t18:00:07":       "18:00 27",
		"until 2027-11-27 18:00":    "18:00 27",
		"2027-11-27T18:00Z":         "18:00 27",
		"2027-11-27T18:00:00+02:00": "16:00 27",
		"until 18:00":               "18:00 30",
		"12:30":                     "12:30 31",
		"a":                         "none",
		"until":                     "none",
		"":                          "none",
		"friday a":                  "none",
		"24:00":                     "none",
		"2027-02-30":                "none",
		"-1h":                       "none",
		"5/s until":                 "none",
	} {
		words := strings.Fields(text)
		end, n, lasts := Ending(words, at)
		got := "none"
		if n > 0 {
			got = end.In(zone).Format("15:04 02")
		}
		if lasts { // elapsed time, whatever clocks do
			got = "+" + end.UTC().Add(time.Hour).Format("15:04 02")
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		if rest := len(words) - n; n > 0 && rest > 0 && words[rest-1] == "until" {
			t.Errorf("%q: until is left", text)
		}
	}
}

// TestUntilElsewhere checks that a day ends where it was said, and a duration where it is applied.
func TestUntilElsewhere(t *testing.T) {
	elsewhere := now.Add(77 * time.Hour)
	for words, want := range map[string]string{
		"a friday": `"until": "2027-01-05T08:04:05Z"`,
		"a 1h":     `"until": "2027-01-02T04:04:05Z"`,
	} {
		e := Edit{Do: "block", Zone: "api", Words: strings.Fields(words), Until: elsewhere}
		text, err := Apply(Base{Document: []byte(`{}`), Zone: zones, Zones: func() []string { return nil }, Now: now}, []Edit{e})
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v, want %s", words, text, err, want)
		}
	}
}
