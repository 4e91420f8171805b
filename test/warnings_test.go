package test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

const (
	mayEvict          = "Redis may evict counts when its memory is full: maxmemory-policy is allkeys-lru"
	trustsAll         = "trusted_proxies covers every address: any client can claim another address and avoid its limits"
	trustsAllStrictly = "trusted_proxies covers every address, with trusted_proxies_strict: no address in X-Forwarded-For is a client's, so that all clients of a proxy count as one"
	notStrict         = "trusted_proxies without trusted_proxies_strict: a client behind a proxy can claim another address and avoid its limits"
	adviceField       = "advice"
)

// TestProxyWarnings checks the warnings about servers whose clients can forge their address, or all
// have that of their proxy.
func TestProxyWarnings(t *testing.T) {
	const strict, halves = "\ntrusted_proxies_strict", "0.0.0.0/1 128.0.0.0/2 192.0.0.0/2"
	for options, want := range map[string]string{
		"name none": "",
		"trusted_proxies static private_ranges" + strict:       "",
		"trusted_proxies static private_ranges":                notStrict,
		"trusted_proxies static 10.0.0.0/8 0.0.0.0/0" + strict: trustsAllStrictly,
		"trusted_proxies static ::/0" + strict:                 trustsAllStrictly,
		"trusted_proxies static " + halves + strict:            trustsAllStrictly,
		"trusted_proxies static ::/0":                          trustsAll,
		"trusted_proxies static 0.0.0.0/0":                     trustsAll,
		"trusted_proxies static " + halves:                     trustsAll,
		"trusted_proxies static 2000::/3":                      trustsAll,
		"trusted_proxies static 1.0.0.0/8 2.0.0.0/7 4.0.0.0/6 8.0.0.0/5 16.0.0.0/4 32.0.0.0/3 64.0.0.0/2 128.0.0.0/2 192.0.0.0/3": trustsAll,
		"trusted_proxies static 0.0.0.0/1":                         notStrict,
		"trusted_proxies static 0.0.0.0/1 128.0.0.0/2 192.0.0.0/4": notStrict,
		"trusted_proxies static 0.0.0.0/1" + strict:                "",
	} {
		s := serve(t, setup{global: "servers :8002 {\n" + options + "\n}", site: fiveAnHour, more: "http://:8002 {\n}"})
		for _, msg := range []string{trustsAll, trustsAllStrictly, notStrict} {
			lines := s.log.lines(t, msg)
			if n := len(lines); msg == want && n != 1 || msg != want && n != 0 {
				t.Errorf("%q: %d lines %q", options, n, msg)
			}
			if len(lines) > 0 && (lines[0]["level"] != "warn" || lines[0][adviceField] == "") {
				t.Errorf("%q: line %v", options, lines[0])
			}
		}
	}
}

// TestTrustedClients checks the line about clients in trusted_proxies, which with trusted_proxies_strict
// have the address of their proxy.
func TestTrustedClients(t *testing.T) {
	const msg = "the address of a client is in trusted_proxies, as that of its proxy"
	zones := 0 // each case has a zone of its own, that counts and warns alone
	for options, want := range map[string]int{
		"trusted_proxies static private_ranges\ntrusted_proxies_strict": 1,
		"trusted_proxies static 127.0.0.0/8\ntrusted_proxies_strict":    0,
		"trusted_proxies static private_ranges":                         0,
	} {
		for header, sent := range map[string]bool{"10.0.0.7": true, "192.168.1.1, 10.0.0.7": true, "203.0.113.9": false, "127.0.0.1": false, "": false} {
			s := serve(t, setup{global: "servers :8002 {\n" + options + "\n}", site: "respond ok", more: fmt.Sprintf("http://:8002 {\nrate_limit {\nzone trusted%d {\nrule 1/1h\n}\n}\nrespond ok\n}", zones)})
			zones++
			q := req{to: s.second, header: map[string]string{"X-Forwarded-For": header}}
			if header == "" {
				q.header = nil
			}
			s.want(q, 200, 429)
			if n := warnings(s, msg); n != want && sent || n != 0 && !sent {
				t.Errorf("%q with %q: %d lines, want %d", options, header, n, want)
			}
		}
	}
}

