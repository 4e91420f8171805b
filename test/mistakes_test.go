package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// mistakesFile has what people write by mistake, each with the message that they get. Those
// that begin with {" are the JSON of a handler; the others are Caddyfiles. UPDATE_GOLDENS=1 rewrites
// the messages.
const (
	mistakesFile = "testdata/mistakes.txt"
	mistakesRule = "\n==========\n"
)

// TestMistakes checks that each mistake is rejected, in a Caddyfile with file and line, with a message
// that says what to write.
func TestMistakes(t *testing.T) {
	text := textOf(t, filepath.Join("test", mistakesFile))
	cases := strings.Split(strings.TrimSpace(text), mistakesRule)
	if len(cases) < 33 {
		t.Errorf("%d mistakes, want at least 33", len(cases))
	}
	for i, c := range cases {
		in, want, _ := strings.Cut(c, goldenRule)
		got := mistake(t, in)
		cases[i] = in + goldenRule + got
		switch {
		case got == "":
			t.Errorf("no error:\n%s", in)
		case !strings.HasPrefix(in, `{"`) && strings.Count(got, "Caddyfile:") < strings.Count(got, "\n"):
			t.Errorf("a message without a line:\n%s", got)
		case got != want && os.Getenv("UPDATE_GOLDENS") == "":
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", in, got, want)
		}
	}
	if os.Getenv("UPDATE_GOLDENS") != "" {
		if err := os.WriteFile(mistakesFile, []byte(strings.Join(cases, mistakesRule)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// mistake returns the message about a configuration, without the names of the modules around it.
func mistake(t *testing.T, in string) string {
	t.Helper()
	if !strings.HasPrefix(in, `{"`) {
		if _, err := adapt(t, in+"\n"); err != nil {
			return strings.TrimPrefix(err.Error(), "parsing caddyfile tokens for 'rate_limit': ")
		}
		return ""
	}
	err := validate(t, "", in)
	if err == nil {
		return ""
	}
	_, got, found := strings.Cut(err.Error(), "provision http.handlers.rate_limit: ")
	if !found {
		t.Errorf("not of the handler: %v", err)
	}
	return got
}

// TestManyMistakes checks that a Caddyfile's mistakes come together, up to 20 of them.
func TestManyMistakes(t *testing.T) {
	const site = ":8080 {\n rate_limit {\n"
	_, err := adapt(t, site+strings.Repeat("hedaers off\n", 25)+" }\n}\n")
	if err == nil || !strings.Contains(err.Error(), "25 errors:") || strings.Count(err.Error(), "did you mean headers") != 20 || !strings.HasSuffix(err.Error(), "and 5 more") {
		t.Errorf("25 mistakes: %v", err)
	}

	// The second is found only when the zone is provisioned, the third follows from the first.
	_, err = adapt(t, site+"zone a {\n algorihtm gcra\n rule 1/s burst 5\n}\nzone b {\n rule 1/s\n store main\n}\n }\n}\n")
	want := "2 errors:\n\tunknown option \"algorihtm\": did you mean algorithm, at Caddyfile:4\n\t" +
		"zone b: store \"main\": want local, or the name of a store in the global option rate_limit, at Caddyfile:9"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestMistakesOfSeveralSites checks that caddy rate-limit validate shows the mistakes of all
// directives and of the global option.
func TestMistakesOfSeveralSites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Caddyfile")
	text := "{\n rate_limit {\n  zone a\n }\n}\n:8080 {\n rate_limit 10/x\n}\n:8081 {\n handle {\n  rate_limit 10\n }\n}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := cli.Open(file, "", "", true)
	for _, want := range []string{
		"3 errors:", `unknown option "zone": it belongs in a site's rate_limit, at ` + file + ":3",
		`rate "10/x": window "x"`, "at " + file + ":7", `rate "10": want <count>/<window>, such as 10/s, at ` + file + ":11",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestMistakesInJSON checks that the mistakes of all zones of a handler, and of all stores, come
// together, each with its place.
func TestMistakesInJSON(t *testing.T) {
	err := validate(t, "", handlerOf(`{"name": "a", "cost": 0, "rules": [{"limit": 1, "window": "1h"}, {"limit": 0, "window": 60}], "overrides": [{"key": ["x"], "unlimited": true}]}`,
		`{"name": "b", "store": "main", "rules": [{"limit": 1, "window": "1h"}]}`))
	for _, want := range []string{
		"4 errors:", `zone a: cost "0": want a number of at least 1`,
		`zone a: /rules/1: window 60ns: want at least 1us, in whole microseconds; a number in JSON is in nanoseconds: for seconds, write "60s"`,
		`zone a: /overrides/0: override ["x"]: "x" is no client's address`, `zone b: /store: store "main": want local`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	err = validate(t, `"max_keys": -1, "stores": [{"addresses": ["a:1"], "db": -1, "on_failure": "x"}, {}]`, handlerOf(zoneA))
	for _, want := range []string{"4 errors:", "max_keys -1", "store 1: db -1", `store 1: on_failure "x"`, "store 2: no address"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestStoreNamedByTheEnvironment checks a zone with the lease of its own store, although another has a
// name that only the environment knows.
func TestStoreNamedByTheEnvironment(t *testing.T) {
	const stores = "{\n rate_limit {\n  store redis a:1 {\n   name {env.DIANA_TEST_NAME}\n   lease 50ms\n  }\n  store redis b:1 {\n   name second\n  }\n }\n}\n"
	for store, want := range map[string]string{"": "lease 50ms: it keeps back 50", "store second": "", "store third": ""} {
		_, err := adapt(t, stores+":8080 {\n rate_limit {\n  zone z {\n   rule 1000/s gcra burst 50\n   "+store+"\n  }\n }\n}\n")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", store, err, want)
		}
	}
}
