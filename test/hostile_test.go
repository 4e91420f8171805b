package test

import (
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"unicode"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
)

// repeat joins n texts with commas.
func repeat(n int, one func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = one(i)
	}
	return strings.Join(all, ",")
}

// heap returns the heap bytes in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestOverrideMemoryIsBounded checks that a document of half a megabyte does not
// take gigabytes, whatever the keys of its overrides.
func TestOverrideMemoryIsBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serveRuled(t, setup{app: b.app(), site: "rate_limit {\nzone z {\nkey {client_ip} {query.k}\nrule 9/100h\n}\n}\nrespond ok"})
		before := heap()
		for form, one := range map[string]string{`"10.%d.%d.0/24", "a"`: "10.0.7.1", `"*", "%[2]d-%[1]d"`: "10.0.0.1", `"10.0.%d.%d", "a"`: "10.0.0.7"} {
			n := 5000
			document := func() string {
				return zoneDocument(`{"overrides": [` + repeat(n, func(i int) string {
					return fmt.Sprintf(`{"key": [`+form+`], "rules": [{"limit": 1, "window": "100h"}]}`, i/256, i%256)
				}) + `]}`)
			}
			if strings.ContainsAny(form, "/*") {
				if msg := s.rejected(document()); !strings.Contains(msg, "/zones/z/overrides/1000: over 1000 keys of several parts") {
					t.Errorf("%d overrides of %s: %s", n, form, msg)
				}
				n = key.MaxMixed
			}
			s.apply(document())
			if took := int64(heap()-before) >> 20; took > 100 {
				t.Errorf("%d overrides of %s take %d MiB", n, form, took)
			}
			q := req{ip: one, path: "/?k=a"}
			if strings.Contains(form, "*") {
				q.path = "/?k=7-0"
			}
			s.want(q, 200, 429)
		}
		s.apply(`{"zones": {}}`)
		s.want(req{ip: "10.0.8.1", path: "/?k=a"}, 200, 200)
	})
}

// TestHostileNumbersAndLists checks that numbers and lists out of range are
// rejected with an error that names their path.
func TestHostileNumbersAndLists(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h"))
	rule := func(i int) string { return fmt.Sprintf(`{"limit": 9, "window": "%ds"}`, i+1) }
	for zone, want := range map[string]string{
		`{"rules": [` + repeat(config.MaxRules+1, rule) + `]}`:                                       "/zones/z/rules/128: rule 129: want at most 128 rules",
		`{"rules": [` + repeat(8000, rule) + `]}`:                                                    "/zones/z/rules/128: rule 129: want at most 128 rules",
		`{"overrides": [{"key": ["10.0.0.1"], "rules": [` + repeat(config.MaxRules+1, rule) + `]}]}`: "/zones/z/overrides/0/rules/128: rule 129: want at most 128 rules",
		`{"rules": [{"limit": 1e999, "window": "1s"}]}`:                                              "/zones/z/rules/0/limit: 1e999: want a whole number",
		`{"rules": [{"limit": 1, "window": 1e999}]}`:                                                 "/zones/z/rules/0/window: ",
		`{"rules": [{"limit": NaN, "window": "1s"}]}`:                                                "not JSON",
		`{"rules": [{"limit": Infinity, "window": "1s"}]}`:                                           "not JSON",
		`{"rules": [{"limit": -0, "window": "1s"}]}`:                                                 "/zones/z/rules/0: limit 0",
		`{"rules": [{"limit": -1, "window": "1s"}]}`:                                                 "/zones/z/rules/0: limit -1",
		`{"rules": [{"limit": 0.5, "window": "1s"}]}`:                                                "/zones/z/rules/0/limit: 0.5: want a whole number",
		`{"rules": [{"limit": 9223372036854775807, "window": "1s"}]}`:                                "/zones/z/rules/0",
		`{"rules": [{"limit": 1, "window": "-1s"}]}`:                                                 "/zones/z/rules/0",
		`{"rules": [{"limit": 1, "limit": 9, "window": "1s"}]}`:                                      "/zones/z/rules/0/limit: is given twice",
		`{"rules": [{"limit": 1, "window": "1s", "algorithm": {"name": "gcra", "name": "gcra"}}]}`:   "/zones/z/rules/0/algorithm/name: is given twice",
		`{"shadow": true, "shadow": false}`:                                                          "/zones/z/shadow: is given twice",
	} {
		if msg := s.rejected(zoneDocument(zone)); !strings.Contains(msg, want) || len(msg) > 600 {
			t.Errorf("%.80s: %q, want %q", zone, msg, want)
		}
	}
	s.apply(zoneDocument(`{"rules": [` + repeat(config.MaxRules, rule) + `]}`))
	s.want(req{}, 200)
	if err := s.load(zoneOf(backend{}, strings.Repeat("rule 9/100h\n", config.MaxRules+1))); err == nil || !strings.Contains(err.Error(), "want at most 128 rules") {
		t.Error(err)
	}
}

