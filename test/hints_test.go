package test

import (
	"strings"
	"testing"
)

// hinted checks that the error of each Caddyfile, or of the options of a zone, contains a text; empty: that
// there is no error.
func hinted(t *testing.T, cases map[string]string) {
	t.Helper()
	for in, want := range cases {
		if !strings.HasPrefix(in, ":") && !strings.HasPrefix(in, "{") {
			in = ":8080 {\nrate_limit {\nzone api {\n" + in + "\n}\n}\n}\n"
		}
		_, err := adapt(t, in)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %q", in, err, want)
		}
	}
}

// TestEnvironmentInErrors checks that an error about {env.X} in place of a value says how a Caddyfile
// reads the environment.
func TestEnvironmentInErrors(t *testing.T) {
	const hint = "{env.N} is replaced in each request: in the configuration, write {$N}"
	cases := map[string]string{
		":8080 {\nrate_limit {client_ip} {env.N}/s\n}\n": hint, ":8080 {\nrate_limit {client_ip} {env.N}\n}\n": hint, ":8080 {\nrate_limit {client_ip} 5/{env.N}\n}\n": hint,
		"rule 5/s\nrespond {env.N}": "", "rule 5/s\ncost {env.N}": "", "rule {env.N}/s else 5": "", "key {env.N}\nrule 5/s": "", "rule 5/s\nin_flight x": `in_flight "x": want a whole number`,
	}
	for _, rule := range []string{
		"{env.N}/1m", "10/{env.N}", "{env.N}", "{env.N}r/s", "10/s gcra burst {env.N}", "10/1m sliding_window buckets {env.N}", "10/s block {env.N}", "10/s block 5m {env.N}",
		"10/s notify {env.N}", "10/s notify 50 {env.N}", "10/s name {env.N}", "{header.X}/1m else {env.N}", "10/s {env.N}", "10/s algorithm {env.N}",
	} {
		cases["rule "+rule] = hint
		cases["key {header.X}\nrule 1/s\noverride a {\nrule "+rule+"\n}"] = hint
	}
	for _, option := range []string{
		"in_flight", "max_wait", "max_waiting", "max_keys", "ipv4_prefix", "ipv6_prefix", "linger", "prevent_duplicates", "max_body", "count_status", "store", "key_missing",
		"key_repeated", "algorithm", "unit", "tokens", "events",
	} {
		cases["rule 10/s\n"+option+" {env.N}"] = hint
	}
	for _, option := range []string{"max_keys {env.N}", "headers {env.N}", "rules redis x {\ninterval {env.N}\n}", "store redis x {\ndb {env.N}\n}", "store redis x {\ntimeout {env.N}\n}", "store redis x {\nlease {env.N}\n}"} {
		cases["{\nrate_limit {\n"+option+"\n}\n}\n:8080\n"] = hint
	}
	for _, option := range []string{"headers", "jitter", "sweep_interval"} {
		cases[":8080 {\nrate_limit {\n"+option+" {env.N}\n}\n}\n"] = hint
	}
	hinted(t, cases)
}

// TestOptionsOnTheLineOfOthers checks that an option, or a rate, is no constant of a key, nor a word of a
// rule, unless it is in quotes.
func TestOptionsOnTheLineOfOthers(t *testing.T) {
	const own = "want it on a line of its own"
	cases := map[string]string{
		"key {client_ip} 10/s\nrule 10/s":                                  `key "10/s": a rate: want rule 10/s on a line of its own`,
		"rule 1/s\nsettle 5\ngroup_by {host} shadow":                       `group_by "shadow": an option of a zone: ` + own,
		":8080 {\nrate_limit {client_ip} ipv6_prefix 48 10/s\n}\n":         `"ipv6_prefix": an option of a zone: ` + own,
		":8080 {\nrate_limit {client_ip} 10/s ipv6_prefix 48\n}\n":         `"ipv6_prefix": an option of a zone: ` + own,
		":8080 {\nrate_limit {client_ip} 10/s headers off\n}\n":            `"headers": an option of a site's rate_limit: ` + own,
		":8080 {\nrate_limit key {client_ip} 10/s\n}\n":                    `"key": an option of a zone: ` + own,
		":8080 {\nrate_limit {client_ip} 10/s {\nkey_missing skip\n}\n}\n": "",
		"key {client_ip} \"store\"\nrule 10/s":                             "", "key {client_ip} `10/s`\nrule 10/s": "", "key everyone\nrule 10/s": "", "key window\nrule 10/s": "", "key {client_ip} login\nrule 10/s": "",
		"key {header.X}\nrule 1/s\noverride store unlimited": "", "key {header.X} {host}\nrule 1/s\noverride a store unlimited": "",
	}
	for _, option := range []string{
		"ipv4_prefix 24", "ipv6_prefix 48", "key_missing skip", "key_repeated first", "shadow", "rule 5/s", "cost 5", "max_keys 5", "in_flight 5", "store local", "exempt 10.0.0.0/8",
		"match path /x", "respond 429", "tokens openai", "max_wait 5s", "events 5", "window 1m", "prevent_duplicates", "log_key", "headers off", "zone b", "ipv6_prefix=48", "shadow:",
	} {
		cases["key {client_ip} "+option+"\nrule 10/s"] = own
		if option != "max_wait 5s" { // which a rule has, too
			cases["rule 10/s "+option] = own
		}
	}
	for _, word := range []string{"burst 5", "block 1h", "gcra", "notify 50"} {
		cases["key {client_ip} "+word+"\nrule 10/s"] = "an option of a rule, after its rate: " + own
	}
	hinted(t, cases)
}

