package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// validate validates a JSON configuration as caddy validate does.
func validate(t *testing.T, app, handlers string) error {
	t.Helper()
	text := fmt.Sprintf(`{
		"admin": {"disabled": true}, "storage": {"module": "file_system", "root": %q},
		"logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
		"apps": {
			"rate_limit": {%s},
			"http": {"servers": {"srv0": {"listen": ["127.0.0.1:0"], "automatic_https": {"disable": true}, "routes": [{"handle": [%s]}]}}}
		}
	}`, t.TempDir(), app, handlers)
	var cfg caddy.Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return caddy.Validate(&cfg)
}

func handlerOf(zones ...string) string {
	return `{"handler": "rate_limit", "zones": [` + strings.Join(zones, ", ") + `]}`
}

const (
	zoneA   = `{"name": "a", "rules": [{"limit": 1, "window": "1h"}]}`
	leased  = `"stores": [{"addresses": ["127.0.0.1:1"], "lease": "50ms"}]`
	oneRule = `"rules": [{"limit": 1, "window": "1h"}]`
)

// TestFullJSON checks that a handler with every option loads.
func TestFullJSON(t *testing.T) {
	if err := validate(t, `
		"stores": [{"store": "redis", "name": "r", "addresses": ["127.0.0.1:1"], "db": 1, "key_prefix": "p", "key_secret": "s", "timeout": "30ms",
			"dial_timeout": "1s", "pool_size": 3, "on_failure": "deny", "fallback_share": 0.25, "lease": "20ms"},
			{"name": "u", "addresses": ["unix//run/redis.sock"], "fallback_share": "auto", "timeout": 30000000}],
		"max_keys": 10, "headers": "all"`,
		handlerOf(`{
			"name": "z", "match": [{"path": ["/api/*"]}], "exempt": [{"client_ip": {"ranges": ["10.0.0.0/8"]}}],
			"key": ["{client_ip}", "{path}", "{http.request.header.X}", "const"], "key_missing": "share", "ipv4_prefix": 0, "ipv6_prefix": 128,
			"rules": [{"limit": 100, "window": "1m", "name": "r"}, {"limit": 10, "window": "1d", "algorithm": {"name": "gcra", "burst": 20}}],
			"algorithm": "fixed_window", "in_flight": 3, "prevent_duplicates": {"window": "1s", "body": true}, "cost": "{header.X-Cost}",
			"settle": "{http.response.header.X-Tokens}", "count_status": [401, "4xx", "5XX"], "max_wait": "1s", "shadow": true,
			"respond": {"status": 420, "body": "no", "headers": {"x-a": ["b"]}},
			"overrides": [{"key": ["10.0.0.0/8", "*", "a", "b"], "rules": [{"limit": 0, "window": "1s"}]}, {"key": ["1.1.1.1", "a", "b", "c"], "unlimited": true}],
			"store": "r", "max_keys": 5}`, `{"name": "y", "cost": 3, "store": "local", "rules": [{"limit": 3, "window": 1000000000}]}`)); err != nil {
		t.Error(err)
	}
	wantPools(t, 0, 0)
}

