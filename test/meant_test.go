package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// TestConstantsThatArePlaceholders checks that a constant in a key that was meant to be a placeholder
// is an error that names it, in whichever way the zone is written, and that other constants are keys.
func TestConstantsThatArePlaceholders(t *testing.T) {
	for key, want := range map[string]string{
		"X-Api-Key": "{header.X-Api-Key}", "client_ip": "{client_ip}", "http.request.header.x-forwarded-for": "{http.request.header.x-forwarded-for}",
		"remote_host": "{remote_host}", "CF-Connecting-IP": "{client_ip}", "cookie.sid": "{cookie.sid}", "Authorization": "{header.Authorization}",
		"everyone": "", "static": "", "login": "", "api.example.com": "",
	} {
		sites := map[string]string{
			"zone":                  "rate_limit {\nzone z {\nkey " + key + "\nrule 10/s\n}\n}",
			"two parts":             "rate_limit {\nzone z {\nkey {client_ip} " + key + "\nrule 10/s\n}\n}",
			"events":                "rate_limit {\nzone z {\nkey " + key + "\nevents 10\nwindow 1m\n}\n}",
			"in a handle, imported": "handle /x/* {\nimport limited " + key + "\n}",
		}
		for name, site := range sites {
			more := "(limited) {\nrate_limit {\nzone z {\nkey {args[0]}\nrule 10/s\n}\n}\n}"
			_, err := adapt(t, more+"\n:8080 {\n"+site+"\n}\n")
			if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Caddyfile:")) {
				t.Errorf("%s, key %s: %v, want %q", name, key, err, want)
			}
		}
		for _, handler := range []string{
			`{"handler": "rate_limit", "zones": [{"name": "z", "key": ["` + key + `"], "rules": [{"limit": 1, "window": "1s"}]}]}`,
			`{"handler": "rate_limit", "rate_limits": {"z": {"key": "` + key + `", "max_events": 1, "window": "1s"}}}`,
			`{"handler": "rate_limit", "key": "` + key + `", "rate": "1r/s"}`,
		} {
			err := validate(t, "", handler)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", handler, err, want)
			}
		}
		_, err := adapt(t, ":8080 {\nrate_limit "+key+" 10/s\n}\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("one line, key %s: %v, want %q", key, err, want)
		}
	}
}