// TestSemicolons checks that words that end with ; are errors, wherever they stand, and that the error shows
// no value.
func TestSemicolons(t *testing.T) {
	const no = ": want no ; after it"
	cases := map[string]string{
		":8080 {\nrate_limit {client_ip} 10/s;\n}\n": "rate_limit" + no, ":8080 {\nrate_limit {\nheaders off;\nzone a {\nrule 1/s\n}\n}\n}\n": "headers" + no,
		"{\nrate_limit {\nmax_keys 5;\n}\n}\n:8080\n": "max_keys" + no, "{\nrate_limit {\nstore redis localhost:6379;\n}\n}\n:8080\n": "store" + no,
		"{\nrate_limit {\nstore redis a:1 {\npassword secret;\n}\n}\n}\n:8080\n": "password" + no, "{\nrate_limit {\nstore redis a:1 {\npassword \"secret;\"\n}\n}\n}\n:8080\n": "",
		"rule 10/s {\nalgorithm gcra;\n}": "algorithm" + no, "key {client_ip};\nrule 10/s": "key" + no, "rule 10/s; key {client_ip};": "rule" + no, "shadow;\nrule 10/s": "shadow" + no,
		"rule 10/s ;": "rule" + no, "match path /x;\nrule 10/s": "match" + no, "match {\npath /x;\n}\nrule 10/s": "path" + no, "exempt 10.0.0.0/8;\nrule 10/s": "exempt" + no,
		"rule 10/s\nstore local;": "store" + no, "rule 10/s gcra burst 5;": "rule" + no, "rule 10/s\nrespond 429 \"sorry;\"": "", "rule 10/s\nrespond {\nheader Content-Type text/plain;charset=utf-8\n}": "",
		"key {header.X}\nrule 10/s\noverride a unlimited;": "override" + no,
	}
	hinted(t, cases)
	_, err := adapt(t, "{\nrate_limit {\nstore redis a:1 {\npassword secret;\n}\n}\n}\n:8080\n")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a password in %v", err)
	}
}

// TestRatesInWords checks that an error about a rate that is written in other words offers the rate.
func TestRatesInWords(t *testing.T) {
	cases := make(map[string]string)
	for rate, want := range map[string]string{
		"100 per minute": "did you mean 100/m", "100 a minute": "did you mean 100/m", "100 every 5 minutes": "did you mean 100/5m", "100 requests per second": "did you mean 100/s", "100 1m": "did you mean 100/1m",
		"100 minute": "did you mean 100/m", "100rpm": "did you mean 100/m", "100rps": "did you mean 100/s", "100r/minute": "did you mean m", "10per1m": "did you mean 10/1m", "10:1m": "did you mean 10/1m", "10-1m": "did you mean 10/1m",
		"100/5 minutes": "did you mean 100/5m", "5 in 10s": "did you mean 5/10s", "100 per month": "did you mean 100/month", "100 per day": "did you mean 100/day", "10 an hour": "did you mean 10/h",
		"100/monthly": "did you mean month with calendar", "100/mo": "did you mean month with calendar", "100/months": "did you mean month with calendar", "100/1month": "did you mean month with calendar",
		"100/Month": "did you mean month with calendar", "100/yearly": "did you mean year with calendar", "100/yr": "did you mean year with calendar", "100/y": "did you mean year with calendar",
		"100/days": "did you mean d, or day with calendar", "100/daily": "did you mean d, or day with calendar", "100/weekly": "did you mean w, or week with calendar", "100/hourly": "did you mean h", "100/M": "did you mean m", "100/5H": "did you mean 5h",
		"100/day": "want a duration, as in 100/1d, or the algorithm calendar, as in 100/day calendar", "100/week": "as in 100/1w, or the algorithm calendar", "100/month": "want the algorithm calendar, as in 100/month calendar",
		"100/3months": "want a positive duration", "100/0s": "want a positive duration", "100/fortnight": "want a positive duration", "100 gcra": "want <count>/<window>", "100 burst 5": "want <count>/<window>", "100": "want <count>/<window>", "x per minute": "want <count>/<window>",
	} {
		cases["rule "+rate] = want
		cases[":8080 {\nrate_limit {client_ip} "+rate+"\n}\n"] = want
	}
	for _, rate := range []string{"100/1d", "100/1w", "100/day calendar", "100/d", "100r/m", "100/month calendar"} {
		cases["rule "+rate] = ""
	}
	hinted(t, cases)
}

