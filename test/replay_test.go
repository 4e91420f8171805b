package test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/ops/replay"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// TestReplayWitness has a Caddy under random load write its access log, and checks that a replay of
// it with the same configuration denies the requests that were denied: but for a few, as a line
// says to some microseconds only when its request was decided.
func TestReplayWitness(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
		time.Sleep(time.Duration(ms) * time.Millisecond)
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
	}))
	defer upstream.Close()
	c := setup{site: `
	map {header.X-Plan} {plan.cost} {
		gold 1
		default 2
	}
	handle_path /v1/* {
		rate_limit {
			zone sliding {
				key {path}
				rule 60/1s sliding_window
				rule 400/10s sliding_window buckets 5
			}
			zone meter {
				key {client_ip}
				cost {plan.cost}
				rule 25/1s gcra burst 30
				override 10.0.0.1 {
					rule 5/1s gcra burst 8
				}
				override 10.0.0.2 unlimited
			}
		}
		reverse_proxy ` + upstream.URL + `
	}
	handle /login {
		rate_limit {
			zone login {
				key {client_ip}
				count_status 401
				rule 4/2s fixed_window block 1500ms
			}
			zone busy {
				key {client_ip}
				in_flight 3
			}
		}
		reverse_proxy ` + upstream.URL + `
	}
	handle {
		rate_limit {
			zone token {
				key {header.X-Account}
				key_missing share
				rule 12/1s token_bucket burst 20 step 250ms
				rule 50/5s sliding_log
			}
			zone watch {
				rule 1/1m
				shadow
			}
			zone leaky {
				key {method}
				rule 40/1s leaky_bucket burst 10 nodelay
			}
		}
		reverse_proxy ` + upstream.URL + `
	}`}
	s := serve(t, c)
	r := storekit.Seeded(t)
	const clients = 12
	seconds := 6
	if v := os.Getenv("DIANA_WITNESS"); v != "" {
		seconds, _ = strconv.Atoi(v)
	}
	seeds := make([]uint64, clients)
	for i := range seeds {
		seeds[i] = r.Uint64()
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	parallel(clients, func(i int) {
		n := seeds[i]
		roll := func(of uint64) uint64 {
			n = n*6364136223846793005 + 1442695040888963407
			return n >> 33 % of
		}
		for time.Now().Before(end) {
			path := []string{"/v1/a", "/v1/b", "/login", "/login", "/x", "/y"}[roll(6)]
			status := 200
			if path == "/login" && roll(2) == 0 {
				status = 401
			}
			if _, err := s.try(req{
				method: []string{"GET", "POST"}[roll(2)], ip: fmt.Sprintf("10.0.0.%d", roll(5)), path: fmt.Sprintf("%s?ms=%d&status=%d", path, roll(20), status),
				header: map[string]string{"X-Plan": []string{"gold", "free"}[roll(2)], "X-Account": []string{"", "a", "b"}[roll(3)]},
			}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(roll(40)) * time.Millisecond)
		}
	})
	ended(t)
	dir := t.TempDir()
	log, config := filepath.Join(dir, "access.log"), filepath.Join(dir, "Caddyfile")
	until(t, "the last line of the access log", func() bool {
		return strings.Count(s.log.text(), "handled request") > 0
	})
	for path, text := range map[string]string{log: s.log.text(), config: c.caddyfile(s)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	zones := replayZones(t, config, "caddyfile")
	denied, differ := 0, 0
	zones.Each = func(l *replay.Line, denies bool) {
		if l.Status == http.StatusTooManyRequests {
			denied++
		}
		if denies != (l.Status == http.StatusTooManyRequests) {
			differ++
			t.Logf("%s %s by %s at %d: status %d, replayed denied: %v", l.Method, l.URI, l.ClientIP, l.Begin, l.Status, denies)
		}
	}
	logs := replay.Logs{Paths: []string{log}, Each: func(l *replay.Line) error { zones.Add(l); return nil }}
	read, err := logs.Read()
	if err != nil {
		t.Fatal(err)
	}
	zones.End()
	t.Logf("%d requests, %d denied, %d differ; %+v", read.Lines, denied, differ, zones.Result(&read))
	if read.Unread > 0 || read.Lines < 300 || denied < 50 || differ > int(read.Lines/20) {
		t.Errorf("%+v", read)
	}
}

// TestReplayReadsRules replays requests under rules of each source, which is read once, and with
// changed rates beside it: those of the other zones stay as the source has them.
func TestReplayReadsRules(t *testing.T) {
	srv := redistest.Start(t)
	dir := t.TempDir()
	document := `{"zones": {"a": {"rules": [{"limit": 3, "window": "1m"}]}, "b": {"rules": [{"name": "slow", "limit": 5, "window": "1m"}]}}}`
	file := filepath.Join(dir, "rules.json")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := srv.Client().Set(t.Context(), "diana:rules", document, 0).Err(); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, document) }))
	defer web.Close()
	for _, c := range []struct {
		source string
		set    [][]string // of a zone, the words
		want   string     // allowed in a and b, or an error
	}{
		{"", nil, "1 2"},
		{"", [][]string{{"a", "7/1m"}}, "7 2"},
		{"rules file " + file, nil, "3 5"},
		{"rules http " + web.URL, nil, "3 5"},
		{"store redis " + srv.Addr + "\n\t\trules redis diana:rules", nil, "3 5"},
		{"store redis " + srv.Addr + "\n\t\trules redis diana:none", nil, "1 2"},
		{"rules file " + file, [][]string{{"b", "slow", "6/1m"}}, "3 6"},
		{"rules file " + file, [][]string{{"b", "6/1m"}, {"a", "2/1m"}}, "2 6"},
		{"rules file " + file, [][]string{{"c", "6/1m"}}, `zone "c": there is none`},
		{"rules file " + file, [][]string{{"b", "fast", "6/1m"}}, `rule "fast": want one of slow`},
		{"store redis 127.0.0.1:1\n\t\trules redis diana:rules", nil, "connection refused"},
	} {
		path := filepath.Join(dir, "Caddyfile")
		site := fmt.Sprintf(`{
	rate_limit {
		%s
	}
}
example.com {
	rate_limit {
		zone a {
			match path /a
			rule 1/1m
		}
		zone b {
			match path /b
			rule 2/1m
		}
	}
}
`, c.source)
		if err := os.WriteFile(path, []byte(site), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := allowedBy(t, path, c.set); !strings.Contains(got, c.want) {
			t.Errorf("%s %v: %s allowed, want %s", c.source, c.set, got, c.want)
		}
	}
}

