package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatal(err)
	}
	return v
}

func printed(t *testing.T, w io.Writer, name string, answer any) {
	t.Helper()
	if err := printAnswer(w, name, answer); err != nil {
		t.Fatal(err)
	}
}

// TestZonesArePrinted checks that options and names of rules are printed, each rule in a line, and
// no control sequence.
func TestZonesArePrinted(t *testing.T) {
	now := time.Now()
	all := decode[Zones](t, `{"instance": {"host": "web1", "caddy": "v2", "diana": "v1", "config": "0a1b2c3d"}, "stores": [], "zones": [
		{"name": "api", "store": "redis", "origin": "config", "enabled": true, "keys": 12, "rules": [
			{"name": "1", "limit": 200, "window": 60, "algorithm": "sliding_window", "options": {"buckets": 20}, "enforced": 66},
			{"name": "burst", "limit": 20, "window": 1, "algorithm": "gcra", "options": {"burst": 40}},
			{"name": "3", "limit": 9, "window": 86400, "algorithm": "fixed_window", "options": {"align": true}},
			{"name": "4", "limit": 10, "window": 60, "algorithm": "token_bucket", "options": {"step": 2000000000}}],
			"in_flight": 3, "unit": "tokens", "shadow": true, "decisions": {"allowed": 5, "delayed": 2, "denied": 1, "shadow_denied": 77}},
		{"name": "evil\u001b[31m", "store": "local", "origin": "config", "enabled": false, "rules": []}]}`)
	all.Now, all.Instance.Since = now, now.Add(-time.Minute)
	var b strings.Builder
	printed(t, &b, "zones", all)
	if want := `web1: Caddy v2, Diana v1, configuration 0a1b2c3d, loaded 1m ago
`; !strings.HasPrefix(b.String(), want) {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	_, list, _ := strings.Cut(b.String(), " delayed\n")
	if want := `ZONE            STORE  FROM    STATE   KEYS  ALLOWED  DENIED  SHADOW  RULES
api             redis  config  shadow  12    7        1       77      200/1m sliding_window buckets 20 (now 66/1m), tokens
                                                                      burst: 20/1s gcra burst 40
                                                                      9/24h fixed_window align
                                                                      10/1m token_bucket step 2s
                                                                      in_flight 3
"evil\x1b[31m"  local  config  off     0     0        0       0       -
`; list != want {
		t.Errorf("%s\nwant\n%s", list, want)
	}
}

// TestUnknownInstances checks that a number of instances that nobody has counted is not shown
// as zero.
func TestUnknownInstances(t *testing.T) {
	for _, c := range []struct {
		up        bool
		instances int64
		want      string
	}{
		{true, 3, "store redis: shared for 5s, 3 instances\n"},
		{true, 0, "store redis: shared for 5s, instances not counted yet\n"},
		{false, 1, "store redis: fallback for 5s, 1 instance when it was last reached\n"},
		{false, 0, "store redis: fallback for 5s, number of instances unknown: it was never reached\n"},
	} {
		now, mode := time.Now(), "fallback"
		if c.up {
			mode = "shared"
		}
		s := Store{Name: "redis", Up: c.up, Mode: mode, Since: now.Add(-5 * time.Second), Instances: c.instances}
		var b strings.Builder
		if printed(t, &b, "stores", &Overview{Now: now, Stores: []Store{s}}); b.String() != c.want {
			t.Errorf("%q, want %q", b.String(), c.want)
		}
	}
}

// TestWordsForPeople checks that durations are rounded, and that a text is quoted only if it
// could contain control sequences.
func TestWordsForPeople(t *testing.T) {
	for seconds, want := range map[float64]string{
		0.682739115: "683ms", 0.010788: "11ms", 0.0015: "1.5ms", 0.000001: "1µs", 1: "1s", 26.333: "26.33s", 3608.4: "1h0m8s", 60: "1m", 86400: "24h",
	} {
		if got := span(seconds); got != want {
			t.Errorf("%v s: %q, want %q", seconds, got, want)
		}
	}
	for seconds, want := range map[float64]string{
		59.5: "59.5s", 3599: "59m59s", 3600: "1h", 3629: "1h", 47862: "13h 18m", 86399: "24h", 86400: "24h", 100000: "27h 47m", 172800: "2d", 2206800: "25d 13h", 1e9: "11574d 2h",
	} {
		if got := about(seconds); got != want {
			t.Errorf("about %v s: %q, want %q", seconds, got, want)
		}
	}
	for text, want := range map[string]string{
		`want one such as {"zones": {}}`: `want one such as {"zones": {}}`, "登录": "登录",
		"a\x1b[2J": `"a\x1b[2J"`, "a\nb": `"a\nb"`, "a\xff": `"a\xff"`, "\u202e": `"\u202e"`,
	} {
		if got := safe(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestErrorsOfTheAPI checks that the errors of the API are told without statuses and JSON.
func TestErrorsOfTheAPI(t *testing.T) {
	for api, want := range map[string]string{
		`caddy responded with error: HTTP 400: {"error":"0 parts: want 1, for [\"{client_ip}\"], or the hash alone"}`: `0 parts: want 1, for ["{client_ip}"], or the hash alone`,
		`caddy responded with error: HTTP 404: {"error":"zone \"x\": there is none of this name"}`:                    `zone "x": there is none of this name`,
		`caddy responded with error: HTTP 400: {"error":"two\nlines: 3"}`:                                             "two\nlines: 3",
		`caddy responded with error: HTTP 404: 404 page not found`:                                                    `this Caddy has no rate limits: it was built without Diana, or is an old one`,
		`caddy responded with error: HTTP 502: <html>`:                                                                `the answer is not from Caddy's admin endpoint: status 502, "<html>"`,
		`performing request: Get "http://localhost:2019/": dial tcp 127.0.0.1:2019: connect: connection refused`:      `no Caddy answers at localhost:2019: is it running, with its admin endpoint there? Otherwise say where: --address <host:port>, or --config <file>`,
		`performing request: something else`:                                                                          `performing request: something else`,
	} {
		if got := explainError(errors.New(api), "localhost:2019").Error(); got != want {
			t.Errorf("%s\n%s, want\n%s", api, got, want)
		}
	}
}

// TestValidationIsPrinted checks that zones without a check are not passed off as valid.
func TestValidationIsPrinted(t *testing.T) {
	var b strings.Builder
	printed(t, &b, "validation", decode[Validation](t, `{"valid": true, "zones": 3, "unknown_zones": ["gone", "\u001b"]}`))
	if want := "valid, zones: 3\nnot checked, as zones unknown here: gone \"\\x1b\"\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// TestUnknownCommand checks that a misspelt command fails, and that help is none.
func TestUnknownCommand(t *testing.T) {
	for args, want := range map[string]string{
		"":                             "",
		"help":                         "",
		"help explain":                 "",
		"help zonse":                   `unknown command "zonse": did you mean zones`,
		"help rules ptu":               `unknown command "ptu": did you mean put`,
		"zonse":                        `unknown command "zonse": did you mean zones`,
		"rules ptu rules.json":         `unknown command "ptu": did you mean put`,
		"--address localhost:1 \u202e": `unknown command "\u202e": want allow, block, exceptions, explain, find, key, off, on, replay, reset, rules, set, shadow, spend, top, unblock, validate or zones`,
	} {
		root, cmd := &cobra.Command{Use: "caddy", SilenceErrors: true}, &cobra.Command{Use: "rate-limit"}
		rateLimitCommands(cmd)
		root.AddCommand(cmd)
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"rate-limit"}, strings.Fields(args)...))
		got := ""
		if err := root.Execute(); err != nil {
			got = err.Error()
		}
		if usage := strings.Contains(out.String(), "explain"); got != want || usage != (want == "") {
			t.Errorf("%q: %q, want %q; printed %s", args, got, want, out.String())
		}
	}
}

// TestUsage checks that each subcommand is named by the usage of the command, that a wrong number of
// arguments and an unknown flag say how it is used, and that help leads to the documentation.
func TestUsage(t *testing.T) {
	run := func(args ...string) (string, error) {
		root, cmd := &cobra.Command{Use: "caddy", SilenceErrors: true, SilenceUsage: true}, &cobra.Command{Use: "rate-limit"}
		rateLimitCommands(cmd)
		root.AddCommand(cmd)
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"rate-limit"}, args...))
		err := root.Execute()
		return out.String(), err
	}
	cmd := &cobra.Command{Use: "rate-limit"}
	rateLimitCommands(cmd)
	named := strings.Split(strings.TrimPrefix(cmd.Use, "rate-limit "), "|")
	for _, group := range []*cobra.Command{cmd, cmd.Commands()[slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == "rules" })]} {
		for _, sub := range group.Commands() {
			if group == cmd && !slices.Contains(named, sub.Name()) {
				t.Errorf("usage %q does not name %s", cmd.Use, sub.Name())
			}
			path := append(strings.Fields(strings.TrimPrefix(group.CommandPath(), "rate-limit")), sub.Name())
			out, err := run(append(path, "--help")...)
			if err != nil || !strings.Contains(out, docs) || strings.Contains(out, "caddyserver.com") {
				t.Errorf("%v --help: %v\n%s", path, err, out)
			}
			if other, err := run(append([]string{"help"}, path...)...); err != nil || other != out {
				t.Errorf("help %v: %v\n%s", path, err, other)
			}
			usage := "caddy rate-limit " + strings.Join(append(path[:len(path)-1:len(path)-1], sub.Use), " ")
			if _, err := run(append(path, "--bla")...); err == nil || !strings.Contains(err.Error(), "--bla: want\n  "+usage) {
				t.Errorf("%v --bla: %v, want %s", path, err, usage)
			}
			few, many := path, append(slices.Clip(path), strings.Fields("1 2 3 4 5 6 7 8 9")...)
			for _, args := range [][]string{few, many} {
				if sub.Args == nil || sub.Args(sub, args[len(path):]) == nil {
					continue
				}
				if _, err := run(args...); err == nil || !strings.Contains(err.Error(), "arg(s)") && !strings.Contains(err.Error(), "unknown command") || !strings.Contains(err.Error(), usage) {
					t.Errorf("%v: %v, want %s", args, err, usage)
				}
			}
		}
	}
}