// TestBadJSON checks that the error for each invalid option names it.
func TestBadJSON(t *testing.T) {
	zone := func(fields string) string { return handlerOf(`{"name": "a", ` + fields + `}`) }
	for _, c := range []struct{ app, handlers, want string }{
		{"", handlerOf(`{"name": "a b", ` + oneRule + `}`), `name "a b": want 1 to 64 of`},
		{"", handlerOf(`{` + oneRule + `}`), `name "": want 1 to 64 of`},
		{"", handlerOf(`{"name": "exceeded", ` + oneRule + `}`), `name "exceeded" is taken`},
		{"", handlerOf(zoneA, zoneA), "zone a is given twice in one handler"},
		{"", handlerOf(zoneA) + ", " + handlerOf(`{"name": "a", "rules": [{"limit": 2, "window": "1h"}]}`), "zone a is defined twice"},
		{`"stores": [{"addresses": ["127.0.0.1:1"], "lease": "100ms"}]`, handlerOf(zoneA) + ", " + handlerOf(strings.TrimSuffix(zoneA, "}")+`, "settle": "{http.response.header.X-Cost}"}`), "zone a is defined twice"},
		{"", zone(`"unknown": 1`), "unknown"},
		{"", zone(oneRule + `, "RULES": [{"limit": 10000, "window": "1h"}]`), `/zones/0: fields "RULES" and "rules": want it once`},
		{"", handlerOf(zoneA)[:len(handlerOf(zoneA))-1] + `, "Zones": []}`, `fields "Zones" and "zones": want it once`},
		{`"max_keys": 1, "Max_keys": 2`, "", `fields "Max_keys" and "max_keys": want it once`},
		{`"stores": [{"addresses": ["a:1"], "Addresses": ["b:1"]}]`, "", `fields "Addresses" and "addresses": want it once`},
		{"", zone(`"rules": []`), "no rule: want at least one"},
		{"", zone(`"rules": [{"limit": 0, "window": "1h"}]`), "limit 0: want at least 1"},
		{"", zone(`"rules": [{"limit": -1, "window": "1h"}]`), "limit -1: want at least 1"},
		{"", zone(`"rules": [{"window": "1h"}]`), "limit 0: want at least 1"},
		{"", zone(`"rules": [{"limit": 1}]`), "window 0s: want at least 1us"},
		{"", zone(`"rules": [{"limit": 1, "window": -1}]`), "window -1ns: want at least 1us"},
		{"", zone(`"rules": [{"limit": 1, "window": 1500}]`), "in whole microseconds"},
		{"", zone(`"rules": [{"limit": 9007199254740992, "window": "1h"}]`), "limit 9007199254740992: want at most"},
		{"", zone(`"rules": [{"limit": 9007199254740992, "window": "1h", "algorithm": {"name": "gcra"}}]`), "9007199254740992"},
		{"", zone(`"rules": [{"limit": 1, "window": "1h", "algorithm": {"name": "nope"}}]`), `algorithm "nope": want calendar, fixed_window`},
		{"", zone(`"rules": [{"limit": 1, "window": "1h", "algorithm": {"name": "gcra", "buckets": 3}}]`), `unknown field "buckets"`},
		{"", zone(`"rules": [{"limit": 1, "window": "1h", "algorithm": {"name": "sliding_log", "burst": 3}}]`), `unknown field "burst": want none`},
		{"", zone(`"rules": [{"limit": 1, "window": "1h", "algorithm": {"name": "gcra", "burst": -1}}]`), "burst -1: want at least 1"},
		{"", zone(`"rules": [{"limit": 1, "window": "1h", "algorithm": "gcra"}]`), "want an object such as"},
		{"", zone(`"rules": [{"limit": 1, "window": "1h", "algorithm": {"name": "token_bucket", "step": "7m"}}]`), "want a step that divides the window"},
		{"", zone(`"rules": [{"limit": 1, "window": "1h", "name": "x"}, {"limit": 2, "window": "2h", "name": "x"}]`), `rule "x" is given twice`},
		{"", zone(`"rules": [{"limit": 1, "window": "1h"}, {"limit": 2, "window": "2h", "name": "1"}]`), `rule "1" is given twice`},
		{"", zone(`"rules": [{"limit": 1, "window": "1h", "name": "a b"}]`), `rule name "a b"`},
		{"", zone(`"algorithm": "nope", ` + oneRule), `algorithm "nope"`},
		{"", zone(oneRule + `, "overrides": [{"key": ["192.0.2.1"], "rules": [{"limit": 0, "window": "1h", "algorithm": {"name": "nope"}}]}]`), `algorithm "nope": want calendar, fixed_window`},
		{"", zone(`"cost": 2, ` + oneRule), "cost 2 is above the limit 1"},
		{"", zone(`"cost": 0, ` + oneRule), `cost "0": want a number of at least 1`},
		{"", zone(`"cost": 1.5, ` + oneRule), `cost "1.5"`},
		{"", zone(`"cost": "{}", ` + oneRule), "want the name of a placeholder between { and }"},
		{"", zone(`"cost": [1], ` + oneRule), "want a number or a string"},
		{"", zone(`"settle": "5", ` + oneRule), `settle "5": want placeholders`},
		{"", zone(`"count_status": ["6xx"], ` + oneRule), `count_status "6xx"`},
		{"", zone(`"count_status": [99], ` + oneRule), `count_status "99"`},
		{"", zone(`"count_status": [401], "rules": [{"limit": 5, "window": "1s", "algorithm": {"name": "leaky_bucket"}}]`), "want nodelay"},
		{"", zone(`"in_flight": -1, ` + oneRule), "in_flight -1: want 1 to 1000000000"},
		{"", zone(`"max_wait": -1, ` + oneRule), "max_wait -1ns: want a positive duration"},
		{"", zone(`"rules": [{"limit": 5, "window": "1s", "block": [null]}]`), "block [null]: want at least 1us"},
		{"", zone(`"max_wait": "2h", ` + oneRule), "max_wait 2h0m0s: want at most 1h0m0s"},
		{"", zone(`"max_keys": -1, ` + oneRule), "max_keys -1: want 1 to 1073741824"},
		{"", zone(`"max_keys": 1073741825, ` + oneRule), "zone a: max_keys 1073741825: want 1 to 1073741824"},
		{"", zone(`"prevent_duplicates": {"window": -1}, ` + oneRule), "prevent_duplicates -1ns: want a positive duration"},
		{"", zone(`"prevent_duplicates": {"window": 1}, ` + oneRule), "prevent_duplicates 1ns: want at least 1us"},
		{"", zone(`"settle": "{response.body.a[0].b}", ` + oneRule), "{response.body.a[0].b}: want {http.response.body.a.0.b}, with a dot"},
		{"", zone(`"key": [""], ` + oneRule), "key: an empty part"},
		{"", zone(`"key": ["{x"], ` + oneRule), "want a } for every {"},
		{"", zone(`"key": ["client_ip}"], ` + oneRule), `"client_ip}": want a { for every }`},
		{"", zone(`"count_status": [103], ` + oneRule), `count_status "103": want the status of a final response`},
		{"", zone(`"count_status": ["1xx"], ` + oneRule), `count_status "1xx": want the status of a final response`},
		{"", zone(`"key": ["a{}"], ` + oneRule), "want the name of a placeholder between { and }"},
		{"", zone(`"key_missing": "nope", ` + oneRule), `key_missing "nope": want client_ip, share, skip or deny`},
		{"", zone(`"ipv4_prefix": 33, ` + oneRule), "ipv4_prefix 33: want 0 to 32"},
		{"", zone(`"ipv6_prefix": -1, ` + oneRule), "ipv6_prefix -1: want 0 to 128"},
		{"", zone(`"respond": {"status": 302}, ` + oneRule), "respond 302: want 400 to 599, or 200"},
		{"", zone(`"respond": {"problem": true, "body": "x"}, ` + oneRule), "want a body or problem, not both"},
		{"", zone(`"respond": {"headers": {"a b": ["c"]}}, ` + oneRule), `header "a b"`},
		{"", zone(`"respond": {"body": "{\"a\": \"{http.response.body.x}\"}"}, ` + oneRule), "respond: {http.response.body.x}: no placeholder of a response"},
		{"", zone(`"respond": {"headers": {"X-A": ["b", "{response.body.x}"]}}, ` + oneRule), "respond: {response.body.x}: no placeholder of a response"},
		{"", zone(`"overrides": [{"key": ["a", "b"], "unlimited": true}], ` + oneRule), "2 parts: want 1"},
		{"", zone(`"overrides": [{"key": ["10.0.0.1"]}], ` + oneRule), "want either unlimited or rules"},
		{"", zone(`"overrides": [{"key": ["10.0.0.1"], "unlimited": true, ` + oneRule + `}], ` + oneRule), "want either unlimited or rules"},
		{"", zone(`"overrides": [{"key": [""], "unlimited": true}], ` + oneRule), "an empty part"},
		{"", zone(`"overrides": [{"key": ["10.0.0.1"], "unlimited": true}, {"key": ["10.0.0.1"], "unlimited": true}], ` + oneRule), "is given twice"},
		{"", zone(`"overrides": [{"key": ["::ffff:10.0.0.0/104"], "unlimited": true}], ` + oneRule), "want the IPv4 form"},
		{"", zone(`"key": ["{header.X-Key}"], "overrides": [{"key": ["{env.PARTNER}"], "unlimited": true}], ` + oneRule), `override ["{env.PARTNER}"]: {env.*} and {file.*} are not replaced in a key`},
		{"", zone(`"overrides": [{"keys": ["10.0.0.1", "{file./run/partner}"], "unlimited": true}], ` + oneRule), "in a Caddyfile {$NAME}"},
		{"", zone(`"match": [{"nope": {}}], ` + oneRule), "nope"},
		{"", zone(`"exempt": [{"client_ip": {"ranges": ["x"]}}], ` + oneRule), "zone a: /exempt: exempt"},
		{"", zone(`"store": "nope", ` + oneRule), `store "nope": want local, or the name of a store`},
		{"", `{"handler": "rate_limit", "zones": [` + zoneA + `], "headers": "loud"}`, `headers "loud": want draft, legacy, all, openai or off`},
		{"", `{"handler": "rate_limit", "zones": [` + zoneA + `], "jitter": 1.5}`, "jitter 1.5: want 0 to 1"},
		{`"headers": "loud"`, "", `headers "loud"`},
		{`"max_keys": -1`, "", "max_keys -1: want 1 to 1073741824"},
		{`"max_keys": 1073741825`, "", "max_keys 1073741825: want 1 to 1073741824"},
		{`"stores": [{"store": "nats", "addresses": ["a:1"]}]`, "", `store "nats": want redis`},
		{`"stores": [{}]`, "", "no address: want such as localhost:6379"},
		{`"stores": [{"addresses": ["a:1", "b:1"]}]`, "", "2 addresses: want one"},
		{`"stores": [{"addresses": ["redis://a:1/2"], "cluster": true}]`, "", "address 1: db 2: want 0 to 2147483647, and in a Redis Cluster only 0"},
		{`"stores": [{"addresses": ["redis://a:1?db=-1"]}]`, "", "address 1: db -1: want 0 to 2147483647"},
		{`"stores": [{"addresses": ["redis://a:1/2147483648"]}]`, "", "address 1: db 2147483648: want 0 to 2147483647"},
		{`"stores": [{"addresses": ["a:1"], "db": 2147483648}]`, "", "db 2147483648: want 0 to 2147483647"},
		{`"stores": [{"addresses": ["unix/"]}]`, "", `address "unix/": want host:port, a redis:// or rediss:// URL, or unix//path`},
		{`"stores": [{"addresses": ["unix//"]}]`, "", `address "unix//": want host:port, a redis:// or rediss:// URL, or unix//path`},
		{`"stores": [{"addresses": ["a:1"], "name": "local"}]`, "", `name "local" is this process`},
		{`"stores": [{"addresses": ["a:1"], "name": "x y"}]`, "", `name "x y"`},
		{`"stores": [{"addresses": ["a:1"]}, {"addresses": ["b:1"]}]`, "", "the name is given twice"},
		{`"stores": [{"addresses": ["a:1"], "on_failure": "nope"}]`, "", `on_failure "nope": want local, allow or deny`},
		{`"stores": [{"addresses": ["a:1"], "fallback_share": 0}]`, "", `fallback_share "0": want auto, or a fraction`},
		{`"stores": [{"addresses": ["a:1"], "fallback_share": 1.5}]`, "", `fallback_share "1.5"`},
		{`"stores": [{"addresses": ["a:1"], "fallback_share": 0.0000001}]`, "", `fallback_share "0.0000001": want auto, or a fraction from 0.000001 to 1`},
		{`"stores": [{"addresses": ["a:1"], "lease": -1}]`, "", "lease -1ns: want 1ms to 10s"},
		{`"stores": [{"addresses": ["a:1"], "lease": "900us"}]`, "", "lease 900µs: want 1ms to 10s"},
		{leased, zone(`"rules": [{"limit": 1000, "window": "1s", "algorithm": {"name": "gcra", "burst": 50}}]`), "lease 50ms: it keeps back 50 of the burst 50, which leaves less than the cost 1 of a request; want a shorter lease"},
		{leased, zone(`"rules": [{"limit": 10, "window": "1s"}, {"limit": 1000, "window": "1s", "algorithm": {"name": "gcra", "burst": 55}}], "cost": 6`), "rule 2: lease 50ms: it keeps back 50 of the burst 55, which leaves less than the cost 6"},
		{leased, zone(`"rules": [{"limit": 1000, "window": "100ms"}]`), "lease 50ms: it is longer than a part of the window, 10ms"},
		{leased, zone(`"overrides": [{"key": ["10.0.0.1"], "rules": [{"limit": 9, "window": "1s", "algorithm": {"name": "token_bucket", "burst": 1}}]}], ` + oneRule), "zone a: /overrides/0/rules/0: rule 1: lease 50ms: it keeps back 1 of the burst 1"},
		{`"stores": [{"addresses": ["a:1"], "timeout": -1}]`, "", "timeout -1ns: want 1ms to 1m0s"},
		{`"stores": [{"addresses": ["a:1"], "timeout": 1}]`, "", "timeout 1ns: want 1ms to 1m0s"},
		{`"stores": [{"addresses": ["a:1"], "dial_timeout": 3600000000000}]`, "", "dial_timeout 1h0m0s: want 1ms to 1m0s"},
		{`"stores": [{"addresses": ["a:1"], "max_age": 1000000000}]`, "", "max_age 1s: want 10s to 24h0m0s"},
		{`"stores": [{"addresses": ["a:1"], "pool_size": -1}]`, "", "pool_size -1: want 1 to 100000"},
		{`"stores": [{"addresses": ["a:1"], "pool_size": 100001}]`, "", "pool_size 100001: want 1 to 100000"},
		{`"stores": [{"addresses": ["a:1"], "db": -1}]`, "", "db -1"},
		{`"stores": [{"addresses": ["a:1"], "key_prefix": "a{b}"}]`, "", "key_prefix"},
		{`"stores": [{"addresses": ["a:1"], "password": "{env.DIANA_NO_SUCH}"}]`, "", "password {env.DIANA_NO_SUCH}: the placeholder resolves to nothing"},
		{`"stores": [{"addresses": ["a:1"], "tls": {"cert": "x"}}]`, "", "want both cert and key"},
		{`"stores": [{"addresses": ["a:1"], "tls": {"ca": "/no/such/file"}}]`, "", "tls: ca"},
		{`"stores": [{"addresses": ["a:1"], "sentinel": {}}]`, "", "want the name of the master"},
		{`"stores": [{"addresses": ["redis://user:canary@host:port"]}]`, "", "address 1"},
	} {
		if c.handlers == "" {
			c.handlers = handlerOf(zoneA)
		}
		err := validate(t, c.app, c.handlers)
		switch {
		case err == nil:
			t.Errorf("%s %s: loads, want %q", c.app, c.handlers, c.want)
		case !strings.Contains(err.Error(), c.want):
			t.Errorf("%s %s: %v, want %q", c.app, c.handlers, err, c.want)
		case strings.Contains(err.Error(), "canary"):
			t.Errorf("%s: the error shows the password: %v", c.app, err)
		}
	}
	wantPools(t, 0, 0)
}