// allowedBy replays ten requests of each of two zones, and returns how many each allows, or an error.
func allowedBy(t *testing.T, path string, set [][]string) string {
	t.Helper()
	o, err := cli.Open(path, "caddyfile", "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	err = o.Config.ReadRules()
	for _, words := range set {
		if err == nil {
			err = o.Config.Set(words[0], words[1:])
		}
	}
	if err != nil {
		return err.Error()
	}
	zones, err := replay.NewZones(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "access.log")
	line := "10.0.0.1 - - [25/Nov/2026:00:00:01 +0000] \"GET /%s HTTP/1.1\" 200 1\n"
	if err := os.WriteFile(log, []byte(strings.Repeat(fmt.Sprintf(line+line, "a", "b"), 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	zones.Host = "example.com"
	logs := replay.Logs{Paths: []string{log}, Each: func(l *replay.Line) error { zones.Add(l); return nil }}
	read, err := logs.Read()
	if err != nil {
		t.Fatal(err)
	}
	zones.End()
	list := zones.Result(&read)
	return fmt.Sprint(list[0].Allowed, " ", list[1].Allowed)
}

// TestReplayOfOtherPlugins checks that the zones of the other plugins' forms do not decide requests
// whose lines lack what their keys and matchers read either.
func TestReplayOfOtherPlugins(t *testing.T) {
	dir := t.TempDir()
	path, log := filepath.Join(dir, "caddy.json"), filepath.Join(dir, "access.log")
	config := `{"apps": {"http": {"servers": {"s": {"listen": [":443"], "routes": [{"handle": [
		{"handler": "rate_limit", "rate_limits": {
			"账户": {"key": "{http.request.header.X-Account}", "max_events": 1, "window": "1h"},
			"a": {"match": [{"header": {"X-Plan": ["free"]}}], "max_events": 1, "window": "1h"},
			"all": {"max_events": 1, "window": "1h"}}},
		{"handler": "rate_limit", "key": "{cookie.id}", "rate": "1r/m"},
		{"handler": "rate_limit", "zones": [{"name": "exempt", "exempt": [{"header": {"X-Plan": ["paid"]}}], "rules": [{"limit": 1, "window": "1h"}]},
			{"name": "over", "rules": [{"limit": 1, "window": "1h"}], "overrides": [{"key": ["192.0.2.1"], "rules": [{"limit_from": "{header.X-Limit}", "limit": 1, "window": "1h"}]}]}]}
	]}]}}}}}`
	line := `10.0.0.1 - - [25/Nov/2026:00:00:01 +0000] "GET / HTTP/1.1" 200 1 "-" "curl"` + "\n"
	if err := errors.Join(os.WriteFile(path, []byte(config), 0o600), os.WriteFile(log, []byte(line), 0o600)); err != nil {
		t.Fatal(err)
	}
	zones := replayZones(t, path, "")
	logs := replay.Logs{Paths: []string{log}, Each: func(l *replay.Line) error { zones.Add(l); return nil }}
	read, err := logs.Read()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, z := range zones.Result(&read) {
		got = append(got, fmt.Sprint(z.Zone, " ", z.Allowed, " ", z.Undecided))
	}
	want := []string{"__-061246 0 map[header X-Account:1]", "a 0 map[header X-Plan:1]", "all 1 map[]", "auto-8a4f7da4 0 map[header Cookie:1]", "exempt 0 map[header X-Plan:1]", "over 0 map[header X-Limit:1]"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReplayCommand checks what replay prints about a log of ten accounts, of which one sends ten
// times as much, and what it says of options that do not go together.
func TestReplayCommand(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	dir := t.TempDir()
	log, config, rules := filepath.Join(dir, "access.log"), filepath.Join(dir, "Caddyfile"), filepath.Join(dir, "rules.json")
	var lines strings.Builder
	for i := range 200 {
		account := min(i%20, 9)
		fmt.Fprintf(&lines, `{"ts":1795600000.%03d,"msg":"handled request","request":{"client_ip":"10.0.0.%d","method":"GET","host":"example.com","uri":"/a","headers":{"X-Account":["%d"]},"tls":{}},"duration":0.001,"status":200}`+"\n", i, i%2, account)
	}
	shadow, failing, nowhere := filepath.Join(dir, "shadow.Caddyfile"), filepath.Join(dir, "failing.Caddyfile"), filepath.Join(dir, "nowhere.Caddyfile")
	adaptive, tokens, cut := filepath.Join(dir, "adaptive.Caddyfile"), filepath.Join(dir, "tokens.Caddyfile"), filepath.Join(dir, "cut.log.gz")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, lines.String())
	_ = z.Close()
	for path, text := range map[string]string{
		shadow:   "example.com {\n\trate_limit {\n\t\tzone api {\n\t\t\texempt client_ip 10.0.0.1\n\t\t\tkey {header.X-Account}\n\t\t\trule 5/1m\n\t\t\toverride 8 unlimited\n\t\t\tshadow\n\t\t}\n\t}\n}\n",
		failing:  "example.com {\n\trate_limit {\n\t\tzone api {\n\t\t\tmatch expression `10 / (9 - int({header.X-Account})) > 0`\n\t\t\trule 1000/1m\n\t\t}\n\t}\n}\n",
		adaptive: "example.com {\n\trate_limit {\n\t\tzone api {\n\t\t\tkey {header.X-Account}\n\t\t\tin_flight adaptive {\n\t\t\t\tmin 1\n\t\t\t\tmax 1\n\t\t\t}\n\t\t\trule 20/1m\n\t\t}\n\t}\n}\n",
		tokens:   "example.com {\n\trate_limit {\n\t\tzone api {\n\t\t\tkey {header.X-Account}\n\t\t\trule 20/1m\n\t\t}\n\t\tzone chat {\n\t\t\tmatch path /chat\n\t\t\ttokens\n\t\t\trule 1000/1m\n\t\t}\n\t\tzone eight {\n\t\t\tmatch header X-Account 8\n\t\t\tsettle bytes\n\t\t\trule 1000000/1m\n\t\t}\n\t}\n}\n",
		nowhere:  "example.org {\n\trate_limit {client_ip} 1/1m\n}\n",
		cut:      packed.String()[:packed.Len()-4],
		log:      lines.String(), rules: `{"zones": {"api": {"rules": [{"limit": 5, "window": "1m"}]}}}`,
		config: "example.com {\n\trate_limit {\n\t\tzone api {\n\t\t\tkey {header.X-Account}\n\t\t\trule 20/1m\n\t\t}\n\t}\n}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"", "of 2 keys"},
		{"--key {header.X-Account} --deny 0.1%", "rule 110/1m sliding_window"},
		{"--key {header.X-Account} --deny 0.1%", "That share of 10 keys is less than one key"},
		{"--key {header.X-Account}", "at most 1 key (--deny)"}, // fewer than 1,000 keys
		{"--key {header.X-Account}", "rule 10/1m sliding_window"},
		{"--key {header.X-Account} --deny 10%", "at most 1 key (--deny)"},
		{"--key {header.X-Account} --deny 10%", "rule 10/1m sliding_window"},
		{"--key static", "rule 200/1m sliding_window"},
		{"--key X-Account", "! --key X-Account: want a placeholder, such as {client_ip} or {header.X-Account}"},
		{"--status 404", "no requests"},
		{"--path /api/*", "no requests"},
		{"--path /A*", "of 2 keys"},
		{"--status 20x", "! --status 20x: want a status such as 401, or a class such as 4xx"},
		{"--status 2XX", "of 2 keys"},
		{"--set api=5/1m", "! --set: With --config: "},
		{"--rules rules.json", "! --rules: With --config: "},
		{"--config " + config, "110 would pass, 90 would be denied (45 %)"},
		{"--config " + config + " --rules " + rules, "50 would pass, 150 would be denied"},
		{"--config " + config + " --set api=200/1m", "with --set api=200/1m: 200 would pass, 0 would be denied"},
		{"--config " + config + " --set api", "! --set api: want <zone>[.<rule>]=<rate>"},
		{"--config " + config + " --set web=5/1m", `! --set web=5/1m: zone "web"`},
		{"--config " + config + " --fail-above 40", "! 45 % of the requests would be denied: want at most 40 %"},
		{"--config " + config + " --fail-above 50", "110 would pass"},
		{"--config " + shadow, "90 would pass, 0 would be denied (0 %), 100 exempt, 10 unlimited; with the zones in shadow enforced, 65 would be denied"},
		{"--config " + shadow, "5            65"},
		{"--config " + config + " --fail-above -1", "! --fail-above -1: want a percentage"},
		{"--config " + config + " --fail-above nan", "! --fail-above NaN: want a percentage"},
		{"--config " + failing + " --fail-above 50", "! --fail-above: 110 requests undecided: want none, or --undecided"},
		{"--config " + failing + " --fail-above 50 --undecided", "90 would pass, 0 would be denied (0 %), 110 undecided"},
		{"--config " + tokens + " --fail-above 50", "! --fail-above: 10 requests undecided: want none"}, // of zone eight; no request is to zone chat
		{"--config " + config + " --fail-above 90 " + cut, "! --fail-above: " + cut + " is cut: want the whole log, or --undecided"},
		{"--config " + config + " --fail-above 90 --undecided " + cut, cut + " is cut"},
		{"--config " + nowhere + " --fail-above 50", "! --fail-above: no request was decided"},
		{"--config " + adaptive, "110 would pass, 90 would be denied (45 %)"}, // by the rule: nothing is denied for want of a place
		{"--config " + adaptive, "zone api: in_flight adaptive is not replayed, as it depends on the upstream"},
		{"--config " + adaptive + " --json", `"in_flight_adaptive": true`},
		{"--undecided", "! --undecided: With --config: "},
		{"--config " + config + " --key {client_ip}", "! --key: Without --config: "},
		{"--config " + config + " --deny 1%", "! --deny: Without --config: "},
		{"--deny much", "! --deny much: want a percentage"},
		{"--deny nan", "! --deny nan: want a percentage"},
		{"--json --status 599", "{\n \"lines\": 0,\n \"unread\": 0,\n \"keys\": 0,\n \"windows\": [],\n \"meters\": [],\n \"may_deny\": 0\n}"},
	} {
		args := append([]string{"rate-limit", "replay", log}, strings.Fields(c.args)...)
		out, err := caddyCommand("", args...)
		if err != nil {
			out += "! " + err.Error()
		}
		if !strings.Contains(out, c.want) {
			t.Errorf("%s:\n%s, want\n%s", c.args, out, c.want)
		}
	}
}

// replayZones returns the zones of a configuration, to decide the requests of a log.
func replayZones(t *testing.T, path, adapter string) *replay.Zones {
	t.Helper()
	o, err := cli.Open(path, adapter, "", false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	zones, err := replay.NewZones(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	return zones
}

// TestReplayOfUnknownWays checks that zones are undecided to which requests may have been led by what
// their lines lack, and those that read a header which a handler that is not run may set.
func TestReplayOfUnknownWays(t *testing.T) {
	const combined = `10.0.0.1 - - [14/Nov/2023:22:13:20 +0000] "GET /x HTTP/1.1" 200 2 "-" "x"`
	line := func(headers string) string {
		return `{"ts":1700000000,"msg":"handled request","request":{"remote_ip":"10.0.0.1","client_ip":"10.0.0.1","proto":"HTTP/1.1","method":"GET","host":"a.example","uri":"/x","headers":{` +
			headers + `}},"duration":0.01,"size":2,"status":200,"resp_headers":{}}`
	}
	const limit = "rate_limit {\nzone z {\nrule 1/1h\n}\n}\n"
	const forward = "forward_auth localhost:9 {\nuri /a\ncopy_headers Remote-User\n}\n"
	for _, c := range []struct{ line, site, lacks string }{
		{combined, "http://a.example {\n" + limit + "}", "host"},
		{combined, "http://a.example {\nhandle /x {\n" + limit + "}\n}", "host"},
		{combined, ":80 {\nhandle /y {\n" + limit + "}\n}", ""},
		{combined, ":80 {\n@a {\npath /y\nheader X-A *\n}\nhandle @a {\n" + limit + "}\n}", ""},
		{combined, ":80 {\n@a {\npath /x\nheader X-A *\n}\nhandle @a {\n" + limit + "}\n}", "header X-A"},
		{line(""), "http://b.example {\n" + limit + "}", ""},
		{line(""), ":80 {\n@a header Cookie *\nhandle @a {\n" + limit + "}\n}", ""},
		{line(`"Cookie":["REDACTED"]`), ":80 {\n@a header Cookie a=1\nhandle @a {\n" + limit + "}\n}", "header Cookie"},
		{line(""), ":80 {\nroute {\n" + forward + "@a header Remote-User admin\nhandle @a {\n" + limit + "}\n}\n}", "what reverse_proxy may set"},
		{line(""), ":80 {\nroute {\n" + forward + "rate_limit {\nzone z {\nkey {header.Remote-User}\nrule 1/1h\n}\n}\n}\n}", "what reverse_proxy may set"},
		{line(""), ":80 {\nroute {\n" + forward + "rate_limit {\nzone z {\nkey {header.X-Other}\nrule 1/1h\n}\n}\n}\n}", ""},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"access.log": c.line + "\n", "Caddyfile": c.site} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := caddyCommand("", "rate-limit", "replay", filepath.Join(dir, "access.log"), "--config", filepath.Join(dir, "Caddyfile"))
		want := "zone z did not decide 1 request: their lines lack " + c.lacks
		if err != nil || c.lacks == "" && strings.Contains(out, "did not decide") || c.lacks != "" && !strings.Contains(strings.ReplaceAll(out, "its line lacks", "their lines lack"), want) {
			t.Errorf("%s\n%s\nwant %q: %v\n%s", c.line, c.site, c.lacks, err, out)
		}
	}
}