// TestLostDocumentIsPrinted checks that a lost document is not printed as a source that is away.
func TestLostDocumentIsPrinted(t *testing.T) {
	var b strings.Builder
	printed(t, &b, "source", &Overview{Rules: decode[Source](t, `{"source": "redis", "state": "away", "lost": true, "error": "Redis has lost the document"}`)})
	if want := "rules from redis: document lost: Redis has lost the document\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// TestExplanation checks that an explanation says why.
func TestExplanation(t *testing.T) {
	e := decode[Explanation](t, `{"decision": "denied", "zone": "api", "rule": "1", "retry_after": 28, "handlers": [{"server": "srv0", "not_matching": ["login", "up"], "not_run": ["templates"], "error": "a\u001b", "zones": [
		{"zone": "api", "parts": ["7"], "decision": "denied", "rule": "1", "cost": 2, "retry_after": 28, "mode": "fallback", "rules": [
			{"name": "1", "limit": 200, "window": 60, "used": 199, "remaining": 1, "reset_after": 40, "retry_after": 28}, {"name": "2", "limit": 20, "window": 1, "remaining": 40, "admits": true}]},
		{"zone": "watch", "parts": ["\u202e"], "decision": "shadow_denied", "rule": "1", "cost": 1, "rules": [{"name": "1", "limit": 1, "window": 1}]},
		{"zone": "vip", "parts": ["7"], "decision": "skipped", "override": ["7"], "rules": []},
		{"zone": "vip", "parts": ["8"], "decision": "denied", "rule": "blocked", "override": ["8"], "exception": true, "until": "2027-01-02T03:04:05Z", "rules": []},
		{"zone": "vip", "parts": ["9"], "decision": "skipped", "override": ["*"], "exception": true, "rules": []},
		{"zone": "none", "key": "ab12", "parts": [""], "missing": ["{a}"], "key_missing": "client_ip", "address": "192.0.2.1", "decision": "allowed", "rules": []},
		{"zone": "nowhere", "key": "ab13", "parts": [""], "missing": ["{a}"], "key_missing": "client_ip", "decision": "allowed", "rules": []},
		{"zone": "many", "parts": ["7", "", ""], "missing": ["{a}", "{b}"], "key_missing": "share", "decision": "allowed", "rules": []},
		{"zone": "strict", "parts": [""], "missing": ["{a}"], "key_missing": "deny", "decision": "denied", "rule": "key_missing", "rules": []}]}, {"server": "srv1", "zones": []}]}`)
	var b strings.Builder
	printed(t, &b, "explanation", e)
	want := `denied by zone api, rule 1, again in 28s

server srv0
zone api, key 7: denied by 1, again in 28s, cost 2 (fallback)
  RULE  LIMIT   USED  HELD  REMAINING  RESET  RETRY
  1     200/1m  199   0     1          40s    28s
  2     20/1s   0     0     40         0s     -
zone watch, key "\u202e": shadow_denied by 1
  RULE  LIMIT  USED  HELD  REMAINING  RESET  RETRY
  1     1/1s   0     0     0          0s     never
zone vip, key 7: skipped
  override 7
zone vip, key 8: denied by blocked
  exception 8 until 2027-01-02T03:04:05Z
zone vip, key 9: skipped
  exception *
zone none, key "" (ab12): allowed
  key_missing client_ip: the request has no {a}
  counted by the client's address, 192.0.2.1
zone nowhere, key "" (ab13): allowed
  key_missing client_ip: the request has no {a}
  counted by the client's address, one key for all that are unknown
zone many, key 7 "" "": allowed
  key_missing share: the request has no {a} {b}
zone strict, key "": denied by key_missing
  key_missing deny: the request has no {a}
not matching: login up
not run, as more than the request is needed: templates; what they would change is unknown
a matcher failed, and what is after it was not looked at: "a\x1b"

server srv1
no zone of this handler matches
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// TestKeyWithoutZone checks that a key is looked for in all zones unless its first word is a zone.
func TestKeyWithoutZone(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RequestURI() {
		case Prefix + "zones":
			_, _ = io.WriteString(w, `{"zones": [{"name": "api"}, {"name": "login"}]}`)
		case Prefix + "zones/api/key?part=7":
			_, _ = io.WriteString(w, `{"zone": "api", "parts": ["7"], "decision": "allowed"}`)
		case Prefix + "keys?part=7":
			_, _ = io.WriteString(w, `{"zones": 2, "keys": [{"zone": "login", "parts": ["7"], "decision": "allowed"}, {"zone": "api", "parts": ["7"], "decision": "allowed"}]}`)
		case Prefix + "keys?part=9":
			_, _ = io.WriteString(w, `{"zones": 2, "keys": [{"zone": "login", "key": "ab", "name": "9 /login", "decision": "allowed"}, {"zone": "api", "key": "cd", "decision": "allowed"}]}`)
		case Prefix + "keys?part=8", Prefix + "keys?part=ap&part=7":
			_, _ = io.WriteString(w, `{"zones": 2, "keys": [], "partly_searched": ["login"]}`)
		case Prefix + "top":
			_, _ = io.WriteString(w, `{"zones": [{"zone": "api", "busiest": [{"key": "ab", "times": 3}]}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error": "zone \"ap\": there is none of this name"}`)
		}
	}))
	defer admin.Close()
	for args, want := range map[string]string{
		"key api 7": "zone api, key 7: allowed",
		"key 7":     "zone login, key 7: allowed\nzone api, key 7: allowed",
		"key 8":     "none of 2 zones has counted this key\nsearched only in frequent keys, for its keys have more parts: login",
		"key 9":     "zone login, key 9 /login (ab): allowed\nzone api, key (cd): allowed",
		"key ap 7":  `zone "ap": there is none of this name`,
		"top":       "zone api\nBUSIEST  TIMES  KEY  NAME\n1        3      ab",
	} {
		cmd := &cobra.Command{Use: "rate-limit", SilenceErrors: true}
		rateLimitCommands(cmd)
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs(append(strings.Fields(args), "--address", strings.TrimPrefix(admin.URL, "http://")))
		err := cmd.Execute()
		got := out.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s:\n%s, want\n%s", args, got, want)
		}
	}
}