// TestMisspeltPlaceholders checks that the warning about a placeholder that nothing provides names the one
// that was meant.
func TestMisspeltPlaceholders(t *testing.T) {
	for name, want := range map[string]string{
		"clientip": "{client_ip}", "client-ip": "{client_ip}", "ClientIP": "{client_ip}", "CLIENT_IP": "{client_ip}", "clinet_ip": "{client_ip}", "ip_address": "{client_ip}", "remoteAddr": "{client_ip}", "user_id": "{http.auth.user.id}",
		"Host": "{host}", "hostname": "{host}", "request_uri": "{uri}", "x-api-key": "{header.x-api-key}", "Header.X-Id": "{header.X-Id}", "hedaer.X-Id": "{header.X-Id}", "cookies.sid": "{cookie.sid}",
	} {
		s := serve(t, setup{site: "rate_limit {\nzone z {\nkey {" + name + "}\nrule 10/s\n}\n}"})
		if text := s.log.text(); !strings.Contains(text, `"advice":"write `+want+`"`) {
			t.Errorf("{%s}: want %s in %s", name, want, text)
		}
	}
}

// TestSkippingWarning checks the warning about a zone that clients avoid by leaving out its key.
func TestSkippingWarning(t *testing.T) {
	const (
		msg   = "key_missing skip with a value of the request: a client that leaves it out is never limited"
		basic = "basic_auth {\nalice $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n"
	)
	zone := func(options string) string { return "rate_limit {\nzone z {\n" + options + "\nrule 10/s\n}\n}\n" }
	for site, want := range map[string]int{
		zone("key {query.id}\nkey_missing skip"): 1, zone("key {header.X-Api-Key}\nkey_missing skip"): 1, zone("key {cookie.sid}\nkey_missing skip"): 1, zone("key {body.email}\nkey_missing skip"): 1,
		zone("key {client_ip} {query.id}\nkey_missing skip"): 1, zone("key {query.id}-x\nkey_missing skip"): 1, zone("key {query}\nkey_missing skip"): 1, "rate_limit {query.id} 10r/s": 1, "rate_limit {query.id} 10/s {\nkey_missing skip\n}": 1,
		zone("key {query.id}"): 0, zone("key {query.id}\nkey_missing deny"): 0, zone("key {query.id}\nkey_missing client_ip"): 0, zone("key {query.id}\nkey_missing share"): 0,
		zone("key {client_ip}\nkey_missing skip"): 0, zone("key {http.auth.user.id}\nkey_missing skip"): 0, zone("key {path.0}\nkey_missing skip"): 0,
		"route {\n" + basic + zone("key {query.id}\nkey_missing skip") + "}": 0, "route {\n" + zone("key {query.id}\nkey_missing skip") + basic + "}": 1,
		"route {\nrequest_header X-Api-Key abc\n" + zone("key {header.X-Api-Key}\nkey_missing skip") + "}":                                   0,
		zone("key {header.X-Api-Key}\nkey_missing skip\nmatch header X-Api-Key *"):                                                           0,
		"route {\nrate_limit {\nzone a {\nkey {client_ip}\nrule 5/s\n}\n}\n" + zone("key {query.id}\nkey_missing skip") + "}":                0,
		"route {\nrate_limit {\nzone a {\nkey {client_ip}\nmatch path /a\nrule 5/s\n}\n}\n" + zone("key {query.id}\nkey_missing skip") + "}": 1,
	} {
		warned(t, setup{site: site}, msg, want)
	}
}