// TestOverridesThatArePlaceholders checks the same for the keys of overrides, in which placeholders
// are not replaced.
func TestOverridesThatArePlaceholders(t *testing.T) {
	list := filepath.Join(t.TempDir(), "keys")
	for value, wrong := range map[string]bool{
		"{header.X-Plan}": true, "{client_ip}": true, "{tier}": true, "header.X-Plan": true, "X-Plan": true, "x-plan": true,
		"gold": false, "X-Other": false, "host": false, "sk_live_1": false, "{3F2504E0-4F89-11D3-9A0C-0305E82C3301}": false,
	} {
		if err := os.WriteFile(list, []byte("silver\n"+value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, override := range []string{
			"override " + value + " unlimited", "override " + value + " {\nrule 100/s\n}", "override {\nkey " + value + "\nunlimited\n}", "override {\nfile " + list + "\nunlimited\n}",
		} {
			err := newSite(t).load(setup{site: "rate_limit {\nzone z {\nkey {header.X-Plan}\nrule 10/s\n" + override + "\n}\n}"})
			if (err != nil) != wrong || err != nil && !strings.Contains(err.Error(), "only in the zone's key") {
				t.Errorf("%s: %v, wrong %v", override, err, wrong)
			}
		}
	}
	if err := newSite(t).load(setup{site: "rate_limit {\nzone z {\nkey {host}\nrule 10/s\noverride header.com unlimited\n}\n}"}); err != nil {
		t.Error(err)
	}
}

// warnings returns how many warnings of a site begin with msg.
func warnings(s *site, msg string) (n int) {
	for line := range strings.Lines(s.log.text()) {
		if strings.Contains(line, `"level":"warn"`) && strings.Contains(line, `"msg":"`+msg) {
			n++
		}
	}
	return n
}

// warned checks how often a configuration earns a warning that begins with msg.
func warned(t *testing.T, c setup, msg string, want int) *site {
	t.Helper()
	s := serve(t, c)
	if n := warnings(s, msg); n != want {
		t.Errorf("%s\n%s\n%s: %d warnings %q, want %d", c.global, c.site, c.more, n, msg, want)
	}
	return s
}

// TestForwardingHeaderWarning checks the warning about a key that is the header of a proxy.
func TestForwardingHeaderWarning(t *testing.T) {
	const msg = "the key is a header with the client's address"
	for key, want := range map[string]int{
		"{header.X-Forwarded-For}": 1, "{header.x-real-ip}": 1, "{http.request.header.CF-Connecting-IP}": 1, "{header.Forwarded}": 1, "{header.X-Azure-ClientIP}": 1,
		"a-{header.True-Client-IP}": 1, "{path} {header.Fly-Client-IP}": 1,
		"{header.X-Api-Key}": 0, "{header.X-Forwarded-Host}": 0, "{client_ip}": 0,
	} {
		warned(t, setup{site: "rate_limit {\nzone z {\nkey " + key + "\nrule 10/s\n}\n}"}, msg, want)
		if !strings.Contains(key, " ") {
			warned(t, setup{site: "rate_limit " + key + " 10/s"}, msg, want)
			warned(t, setup{site: "rate_limit " + key + " 10r/s"}, msg, want)
			warned(t, setup{site: "rate_limit {\nzone z {\nkey " + key + "\nevents 10\nwindow 1m\n}\n}"}, msg, want)
		}
	}
}

// TestConnectionWarning checks the warning about a key that is the address of a trusted proxy.
func TestConnectionWarning(t *testing.T) {
	const msg = "the key is the address of the connection, and the server has trusted_proxies"
	for key, want := range map[string]int{"{remote_host}": 1, "{http.request.remote.host/24,64}": 1, "a-{remote_host}": 1, "{client_ip}": 0, "{header.X-Api-Key}": 0} {
		site := "rate_limit {\nzone z {\nkey " + key + "\nrule 10/s\n}\n}"
		warned(t, setup{site: site}, msg, want)
		warned(t, setup{global: "servers :8002 {\ntimeouts {\nread_body 1m\n}\n}", site: "respond ok", more: "http://:8002 {\n" + site + "\n}"}, msg, 0)
	}
}

// TestProxyThatIsNotTrusted checks the line about a peer that forwards requests, once while limits
// deny.
func TestProxyThatIsNotTrusted(t *testing.T) {
	const msg = "a peer that is not in trusted_proxies sends a header with a client's address"
	const untrusting = "servers :8002 {\ntimeouts {\nread_body 1m\n}\n}"
	lines := func(s *site) int { return warnings(s, msg) }
	for header, want := range map[string]int{"X-Forwarded-For": 1, "X-Real-IP": 1, "CF-Connecting-IP": 1, "Forwarded": 1, "X-Forwarded-Host": 0} {
		t.Run(header, func(t *testing.T) {
			c := setup{global: untrusting, site: "respond ok", more: "http://:8002 {\nrate_limit {client_ip} 1/1h\nrespond ok\n}"}
			s := serve(t, c)
			q := req{header: map[string]string{header: "203.0.113.1"}, to: s.second}
			s.want(q, 200)
			if n := lines(s); n != 0 {
				t.Errorf("%s: %d lines before a denial", header, n)
			}
			s.want(q, 429, 429)
			if n := lines(s); n != want {
				t.Errorf("%s: %d lines, want %d", header, n, want)
			}
			s.reload(c)
			q.to = s.second
			s.want(q, 429)
			if n := lines(s); n != want {
				t.Errorf("%s: %d lines after a reload, want %d", header, n, want)
			}
		})
	}
	s := serve(t, setup{site: "rate_limit {client_ip} 1/1h\nrespond ok"})
	q := req{header: map[string]string{"X-Forwarded-For": "203.0.113.1"}}
	if s.want(q, 200, 429); lines(s) != 0 {
		t.Error("a line about a trusted proxy")
	}
	s = serve(t, setup{global: untrusting, site: "respond ok", more: "http://:8002 {\nrate_limit {header.X-Id} 1/1h\nrespond ok\n}"})
	q = req{header: map[string]string{"X-Forwarded-For": "203.0.113.1", "X-Id": "a"}, to: s.second}
	if s.want(q, 200, 429); lines(s) != 0 {
		t.Error("a line about a zone that does not count by address")
	}
}

// TestAuthenticationOrderWarning checks the warning about a key that a later directive fills, and that
// there is none where it is filled before.
func TestAuthenticationOrderWarning(t *testing.T) {
	const (
		early   = "the zone depends on authentication, which runs after rate_limit by default: order rate_limit after it, or use route"
		forward = "forward_auth localhost:9 {\nuri /auth\ncopy_headers Remote-User X-Id>Account\n}\n"
		basic   = "basic_auth {\nalice $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n"
		respond = "respond ok"
	)
	limit := func(key string) string { return "rate_limit {\nzone z {\nkey " + key + "\nrule 10/s\n}\n}\n" }
	for site, want := range map[string]int{
		limit("{header.Remote-User}") + forward:                                                                         1,
		limit("{header.remote-user}") + forward:                                                                         1,
		limit("{header.Account}") + forward:                                                                             1,
		limit("{http.reverse_proxy.header.Remote-User}") + forward:                                                      1,
		limit("{rp.header.Remote-User}") + forward:                                                                      1,
		limit("{http.auth.user.id}") + basic:                                                                            1,
		"rate_limit {header.Remote-User} 10/s\n" + forward:                                                              1,
		"handle /a* {\n" + limit("{header.Remote-User}") + forward + respond + "\n}":                                    1,
		"forward_auth /admin/* localhost:9 {\nuri /auth\ncopy_headers Remote-User\n}\n" + limit("{header.Remote-User}"): 1,
		limit("{http.auth.user.id}"):                                                                                    1,
		"route {\n" + forward + limit("{header.Remote-User}") + respond + "\n}":                                         0,
		"route {\n" + forward + limit("{http.reverse_proxy.header.Remote-User}") + respond + "\n}":                      0,
		"route {\n" + basic + limit("{http.auth.user.id}") + respond + "\n}":                                            0,
		limit("{header.X-Id}") + forward:                                                                                0,
		limit("{client_ip}") + forward:                                                                                  0,
		limit("{header.Remote-User}"):                                                                                   0,
		"handle /a* {\n" + limit("{header.Remote-User}") + respond + "\n}\nhandle {\n" + forward + respond + "\n}":      0,
	} {
		warned(t, setup{site: site}, early, want)
	}
	const later = "the zone reads what is set after rate_limit: a header is what clients send there, and a variable is empty"
	warned(t, setup{site: limit("{header.X-Id}") + "request_header X-Id a"}, later, 1)
	warned(t, setup{site: limit("{header.X-Id}") + "request_header -X-Id"}, later, 0)
	warned(t, setup{site: "route {\nrequest_header X-Id a\n" + limit("{header.X-Id}") + "}"}, later, 0)
	warned(t, setup{site: "route {\n" + limit("{vars.tenant}") + "vars tenant a\n}"}, later, 1)
	warned(t, setup{site: "route {\nvars tenant a\n" + limit("{vars.tenant}") + "}"}, later, 0)
	const mapped = "map {host} {tenant} {\ndefault x\n}\n"
	warned(t, setup{site: "route {\n" + limit("{tenant}") + mapped + "}"}, later, 1)
	warned(t, setup{site: "route {\n" + mapped + limit("{tenant}") + "}"}, later, 0)
	warned(t, setup{site: mapped + limit("{tenant}")}, later, 0)

	// Whatever else of a zone reads it.
	zone := func(options string) string { return limit("{client_ip}\n" + options) }
	for _, options := range []string{
		"match header Remote-User admin", "exempt header Remote-User admin", "exempt not header_regexp Remote-User ^x",
		"exempt expression `{header.Remote-User} == 'admin'`", "exempt vars {http.auth.user.id} admin", "match vars_regexp {http.auth.user.id} ^a",
		"cost {header.Remote-User}",
	} {
		warned(t, setup{site: zone(options) + forward}, early, 1)
		warned(t, setup{site: "route {\n" + forward + basic + zone(options) + "}"}, early, 0)
	}
	warned(t, setup{site: "@admin header Remote-User admin\nrate_limit @admin {client_ip} 10/s\n" + forward}, early, 1)
	warned(t, setup{site: zone("match header Accept x\nexempt client_ip 10.0.0.1") + forward}, early, 0)
	for _, order := range []string{"order rate_limit after forward_auth", "order rate_limit after basic_auth"} {
		warned(t, setup{global: order, site: limit("{http.auth.user.id}") + basic}, early, 0)
	}
	warned(t, setup{global: "order rate_limit after forward_auth", site: limit("{header.Remote-User}") + forward}, early, 0)
}

// TestRawPathWarning checks the warning about variables that clients change by another spelling of the path.
func TestRawPathWarning(t *testing.T) {
	const msg = "a variable of the zone depends on the path as clients spell it: /EXPORT, //export and /./export are none of /export"
	const mapped = "map {path} {cost} {\n/export 20\ndefault 1\n}\n"
	zone := func(options string) string { return "rate_limit {\nzone z {\nrule 10/s\n" + options + "\n}\n}\n" }
	for site, want := range map[string]int{
		mapped + zone("cost {cost}"):                                                            1,
		mapped + "vars price {cost}\n" + zone("cost {vars.price}"):                              1,
		mapped + zone("key {client_ip} {cost}"):                                                 1,
		"map {http.request.orig_uri.path} {n} {\n/a 1\n}\n" + zone("rule {n}/1m else 2 name n"): 1,
		"map {uri} {cost} {\n~^/export 20\ndefault 1\n}\n" + zone("cost {cost}"):                1,
		"vars first {path.0}\n" + zone("key {client_ip} {vars.first}"):                          1,
		mapped + zone(""):               0,
		mapped + zone("cost {query.n}"): 0,
		"map {query.q} {cost} {\na 2\ndefault 1\n}\n" + zone("cost {cost}"):                    0,
		"@export path /export\nvars cost 1\nvars @export cost 20\n" + zone("cost {vars.cost}"): 0,
		zone("key {client_ip} {path}"): 0,
	} {
		warned(t, setup{site: site}, msg, want)
	}
}

// TestPatternWarning checks the warning about patterns of matchers, wherever they stand.
func TestPatternWarning(t *testing.T) {
	const msg = "a pattern of a matcher does not match what it looks like"
	zone := func(options string) string { return "rate_limit {\nzone z {\nrule 10/s\n" + options + "\n}\n}\n" }
	for site, want := range map[string]int{
		zone("match path /api/*, /v1/*"):                                            1,
		zone("exempt path /health, /ready"):                                         1,
		zone("match {\npath /api/*,\nmethod POST\n}"):                               1,
		zone("match {\nnot path /api/*, /v1/*\n}"):                                  1,
		zone("match method GET, POST"):                                              1,
		zone("match host a.example, b.example"):                                     1,
		zone("match path /users/{id}"):                                              1,
		"@api path /api/*, /v1/*\nrate_limit @api {client_ip} 10/s":                 1,
		"@api path /api/*, /v1/*\nrate_limit @api {\nzone z {\nrule 10/s\n}\n}":     1,
		"@api path /api/*, /v1/*\nhandle @api {\nrate_limit {client_ip} 10/s\n}":    1,
		"@api path /api/*, /v1/*\nhandle @api {\nrespond no\n}\n" + zone(""):        0,
		zone("match query a=1&b=2"):                                                 1,
		zone("match path_regexp /api/*"):                                            1,
		zone("match path /api/* /v1/*"):                                             0,
		zone("match path /{tenant}/*") + "map {host} {tenant} {\ndefault x\n}":      0,
		zone("match method GET POST\nmatch host a.example\nexempt path *.css /a,b"): 0,
	} {
		warned(t, setup{site: site}, msg, want)
	}
}

// TestOverrideWarning checks what is said of an override with fewer rules than its zone.
func TestOverrideWarning(t *testing.T) {
	const msg = "an override has fewer rules than the zone: for its keys it replaces all of them"
	for overrides, want := range map[string]int{
		"override 10.0.0.1 {\nrule 1000/1m name minute\n}":                                     1,
		"override 10.0.0.1 {\nrule 1000/1m\n}\noverride 10.0.0.2 {\nrule 2000/1m\n}":           1,
		"override {\nkey 10.0.0.1\nkey 10.0.0.2\nrule 1000/1m\n}":                              1,
		"override 10.0.0.1 {\nrule 1000/1m name minute\nrule 10000/1h name hour\n}":            0,
		"override 10.0.0.1 {\nrule 0/1s\n}":                                                    0,
		"override 10.0.0.1 unlimited":                                                          0,
		"override 10.0.0.1 {\nrule 1/1s\nrule 1000/1m name minute\nrule 10000/1h name hour\n}": 0,
	} {
		warned(t, setup{site: "rate_limit {\nzone z {\nrule 100/1m name minute\nrule 1000/1h name hour\n" + overrides + "\n}\n}"}, msg, want)
	}
}

// TestLeaseWarning checks the warning about leases that are long for a window.
func TestLeaseWarning(t *testing.T) {
	const msg = "a lease takes more than a tenth of a rule's window"
	for options, want := range map[string]int{
		"rule 20/1s": 1, "rule 1000/9s gcra": 1, "rule 1000/10s gcra": 0, "rule 1000/1m": 0,
		"rule 1000/1m\noverride 10.0.0.1 {\nrule 20/1s\n}": 1,
		"rule 20/1s\nstore local":                          0,
		"rule 20/1s\nin_flight 5":                          0,
		"rule 20/1s\ncount_status 401":                     0, // they have no leases
	} {
		warned(t, setup{app: redisStore(unusedAddr(t), "lease 1s"), site: "rate_limit {\nzone z {\n" + options + "\n}\n}"}, msg, want)
	}
}

// TestMapVariableWarning checks that a variable that map defines is known, wherever map stands.
func TestMapVariableWarning(t *testing.T) {
	const limit = "rate_limit {\nzone z {\nkey {tier}\nrule 10/s\n}\n}\n"
	for site, want := range map[string]int{
		"map {header.X-Plan} {tier} {\ndefault low\n}\n" + limit:                   0,
		"map {header.X-Plan} {a} {tier} {\ndefault x low\n}\n" + limit:             0,
		"handle {\nmap {header.X-Plan} {tier} {\ndefault low\n}\n" + limit + "\n}": 0,
		"map {header.X-Plan} {teer} {\ndefault low\n}\n" + limit:                   1,
		limit: 1,
		"map {header.X-Plan} {limit} {\ndefault 5\n}\nrate_limit {\nzone z {\nrule {limit}/1m else 100\ncost {limit}\n}\n}": 0,
	} {
		warned(t, setup{site: site}, noShorthand, want)
		warned(t, setup{site: site}, neverFilled, 0)
	}
}

// TestDroppedHeaderWarning checks the warning about headers that Caddy drops, and that it drops them.
func TestDroppedHeaderWarning(t *testing.T) {
	const msg = "Caddy drops a header of the zone, because of _ or . in its name: it is always empty"
	for header, want := range map[string]int{"X_Api_Key": 1, "x.api": 1, "X-Api-Key": 0} {
		s := warned(t, setup{site: "rate_limit {\nzone z {\nkey {http.request.header." + header + "}\nkey_missing skip\nrule 1/1h\n}\n}\nrespond ok"}, msg, want)
		q := req{header: map[string]string{header: "a"}}
		if want == 1 {
			s.want(q, 200, 200)
		} else {
			s.want(q, 200, 429)
		}
	}
	for site, want := range map[string]int{
		"rate_limit {header.X.Api.Key} 10r/s":                                                         1,
		"rate_limit {\nzone z {\ncost {header.X_Cost}\nrule 10/s\n}\n}":                               1,
		"rate_limit {\nzone z {\nrule {header.X_Limit}/1m else 5\n}\n}":                               1,
		"route {\nrequest_header X_Api_Key {header.X-Api-Key}\nrate_limit {header.X_Api_Key} 10/s\n}": 0,
		"rate_limit {\nzone z {\nmatch header X_Plan gold\nrule 10/s\n}\n}":                           1,
		"rate_limit {\nzone z {\nexempt header X_Plan gold\nrule 10/s\n}\n}":                          1,
		"@gold header_regexp X.Plan gold\nrate_limit @gold {client_ip} 10/s":                          1,
		"rate_limit {\nzone z {\nexempt expression `{header.X_Plan} == 'gold'`\nrule 10/s\n}\n}":      1,
		"handle_errors {\nrate_limit {\nzone z {\nkey {header.X_Api_Key}\nrule 10/s\n}\n}\n}":         1,
	} {
		warned(t, setup{site: site}, msg, want)
	}
	server := `{"apps": {"http": {"servers": {"srv0": {"listen": [":0"], %s "routes": [{"handle": [{"handler": "rate_limit", "zones": [{"name": "z", "key": ["{header.X_Api_Key}", "{header.Tenant-Id}"], "rules": [{"limit": 1, "window": "1h"}]}]}]}]}}}}}`
	for options, want := range map[string]int{
		"": 1, `"expected_underscore_headers": ["x_api_key"],`: 0, `"expected_underscore_headers": ["x_*"],`: 0, `"expected_underscore_headers": ["y_*"],`: 1,
		`"expected_underscore_headers": ["x_api_key", "tenant_id"],`: 1,
	} {
		s := newSite(t)
		if _, err := s.loadText(fmt.Appendf(nil, server, options), trace.Place{}); err != nil {
			t.Fatal(err)
		}
		if n := warnings(s, msg); n != want {
			t.Errorf("%s: %d warnings, want %d", options, n, want)
		}
	}
}

// TestUnixSocketWarning checks the warning about a unix socket whose clients have no address.
func TestUnixSocketWarning(t *testing.T) {
	const msg = "a server listens on a unix socket without trusted_proxies_unix"
	for i, c := range []struct {
		options, key string
		want         int
	}{
		{"trusted_proxies static private_ranges\ntrusted_proxies_strict", "{client_ip}", 1},
		{"name none", "{client_ip}", 1},
		{"trusted_proxies_unix", "{client_ip}", 0},
		{"trusted_proxies static private_ranges\ntrusted_proxies_unix\ntrusted_proxies_strict", "{client_ip}", 0},
		{"name none", "{header.X-Api-Key}", 0},
	} {
		socket := filepath.Join(t.TempDir(), fmt.Sprint("s", i))
		warned(t, setup{
			global: "servers unix/" + socket + " {\n" + c.options + "\n}", site: "respond ok",
			more: "http://socket.example {\nbind unix/" + socket + "\nrate_limit {\nzone z {\nkey " + c.key + "\nrule 10/s\n}\n}\nrespond ok\n}",
		}, msg, c.want)
	}
}

// TestCompactLinesCountAlone checks that each use of a compact line has its own counts, as in the
// plugin that it comes from, and that other lines of a snippet share theirs.
func TestCompactLinesCountAlone(t *testing.T) {
	for line, want := range map[string]int{"rate_limit {query.id} 1r/m": 200, "rate_limit {query.id} 1r/m 100 503": 200, "rate_limit {query.id} 1/m": 429} {
		denied := 429
		if strings.HasSuffix(line, "503") {
			denied = 503
		}
		t.Run(line, func(t *testing.T) {
			adapted, err := trace.Adapt("(limited) {\n" + line + "\n}\n:8080 {\nhandle /a {\nimport limited\nrespond a\n}\nhandle /b {\nimport limited\nrespond b\n}\n}\n:8081 {\nimport limited\nrespond c\n}\n")
			if err != nil {
				t.Fatal(err)
			}
			s := newSite(t)
			load := func() {
				if _, err := s.loadText(adapted, trace.Place{}); err != nil {
					t.Fatal(err)
				}
			}
			load()
			s.want(req{path: "/a?id=1"}, 200, denied)
			s.want(req{path: "/b?id=1"}, want)
			s.want(req{path: "/?id=1", to: s.second}, want)
			load()
			s.want(req{path: "/a?id=1"}, denied)
			s.want(req{path: "/b?id=1"}, denied)
		})
	}
}

// TestNamesWithOtherCharacters checks shorthands whose names have other characters than Caddy's own
// expansion knows.
func TestNamesWithOtherCharacters(t *testing.T) {
	for key, q := range map[string]req{
		"{query.user[id]}":    {path: "/?user[id]=1"},
		"{query.a.b}":         {path: "/?a.b=1"},
		"{cookie.a.b}":        {header: map[string]string{"Cookie": "a.b=1"}},
		"\"{query.user id}\"": {path: "/?user+id=1"},
	} {
		for _, line := range []string{"rate_limit " + key + " 1r/m", "rate_limit {\nzone z {\nkey " + key + "\nkey_missing skip\nrule 1/1h\n}\n}"} {
			s := serve(t, setup{site: line + "\nrespond ok"})
			s.want(q, 200, 429)
			s.want(req{path: "/other"}, 200, 200)
			for _, msg := range []string{neverFilled, noShorthand} {
				if n := len(s.log.lines(t, msg)); n != 0 {
					t.Errorf("%s: %d warnings %q", line, n, msg)
				}
			}
		}
	}
	warned(t, setup{site: "rate_limit {path.*} 1r/m"}, neverFilled, 1)
	for _, key := range []string{"{header.X Api}", "{header.X-*}", "{header.*}", "{cookie.*}", "{cookie.a b}", "{query.*}", "{header.Transfer-Encoding}", "{header.Trailer}"} {
		const msg = "no request has a header, cookie or parameter of the zone: it is always empty"
		warned(t, setup{site: "rate_limit \"" + key + "\" 1r/m"}, msg, 1)
		warned(t, setup{site: "rate_limit {\nzone z {\nkey \"" + key + "\"\nrule 1/m\n}\n}"}, msg, 1)
		warned(t, setup{site: "rate_limit {\nzone z {\nmatch header Transfer-Encoding chunked\nmatch header *-Id a\nrule 1/m\n}\n}"}, msg, 1)
	}
}

// TestNAT64 checks that IPv4 clients behind NAT64, and of 6to4 and Teredo, count by their IPv4 addresses.
func TestNAT64(t *testing.T) {
	s := serve(t, setup{site: "rate_limit {\nzone z {\nrule 1/1h\noverride 203.0.113.9 unlimited\n}\n}\nrespond ok"})
	s.want(req{ip: "64:ff9b::203.0.113.1"}, 200, 429)
	s.want(req{ip: "203.0.113.1"}, 429)
	s.want(req{ip: "64:ff9b::203.0.113.2"}, 200, 429)
	s.want(req{ip: "64:ff9b::203.0.113.9"}, 200, 200, 200)
	s.want(req{ip: "::ffff:0:203.0.113.1"}, 429)                 // SIIT
	s.want(req{ip: "2002:cb00:7101::1"}, 429)                    // 6to4: each /64 of it
	s.want(req{ip: "2002:cb00:7101:77::1"}, 429)                 // likewise
	s.want(req{ip: "2002:cb00:7103::1"}, 200)                    // another
	s.want(req{ip: "2001:0:4136:e378:8000:63bf:34ff:8efe"}, 429) // Teredo: 203.0.113.1, by one server
	s.want(req{ip: "2001:0:1:2:8000:63bf:34ff:8efe"}, 429)       // and by another
	s.want(req{ip: "2001:0:4136:e378:8000:63bf:34ff:8efb"}, 200) // 203.0.113.4
	s.want(req{ip: "2001:db8::5efe:203.0.113.1"}, 200)           // ISATAP: a site's own /64, as any
	s.want(req{ip: "2001:db8::5efe:203.0.113.2"}, 429)           // likewise
	s.want(req{ip: "64:ff9b:1::203.0.113.1"}, 200, 429)          // of RFC 8215: each address
	s.want(req{ip: "64:ff9b:1::203.0.113.2"}, 200, 429)
	s.want(req{ip: "64:ff9b:2::1"}, 200, 429)
	s.want(req{ip: "64:ff9b:2::2"}, 429)
	for network, want := range map[string]string{
		"64:ff9b::203.0.113.0/120": "203.0.113.0/24", "64:ff9b::/96": "0.0.0.0/0", "64:ff9b::/64": "0.0.0.0/0", "2002:cb00:7100::/40": "203.0.113.0/24",
		"2002:cb00:7101:1::/64": "203.0.113.1/32", "2001::/32": "0.0.0.0/0", "64:ff9b:1::/48": "", "2001:db8::/32": "", "2001:4860::/32": "", "::/0": "",
	} {
		err := newSite(t).load(setup{site: "rate_limit {\nzone z {\nrule 1/1h\noverride " + network + " unlimited\n}\n}"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "want "+want) {
			t.Errorf("%s: %v, want %q", network, err, want)
		}
	}
}