// TestRedisWarnings checks that an eviction policy is warned about once, also across a
// reload, with advice.
func TestRedisWarnings(t *testing.T) {
	srv := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	s, _ := failing(t, srv.Addr, fiveAnHour)
	if line := s.log.wait(t, mayEvict); line["level"] != "warn" || !strings.Contains(line[adviceField].(string), "noeviction") {
		t.Errorf("line %v", line)
	}
	s.reload(s.config)
	s.want(req{}, 200)
	if n := len(s.log.lines(t, mayEvict)); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
}

// TestRedisWarningsNeedNoMorePermissions checks that with only the permissions listed
// in docs/redis.md, Redis denies no command, and a check that lacks its permission is
// skipped silently.
func TestRedisWarningsNeedNoMorePermissions(t *testing.T) {
	ctx := context.Background()
	srv := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	admin := srv.Client()
	setUser(t, srv, documentedRights(t))
	s, _ := failing(t, srv.Addr, fiveAnHour, "username diana", "password {env.DIANA_TEST_SECRET}")
	s.want(req{}, 200, 200)
	until(t, "two loaded scripts", func() bool {
		return strings.Contains(admin.Info(ctx, "memory").Val(), "number_of_cached_scripts:2\r")
	})
	if n := len(s.log.lines(t, mayEvict)); n != 0 {
		t.Errorf("%d warnings from checks without permission", n)
	}
	if log := admin.Do(ctx, "acl", "log").Val().([]any); len(log) != 0 {
		t.Errorf("Redis denied a command: %v", log)
	}
}

// TestMissingRedisPermissionIsNamed revokes a permission that the script needs, and one that
// a reset needs.
func TestMissingRedisPermissionIsNamed(t *testing.T) {
	for revoked, want := range map[string]string{"-setrange": "+setrange", "-publish": "+publish", "resetchannels": "+publish"} {
		t.Run(revoked, func(t *testing.T) {
			srv := redistest.Start(t)
			setUser(t, srv, documentedRights(t)+" "+revoked)
			s, _ := failing(t, srv.Addr, fiveAnHour, "username diana", "password {env.DIANA_TEST_SECRET}")
			line := s.log.wait(t, "the Redis user lacks permissions: "+want)
			if line["level"] != "warn" || !strings.Contains(line[adviceField].(string), "docs/redis.md") {
				t.Errorf("line %v", line)
			}
			s.want(req{}, 200)
		})
	}
}

// TestResetThatIsNotAnnounced resets a key without the right to announce it: what is said
// names the right, and not an outage.
func TestResetThatIsNotAnnounced(t *testing.T) {
	srv := redistest.Start(t)
	setUser(t, srv, documentedRights(t)+" -publish")
	s, _ := failing(t, srv.Addr, fiveAnHour, "username diana", "password {env.DIANA_TEST_SECRET}")
	s.want(req{}, 200, 200, 200, 200, 200, 200, 429)
	k := s.key("DELETE", "z", "127.0.0.1")
	if want := "the key was reset in the store, but other instances were not told: NOPERM"; k.Reset != "in the store" || !strings.HasPrefix(k.Error, want) {
		t.Errorf("reset %q: %q, want %q", k.Reset, k.Error, want)
	}
	line := s.log.wait(t, "a key was reset in the store, but other instances were not told")
	if !strings.Contains(line[adviceField].(string), "permission") {
		t.Errorf("line %v", line)
	}
	if n := len(s.log.lines(t, "a key was reset in this instance only: reset it again when the store is back")); n != 0 {
		t.Errorf("%d lines say that the store is unavailable", n)
	}
	s.want(req{}, 200)
}

// documentedRights returns the permissions of the Redis user in docs/redis.md.
func documentedRights(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(textOf(t, "docs/redis.md"), "user diana on >change-me ")
	if !found {
		t.Fatal("docs/redis.md has no permissions")
	}
	rights, _, _ := strings.Cut(rest, "\n")
	return rights
}