// TestAlternativesWarning checks the warning about match lines that were meant together.
func TestAlternativesWarning(t *testing.T) {
	const msg = "one of several match lines is enough for a request to be limited"
	for options, want := range map[string]int{
		"match path /x\nmatch method POST": 1, "match method POST\nmatch header X-Id *": 1, "match host a\nmatch path /x": 1, "match path /x\nmatch path /y\nmatch method POST": 1, "match path_regexp ^/x\nmatch method POST": 1,
		"match path /x\nmatch query a=b": 1, "match path /x": 0, "match path /x\nmatch path /y": 0, "match {\npath /x\nmethod POST\n}": 0, "match path /x\nmatch path_regexp ^/y": 0,
		"match {\npath /x\nmethod POST\n}\nmatch path /y": 0, "match header Upgrade *\nmatch method CONNECT": 0, "match path /x\nmatch expression {method}==\"POST\"": 0,
	} {
		warned(t, setup{site: "rate_limit {\nzone z {\nkey {client_ip}\nrule 10/s\n" + options + "\n}\n}"}, msg, want)
	}
}

// TestUnknownMembers checks that an error about a member of JSON that does not exist names its place and the
// member that was meant.
func TestUnknownMembers(t *testing.T) {
	const rules = `"rules": [{"limit": 1, "window": "1s"}]`
	handler := func(options string) string { return `{"handler": "rate_limit", ` + options + `}` }
	zone := func(options string) string { return handler(`"zones": [{"name": "z", ` + options + `}]`) }
	for in, want := range map[string]string{
		handler(`"zone": []`): `unknown field "zone": did you mean zones`, handler(`"header": "off"`): `unknown field "header": did you mean headers`, zone(`"ruls": []`): `/zones/0: unknown field "ruls": did you mean rules`,
		zone(`"rules": [{"limits": 1, "window": "1s"}]`): `/zones/0/rules/0: unknown field "limits": did you mean limit`, zone(rules + `, "respond": {"statu": 429}`): `/zones/0/respond: unknown field "statu": did you mean status`,
		zone(rules + `, "tokens": {"outputs": 1}`): `/zones/0/tokens: unknown field "outputs": did you mean output`, zone(rules + `, "overrides": [{"keys": [["a"]], "unlimted": true}]`): `/zones/0/overrides/0: unknown field "unlimted": did you mean unlimited`,
		zone(rules + `, "prevent_duplicates": {"windows": "1s"}`): `/zones/0/prevent_duplicates: unknown field "windows": did you mean window`, zone(rules + `, "keymissing": "skip"`): `unknown field "keymissing": did you mean key_missing`,
		handler(`"rate_limits": {"a/b": {"max_event": 1, "window": "1s"}}`): `/rate_limits/a~1b: unknown field "max_event": did you mean max_events`, handler(`"distributed": {"purgeage": "1s"}`): `/distributed: unknown field "purgeage": did you mean purge_age`,
		zone(`"rules": [{"limit": 1, "window": "1s", "algorithm": {"name": "gcra", "bursts": 1}}]`): `algorithm gcra: unknown field "bursts": did you mean burst`, zone(rules + `, "nothing_like_it": 1`): `unknown field "nothing_like_it": want algorithm, cost`,
		zone(rules): "", zone(`"Rules": [{"Limit": 1, "WINDOW": "1s"}]`): "", handler(`"zones": [null]`): "nil", handler(`"zones": {"name": 1}`): "cannot unmarshal object",
	} {
		err := validate(t, "", in)
		if want == "nil" {
			continue // only no panic
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	for app, want := range map[string]string{
		`"max_key": 5`: `unknown field "max_key": did you mean max_keys`, `"store": []`: `unknown field "store": did you mean stores`,
		`"stores": [{"addreses": ["a:1"]}]`: `store 1: unknown field "addreses": did you mean addresses`, `"stores": [{"addresses": ["a:1"], "tls": {"cas": "x"}}]`: `store 1: /tls: unknown field "cas": did you mean ca`,
		`"rules": {"source": "file", "pth": "x"}`: `unknown field "pth": did you mean path`, `"stores": [{"addresses": ["a:1"], "pasword": "hidden"}]`: `unknown field "pasword": did you mean password`,
	} {
		err := validate(t, app, handlerOf(zoneA))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v, want %q", app, err, want)
		}
	}
}
