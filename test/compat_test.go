package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/autoname"
	"github.com/dianalimiter/diana/internal/configure/compat"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// compatFiles returns configurations written for other plugins. Their "#:" lines
// are a trace: requests, and the responses of both plugins. The benchmarks module
// runs the same traces against the original plugins.
func compatFiles(t *testing.T, pattern string) []string {
	t.Helper()
	files := glob(t, "test/testdata/compat/"+pattern)
	if len(files) == 0 {
		t.Fatalf("no %s", pattern)
	}
	return files
}

// loadText replaces the running configuration with one that was written for
// another machine.
func (s *site) loadText(config []byte, p trace.Place) (host string, err error) {
	s.Helper()
	p.Storage, p.Log = s.storage, map[string]any{"output": "test_log", "id": s.log.id}
	moved, host, err := p.Move(config)
	if err != nil {
		return "", err
	}
	urls, err := trace.Load(moved)
	if err != nil {
		return "", err
	}
	s.url = urls[0]
	if len(urls) > 1 {
		s.second = urls[1]
	}
	return host, nil
}

// run runs a trace against the site and returns the number of requests.
func (s *site) run(text string) (requests int) {
	s.Helper()
	steps, err := trace.Parse(text)
	if err != nil || len(steps) == 0 {
		s.Fatalf("%d steps: %v", len(steps), err)
	}
	n, err := trace.Run(s.client, s.url, steps)
	if err != nil {
		s.Error(err)
	}
	return n
}

// root is the root of the repository, to which file names are relative.
const root = ".."

func textOf(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// glob returns the files of the repository that match a pattern.
func glob(t *testing.T, pattern string) (files []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		files = append(files, strings.TrimPrefix(f, root+"/"))
	}
	return files
}

// TestCompatConfigurations runs every configuration of the other plugins, as a
// Caddyfile and as the JSON that the plugin's own adapter produces.
func TestCompatConfigurations(t *testing.T) {
	requests := 0
	for _, file := range compatFiles(t, "*/*.Caddyfile") {
		text := textOf(t, file)
		name := strings.TrimPrefix(strings.TrimSuffix(file, ".Caddyfile"), "test/testdata/compat/")
		try := func(t *testing.T, config []byte) {
			s, p := newSite(t), trace.Place{}
			if strings.Contains(text, "store redis") {
				p.Redis = redistest.Start(t).Addr
			}
			if _, err := s.loadText(config, p); err != nil {
				t.Fatal(err)
			}
			requests += s.run(trace.Comments(text))
		}
		t.Run(name, func(t *testing.T) {
			adapted, err := trace.Adapt(text)
			if err != nil {
				t.Fatal(err)
			}
			checkAdapted(t, adapted)
			try(t, adapted)
		})
		if theirs, err := os.ReadFile(filepath.Join(root, strings.TrimSuffix(file, ".Caddyfile")+".json")); err == nil {
			t.Run(name+".json", func(t *testing.T) { try(t, theirs) })
		} else if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(name, "mholt-later/") {
			t.Errorf("%s: no JSON: %v", name, err)
		}
	}
	t.Logf("%d requests", requests)
}

// TestCompatLogEventAndPlaceholder checks what users of mholt/caddy-ratelimit rely
// on besides responses: the log line, the event and the placeholder.
func TestCompatLogEventAndPlaceholder(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		seen, global := listen(t, "rate_limit_exceeded")
		s := serve(t, setup{global: global, app: b.app(), site: `
			rate_limit {
				zone my.zone {
					key {header.X-Id}
					events 1
					window 1h
				}
				log_key
			}
			handle_errors {
				respond "{http.rate_limit.exceeded.name}"
			}
			respond hello`})
		s.wantNoHeader(s.want(req{header: map[string]string{"X-Id": "a"}}, 200), "RateLimit", "RateLimit-Policy")
		a := s.want(req{header: map[string]string{"X-Id": "a"}}, 429)
		s.wantNoHeader(a, "RateLimit", "RateLimit-Policy")
		if a.body != "my.zone" {
			t.Errorf("placeholder: %q", a.body)
		}
		line := s.log.wait(t, "rate limit exceeded")
		if line["zone"] != "my.zone" || line["remote_ip"] != "127.0.0.1" || line["key"] != "a" || line["wait"] == nil ||
			line["logger"] != "http.handlers.rate_limit" {
			t.Errorf("log line %v", line)
		}
		events := seen.wait(t, "rate_limit_exceeded", 1)
		for _, field := range []string{"zone", "wait", "remote_ip"} {
			if events[0].Data[field] == nil {
				t.Errorf("event without %s: %v", field, events[0].Data)
			}
		}
	})
}