// setUser sets the permissions of the user diana.
func setUser(t *testing.T, srv *redistest.Server, rights string) {
	t.Helper()
	t.Setenv("DIANA_TEST_SECRET", "canary")
	args := []any{"acl", "setuser", "diana", "on", ">canary"}
	for _, r := range strings.Fields(rights) {
		args = append(args, r)
	}
	if err := srv.Client().Do(context.Background(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestReadBodyWarning checks the warning about servers that read bodies without a timeout.
func TestReadBodyWarning(t *testing.T) {
	const msg = "a zone reads request bodies, and the server has no read_body timeout: a client that never ends its body holds the request for 10s"
	for site, want := range map[string]int{
		byPhone("deny", "1/1h", ""):                               1,
		"handle /x/* {\n" + byPhone("deny", "1/1h", "") + "\n}":   1,
		"handle_errors {\n" + byPhone("deny", "1/1h", "") + "\n}": 1,
		"invoke limited": 1,
		"rate_limit {\nzone z {\nprevent_duplicates 5s body\n}\n}":       1,
		"rate_limit {\nzone z {\nprevent_duplicates 5s\nrule 1/1h\n}\n}": 0,
		"rate_limit {\nzone z {\ncost {body.n}\nrule 1/1h\n}\n}":         1,
		"rate_limit {header.X-Account} 1/1h":                             0,
	} {
		for _, timeout := range []bool{false, true} {
			options := "name second"
			if timeout {
				options = "timeouts {\nread_body 10s\n}"
			}
			s := serve(t, setup{global: "servers :8002 {\n" + options + "\n}", site: "respond ok", more: "http://:8002 {\n" + site + "\n}\n&(limited) {\n" + byPhone("deny", "1/1h", "") + "\n}"})
			n := want
			if timeout {
				n = 0
			}
			if lines := s.log.lines(t, msg); len(lines) != n || n > 0 && (lines[0]["level"] != "warn" || lines[0][adviceField] == "") {
				t.Errorf("%q, timeout %v: %v, want %d warnings", site, timeout, lines, n)
			}
		}
	}
}

// TestEncodeWarning checks the warning about encode behind a zone that reads responses, and what
// it says: whether a response is compressed.
func TestEncodeWarning(t *testing.T) {
	const msg = "encode runs after a zone that reads responses: they are not compressed"
	zone := func(options string) string { return "rate_limit {\nzone z {\n" + options + "\nrule 1000/1h\n}\n}\n" }
	const encode = "encode {\nminimum_length 1\n}\n"
	for site, want := range map[string]int{
		zone("tokens") + encode:                                           1,
		zone("settle {response.body.cost}") + encode:                      1,
		zone("settle {http.response.header.X-Cost}") + encode:             0,
		zone("settle bytes") + encode:                                     0,
		zone(""):                                                          0,
		"route {\n" + encode + zone("tokens") + usageAnswer + "}":         0,
		"route {\n" + zone("tokens") + encode + usageAnswer + "}":         1,
		"handle /a {\n" + zone("tokens") + "}\nhandle {\n" + encode + "}": 0,
	} {
		s := serve(t, setup{site: site + "\n" + usageAnswer})
		if n := len(s.log.lines(t, msg)); n != want {
			t.Errorf("%q: %d warnings, want %d", site, n, want)
		}
		a := s.send(req{method: "POST", body: "{}", header: map[string]string{"Accept-Encoding": "gzip"}})
		if encoded := a.get("Content-Encoding") == "gzip"; encoded != (want == 0 && strings.Contains(site, "encode")) {
			t.Errorf("%q: Content-Encoding %q", site, a.get("Content-Encoding"))
		}
	}
}

const usageAnswer = "header Content-Type application/json\nrespond `{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1},\"cost\":1}`\n"

// TestDuplicatesOfSafeMethods warns of prevent_duplicates where the matcher of the directive lets only
// requests pass that it ignores.
func TestDuplicatesOfSafeMethods(t *testing.T) {
	const warning = "the matcher of rate_limit lets only GET, HEAD, OPTIONS and CONNECT pass, which prevent_duplicates ignores"
	for matcher, n := range map[string]int{
		"method GET": 1, "method GET HEAD OPTIONS": 1, "method CONNECT": 1, "method POST": 0, "method GET PUT": 0, "path /x": 0,
		"{\nmethod GET\npath /x\n}": 1, "{\npath /x\nmethod DELETE\n}": 0, "not method GET": 0,
	} {
		s := serve(t, setup{site: "@m " + matcher + "\nrate_limit @m {\nzone z {\nprevent_duplicates 1m\n}\n}\nrespond ok"})
		if got := len(s.log.lines(t, warning)); got != n {
			t.Errorf("%s: %d warnings, want %d", matcher, got, n)
		}
	}
}

// TestNoLimitWarnings checks the warnings about zones that limit nothing, or nobody. Options that
// look alike and limit something earn none.
func TestNoLimitWarnings(t *testing.T) {
	const (
		none       = ""
		noRequest  = "the zone's matchers match no request"
		harmless   = "the zone matches only GET, HEAD, OPTIONS and CONNECT, which prevent_duplicates ignores"
		free       = "the zone matches only GET, HEAD, OPTIONS and CONNECT, which cost no tokens"
		everything = "exempt matches every request: the zone limits nothing"
		unlimited  = "an override makes every key unlimited: the zone limits only the keys of other overrides"
		noRule     = "cost, settle, tokens and count_status charge rules, and the zone has none"
		chosen     = "settle uses a value of the request, which clients can set"
		unset      = "the environment variable of a placeholder of the zone is not set: the placeholder is empty"
	)
	t.Setenv("DIANA_TEST_SET", "x")
	for options, want := range map[string]string{
		"match path api\nrule 5/1h":                                            noRequest,
		"match path api /v1/*\nrule 5/1h":                                      none,
		"match method GET HEAD\nprevent_duplicates 1m":                         harmless,
		"match method GET POST\nprevent_duplicates 1m":                         none,
		"match method GET HEAD\ntokens\nrule 5/1h":                             free,
		"match method GET POST\ntokens\nrule 5/1h":                             none,
		"exempt 0.0.0.0/0 ::/0\nrule 5/1h":                                     everything,
		"exempt 0.0.0.0/0\nexempt ::/0\nrule 5/1h":                             everything,
		"exempt 0.0.0.0/0\nrule 5/1h":                                          none,
		"exempt path *\nrule 5/1h":                                             everything,
		"exempt path /health\nrule 5/1h":                                       none,
		"exempt {\npath *\nmethod GET\n}\nrule 5/1h":                           none,
		"rule 5/1h\noverride * unlimited":                                      unlimited,
		"rule 5/1h\noverride 10.0.0.0/8 unlimited":                             none,
		"in_flight 5\ncost 2":                                                  noRule,
		"in_flight 5\ncount_status 401":                                        noRule,
		"in_flight 5\ncost 2\noverride 10.0.0.1 {\nrule 5/1h\n}":               none,
		"rule 5/1h\nsettle {header.X-Cost}":                                    chosen,
		"rule 5/1h\nsettle {http.response.header.X-Cost}":                      none,
		"key {client_ip} {env.DIANA_TEST_UNSET}\nkey_missing share\nrule 5/1h": unset,
		"key {client_ip} {env.DIANA_TEST_SET}\nrule 5/1h":                      none,
	} {
		s := serve(t, setup{site: "rate_limit {\nzone z {\n" + options + "\n}\n}\nrespond ok"})
		for _, msg := range []string{noRequest, harmless, free, everything, unlimited, noRule, chosen, unset} {
			if n := len(s.log.lines(t, msg)); n != 0 && msg != want || n != 1 && msg == want {
				t.Errorf("%q: %d lines %q", options, n, msg)
			}
		}
	}
}