// TestHostileAdminRequests checks that responses of the admin API are short and
// free of control characters, whatever the request.
func TestHostileAdminRequests(t *testing.T) {
	s := serve(t, zoneOf(backend{}, "key {query.k}\nrule 2/100h"))
	long, evil := strings.Repeat("x", 1<<20), url.QueryEscape("\x00\x1b[2J\r\n\u202e<script>")
	for _, q := range []struct{ method, path, body string }{
		{"GET", "zones/" + evil + "/key?part=a", ""},
		{"GET", "zones/" + evil + "/top", ""},
		{"GET", "zones/" + long + "/top", ""},
		{"GET", evil, ""},
		{"GET", "zones/z/key?part=" + evil, ""},
		{"GET", "zones/z/key?part=" + long, ""},
		{"GET", "zones/z/key?hash=" + evil, ""},
		{"GET", "zones/z/key?hash=" + long, ""},
		{"GET", "zones/z/key?part=a&cost=" + evil, ""},
		{"GET", "zones/z/key?part=a&cost=9223372036854775807", ""},
		{"GET", "zones/z/key?part=a&cost=1e999", ""},
		{"GET", "zones/z/key?" + strings.Repeat("part=a&", 100_000), ""},
		{"GET", "zones/z/key?%zz", ""},
		{"DELETE", "zones/z/key?part=" + evil, ""},
		{"GET", "history?zone=" + evil + "&since=" + evil, ""},
		{"GET", "history?" + strings.Repeat("zone=z&", 100_000), ""},
		{"POST", "explain", `{"url": "http://x/` + evil + `", "client_ip": "1.2.3.4"}`},
		{"POST", "explain", `{"url": "` + long + `", "client_ip": "1.2.3.4"}`},
		{"POST", "explain", strings.Repeat("[", 60_000)},
		{"POST", "explain", strings.Repeat(`{"headers":`, 5000)},
		{"POST", "explain", `{"method": "GET / HTTP/1.1\r\n", "url": "http://x/", "client_ip": "1.2.3.4"}`},
		{"POST", "explain", `{"url": "http://x/?k=a", "client_ip": "1.2.3.4", "headers": {"\u0000": "\u001b\r\n"}}`},
		{"POST", "explain", `{"url": "http://x/", "client_ip": "` + "fe80::1%" + strings.Repeat("e", 50_000) + `"}`},
	} {
		status, text := s.admin(q.method, q.path, q.body, nil)
		if status < 200 || status >= 500 || len(text) > 16<<10 {
			t.Errorf("%s %.60s %.60s: status %d, %d bytes", q.method, q.path, q.body, status, len(text))
		}
		if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
			t.Errorf("%s %.60s %.60s: %q", q.method, q.path, q.body, text[max(0, i-20):])
		}
	}
	s.want(req{path: "/?k=a"}, 200, 200, 429)
}