// TestCompatHeaders checks that a configuration in another plugin's options sends
// rate limit headers only where this plugin's headers option is set.
func TestCompatHeaders(t *testing.T) {
	const zone = "zone z {\nkey static\nevents 50\nwindow 1h\n}\n"
	for _, c := range []struct {
		app, site string
		want      bool
	}{
		{"", "rate_limit {\n" + zone + "}", false},
		{"", "rate_limit {\n" + zone + "headers draft\n}", true},
		{"headers draft", "rate_limit {\n" + zone + "}", true},
		{"", "rate_limit {\n" + zone + "headers off\n}", false},
	} {
		s := serve(t, setup{app: c.app, site: c.site})
		if got := s.want(req{}, 200).get("RateLimit") != ""; got != c.want {
			t.Errorf("%s %s: headers %v, want %v", c.app, c.site, got, c.want)
		}
	}
	s := serve(t, setup{site: "rate_limit {\n" + zone + "zone own {\nrule 9/1h\n}\n}"})
	s.wantHeader(s.want(req{}, 200), "RateLimit-Policy", `"own";q=9;w=3600`)
	s = serve(t, setup{site: "rate_limit {\n" + zone + "headers legacy\n}"})
	s.wantHeader(s.want(req{}, 200), "X-RateLimit-Limit", "50")
}

// TestCompatWarnings checks that each option that is ignored or has another
// meaning is warned about once, however many handlers set it.
func TestCompatWarnings(t *testing.T) {
	const handler = `
		rate_limit {
			zone a.b {
				key static
				events 1
				window 1h
			}
			distributed {
				read_interval 1s
				write_interval 1s
				purge_age 1h
			}
			storage redis localhost
			sweep_interval 1m
		}
		rate_limit {remote.ip} 100r/s {
			name ip
		}`
	s := serve(t, setup{app: redisStore(unusedAddr(t)), site: handler, more: "http://:8002 {\n" + handler + "\n}"})
	for _, want := range []string{
		"read_interval is ignored", "write_interval is ignored", "purge_age is ignored",
		"storage is ignored", "sweep_interval is ignored", "characters that are not allowed", "trusts any X-Forwarded-For",
	} {
		if n := strings.Count(s.log.text(), want); n != 1 {
			t.Errorf("%d warnings of %q, want 1", n, want)
		}
	}
}