// TestConfigurationWarnings checks the warnings about options that are valid but
// seldom intended.
func TestConfigurationWarnings(t *testing.T) {
	for _, c := range []struct{ app, site, want string }{
		{redisStore(unusedAddr(t)), "rate_limit 10/s", "the zone has no name"},
		{redisStore(unusedAddr(t), "password plain"), "", "a password is written in the configuration"},
		{redisStore(unusedAddr(t), "password {env.HOME"), "", "a password is written in the configuration"},
		{"", "rate_limit {\nzone z {\nkey {http.auth.user.id}\nrule 1/1s\n}\n}", "runs after rate_limit by default"},
		{"", "rate_limit {\nzone z {\nkey a{client_ip}\nrule 1/1s\n}\n}", "combines the client's address with text"},
		{"", "rate_limit {\nzone z {\nkey {query.a}\nkey_repeated join\nrule 1/1s\noverride x unlimited\n}\n}", "key_repeated join in a zone with overrides"},
		{"", "rate_limit {\nzone z {\nrule 5/1s sliding_window\n}\n}", "a sliding_window with a limit below its buckets"},
		{"", "rate_limit {\nzone z {\nrule 5/day calendar\n}\n}", "a calendar in a zone with store local"},
	} {
		s := serve(t, setup{app: c.app, site: c.site})
		if n := strings.Count(s.log.text(), c.want); n != 1 {
			t.Errorf("%s %s: %d warnings of %q, want 1", c.app, c.site, n, c.want)
		}
	}
	s := serve(t, setup{app: redisStore(unusedAddr(t)), site: "rate_limit {\nzone z {\nrule 5/1s\nrule 500/1s sliding_window\nrule 9/day calendar\n}\n}"})
	for line := range strings.Lines(s.log.text()) {
		if strings.Contains(line, `"level":"warn"`) && strings.Contains(line, "rate_limit") && !strings.Contains(line, "instance") {
			t.Errorf("unwanted warning: %s", line)
		}
	}
}