// TestCompatAddress sends a forwarded address through an untrusted peer.
func TestCompatAddress(t *testing.T) {
	s := newSite(t)
	adapted, err := trace.Adapt(`
		{
			servers {
				trusted_proxies static 192.0.2.0/24
			}
		}
		:8080
		rate_limit {remote.ip} 1r/m`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.loadText(adapted, trace.Place{}); err != nil {
		t.Fatal(err)
	}
	s.run("GET / from=203.0.113.1 => 200\nGET / from=203.0.113.2 => 429")
}

// TestCompatPrefixes checks that clients are counted by network, and by whole
// address where no prefix is given.
func TestCompatPrefixes(t *testing.T) {
	for key, want := range map[string][2]int{
		"{remote.ip}": {32, 128}, "{remote.host}": {32, 128}, "{remote.ip_prefix.24}": {24, 24},
		"{remote.ip_prefix.64}": {32, 64}, "{remote.host_prefix.0}": {0, 0}, "{client_ip}": {32, 64},
	} {
		s := serve(t, setup{site: "rate_limit " + key + " 10r/s"})
		z, err := compat.Normalize(s.handlers()[0].Zones[0])
		if err != nil {
			t.Fatal(err)
		}
		if p, err := z.KeyPlan(); err != nil || p.V4 != want[0] || p.V6 != want[1] {
			t.Errorf("%s: %+v %v, want /%d and /%d", key, p, err, want[0], want[1])
		}
	}
	s := serve(t, setup{site: "rate_limit {remote.ip_prefix.24} 1r/m"})
	s.want(req{ip: "203.0.113.1"}, 200)
	s.want(req{ip: "203.0.113.2"}, 429)
	s.want(req{ip: "203.0.114.2"}, 200)
}

// TestCompatZoneSize checks that zone_size becomes max_keys.
func TestCompatZoneSize(t *testing.T) {
	s := serve(t, setup{site: "rate_limit {query.id} 2r/m 500"})
	var all cli.Zones
	if status, text := s.admin("GET", "zones", "", &all); status != 200 || all.Zones[0].MaxKeys != 500 {
		t.Errorf("%s, want a max_keys of 500", text)
	}
	if err := validate(t, "", `{"handler": "rate_limit", "key": "{query.id}", "rate": "2r/m", "zone_size": 500, "reject_status": 503}`); err != nil {
		t.Error(err)
	}
}

// TestCompatIdenticalHandlers checks that two identical handlers in JSON count
// separately.
func TestCompatIdenticalHandlers(t *testing.T) {
	const one = `{"match": [{"path": [%q]}], "handle": [{"handler": "rate_limit", "key": "{http.request.uri.query.id}", "rate": "1r/m"}, {"handler": "static_response"}]}`
	s := newSite(t)
	_, err := s.loadText(fmt.Appendf(nil, `{"apps": {"http": {"servers": {"srv0": {"routes": [`+one+`, `+one+`]}}}}}`, "/a", "/b"), trace.Place{})
	if err != nil {
		t.Fatal(err)
	}
	s.run("GET /a?id=1 => 200 429\nGET /b?id=1 => 200 429\nGET /b => 200*3")
}

// TestCompatDenialOrder checks that, of several zones that deny, the one with the
// highest rate is named, as mholt/caddy-ratelimit does.
func TestCompatDenialOrder(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone few {
				key static
				events 1
				window 1h
			}
			zone many {
				key static
				events 1
				window 1m
			}
		}
		handle_errors {
			respond "{http.rate_limit.exceeded.name}"
		}`})
	if a := s.want(req{}, 200, 429); a.body != "many" {
		t.Errorf("named %q, want many", a.body)
	}
}

// TestBadCompatJSON checks the error for each invalid option.
func TestBadCompatJSON(t *testing.T) {
	limits := func(zones string) string { return `{"handler": "rate_limit", "rate_limits": {` + zones + `}}` }
	for _, c := range []struct{ handlers, want string }{
		{limits(`"a": {"max_events": 0, "window": "1m"}`), "zone a: events 0: want at least 1"},
		{limits(`"a": {"max_events": -1, "window": "1m"}`), "events -1: want at least 1"},
		{limits(`"a": {"max_events": 1}`), "events without a window"},
		{limits(`"a": null`), `zone "a" null`},
		{limits(`"a": {}`), "no rule: want at least one"},
		{limits(`"a": {"max_events": 1, "window": "1m", "name": "b"}`), `has the name "b" too`},
		{limits(`"a": {"max_events": 1, "window": "1m", "rules": [{"limit": 1, "window": "1m"}]}`), "events and window beside rule"},
		{limits(`"a": {"max_events": 1, "window": "1m", "key": "{}"}`), "want the name of a placeholder between { and }"},
		{limits(`"a": {"max_events": 1, "window": "1m", "key": 5}`), "cannot unmarshal"},
		{`{"handler": "rate_limit", "zones": [` + zoneA + `], "distributed": {}}`, "write `store redis <address>` into the global option rate_limit"},
		{`{"handler": "rate_limit", "zones": [` + zoneA + `], "reject_status": 99}`, "reject_status 99: want 400 to 599, or 200"},
		{`{"handler": "rate_limit", "key": "{query.id}"}`, `with rate "": want both`},
		{`{"handler": "rate_limit", "rate": "10r/s"}`, `key "" with rate "10r/s": want both`},
		{`{"handler": "rate_limit", "zone_size": 5}`, "want both"},
		{`{"handler": "rate_limit", "key": "{query.id}", "rate": "0r/s"}`, "limit 0: want at least 1"},
		{`{"handler": "rate_limit", "key": "{query.id}", "rate": "10"}`, `rate "10": want <count>/<window>`},
		{`{"handler": "rate_limit", "key": "{query.id}", "rate": "10r/s", "zone_size": -1}`, "max_keys -1: want 1 to 1073741824"},
		{`{"handler": "rate_limit", "key": "{remote.ip_prefix.129}", "rate": "10r/s"}`, "want a prefix of 0 to 128"},
		{`{"handler": "rate_limit", "key": "{remote.ipp}", "rate": "10r/s"}`, "key {remote.ipp}: want {remote.host}, {remote.ip}"},
		{`{"handler": "rate_limit", "zones": [{"name": "a", "key": ["at-{remote.ip}"], "rules": [{"limit": 1, "window": "1m"}]}]}`, "and nothing beside it"},
	} {
		err := validate(t, "", c.handlers)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.handlers, err, c.want)
		}
	}
	wantPools(t, 0, 0)
}

// TestCompatNamesStayDifferent checks that zones whose names a zone here cannot have count
// apart, and that what users read has the name as it was written.
func TestCompatNamesStayDifferent(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		long := strings.Repeat("x", 64)
		names := []string{"登录", "接口", "api/v1", "api.v1", long + "a", long + "b", "exceeded"}
		for _, separate := range []bool{true, false} { // in handlers of their own, and in one
			site := "handle_errors {\nrespond \"{http.rate_limit.exceeded.name}\"\n}\n"
			zones := ""
			for i, name := range names {
				zone := fmt.Sprintf("zone %q {\nmatch path /%d\nkey static\nevents 1\nwindow 1h\n}\n", name, i)
				if zones += zone; separate {
					site += "rate_limit {\n" + zone + "}\n"
				}
			}
			if !separate {
				site += "rate_limit {\n" + zones + "}\n"
			}
			s := serve(t, setup{app: b.app(), site: site + "respond ok"})
			for i, name := range names {
				want := []int{200, 429}
				if !separate {
					want = []int{429} // the same zones
				}
				if a := s.want(req{path: fmt.Sprintf("/%d", i)}, want...); a.body != name {
					t.Errorf("%s: exceeded.name %q", name, a.body)
				}
			}
			until(t, "the lines", func() bool { return len(s.log.lines(t, "rate limit exceeded")) >= len(names) })
			for i, line := range s.log.lines(t, "rate limit exceeded")[:len(names)] {
				if line["zone"] != names[i] {
					t.Errorf("log line of zone %v, want %s", line["zone"], names[i])
				}
			}
			seen := make(map[string]bool)
			for _, z := range s.zones().Zones {
				if seen[z.Name] = true; config.CheckName(z.Name) != nil {
					t.Errorf("zone %q", z.Name)
				}
			}
			if len(seen) != len(names) {
				t.Errorf("zones %v, want %d", seen, len(names))
			}
		}
	})
}

// TestCompatEmpty checks what generators write: no zones, and no matchers.
func TestCompatEmpty(t *testing.T) {
	const nothing = "a rate_limit without zones limits nothing"
	for _, site := range []string{"rate_limit {\n}", "rate_limit {\nlog_key\n}", "rate_limit /x {\n}"} {
		s := serve(t, setup{site: site + "\nrespond ok"})
		s.wantNoHeader(s.want(req{}, 200, 200), "RateLimit")
		if len(s.log.lines(t, nothing)) != 1 {
			t.Errorf("%s: no warning", site)
		}
	}
	for _, handler := range []string{
		`{"handler": "rate_limit"}`, `{"handler": "rate_limit", "rate_limits": {}}`, `{"handler": "rate_limit", "zones": []}`,
		`{"handler": "rate_limit", "rate_limits": {"a": {"match": [{}], "max_events": 1, "window": "1m"}}}`,
		`{"handler": "rate_limit", "rate_limits": {"a": {"match": [], "max_events": 1, "window": "1m"}}}`,
	} {
		if err := validate(t, "", handler); err != nil {
			t.Errorf("%s: %v", handler, err)
		}
	}
	s := serve(t, setup{site: "rate_limit {\nzone theirs {\nmatch {\n}\nevents 1\nwindow 1h\nkey static\n}\n}\nrespond ok"})
	s.want(req{}, 200)
	s.want(req{path: "/x", method: "POST"}, 429)
	err := s.load(setup{site: "rate_limit {\nzone own {\nmatch {\n}\nrule 1/1h\nkey static\n}\n}\nrespond ok"})
	if err == nil || !strings.Contains(err.Error(), "match: want @name, a path, or a matcher") {
		t.Errorf("an empty match in a zone of our own: %v", err)
	}
}

func TestSafeName(t *testing.T) {
	for name, want := range map[string]string{
		"a-B_9": "a-B_9", "a.b c": "a_b_c-8640d2", "exceeded": "exceeded-a36aa3", "": "-e3b0c4", "é": "_-4a9955",
		"登录": "__-1e2df9", "接口": "__-c80d51", strings.Repeat("x", 64): strings.Repeat("x", 64), strings.Repeat("x", 70): strings.Repeat("x", 57) + "-c71bd1",
	} {
		got := autoname.Safe(name)
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		if err := config.CheckName(got); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestPartsJSON checks that a key in JSON may be a single string, as
// mholt/caddy-ratelimit writes it.
func TestPartsJSON(t *testing.T) {
	for text, want := range map[string]string{`"a b"`: `["a b"]`, `["a","b"]`: `["a","b"]`, `""`: `[""]`, `null`: `null`} {
		var p config.Parts
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Error(err)
		}
		if got, err := json.Marshal(p); err != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
}

// TestCompatTable checks that the table of options in docs/internals/compat.md names every
// option of both plugins, with a file that sets it and tests that exist.
func TestCompatTable(t *testing.T) {
	_, table, ok := strings.Cut(textOf(t, "docs/internals/compat.md"), "<!-- compat options -->")
	if !ok {
		t.Fatal("no table")
	}
	sources := ""
	for _, f := range []string{"test/compat_test.go", "benchmarks/mholt/compat_test.go", "benchmarks/russellluo/compat_test.go"} {
		sources += textOf(t, f)
	}
	seen := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| (\\w+) \\| `([^`]+)` \\| \\[\\w+\\]\\(\\.\\./\\.\\./([^)]+)\\) \\| (.+) \\|$").FindAllStringSubmatch(table, -1) {
		plugin, word, file, tests := m[1], m[2], m[3], m[4]
		seen[plugin+" "+word] = true
		if !strings.Contains(file, strings.ToLower(plugin)) || !strings.Contains(textOf(t, file), word) {
			t.Errorf("%s: no %s in %s", plugin, word, file)
		}
		for _, test := range strings.Split(tests, ", ") {
			if !strings.Contains(sources, "func "+test+"(t *testing.T)") {
				t.Errorf("%s: no test %s", word, test)
			}
		}
	}
	for plugin, words := range map[string]string{
		"mholt": "zone match key events window ipv4_prefix ipv6_prefix distributed read_interval write_interval purge_age " +
			"storage jitter sweep_interval log_key disable_metrics rate_limits max_events http.rate_limit.exceeded.name",
		"RussellLuo": "path query header cookie remote.host remote.port remote.ip remote.host_prefix remote.ip_prefix rate zone_size reject_status",
	} {
		for _, word := range strings.Fields(words) {
			if !seen[plugin+" "+word] {
				t.Errorf("%s of %s is not in the table", word, plugin)
			}
		}
	}
	t.Logf("%d options", len(seen))
}
