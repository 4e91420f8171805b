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
	for _, rule := range []string{"{env.N}/1m", "10/{env.N}", "{env.N}", "{env.N}r/s", "10/s gcra burst {env.N}", "10/1m sliding_window buckets {env.N}", "10/s block {env.N}", "10/s block 5m {env.N}",
		"10/s notify {env.N}", "10/s notify 50 {env.N}", "10/s name {env.N}", "{header.X}/1m else {env.N}", "10/s {env.N}", "10/s algorithm {env.N}"} {
		cases["rule "+rule] = hint
		cases["key {header.X}\nrule 1/s\noverride a {\nrule "+rule+"\n}"] = hint
	}
	for _, option := range []string{"in_flight", "max_wait", "max_waiting", "max_keys", "ipv4_prefix", "ipv6_prefix", "linger", "prevent_duplicates", "max_body", "count_status", "store", "key_missing",
		"key_repeated", "algorithm", "unit", "tokens", "events"} {
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
	for _, option := range []string{"ipv4_prefix 24", "ipv6_prefix 48", "key_missing skip", "key_repeated first", "shadow", "rule 5/s", "cost 5", "max_keys 5", "in_flight 5", "store local", "exempt 10.0.0.0/8",
		"match path /x", "respond 429", "tokens openai", "max_wait 5s", "events 5", "window 1m", "prevent_duplicates", "log_key", "headers off", "zone b", "ipv6_prefix=48", "shadow:"} {
		cases["key {client_ip} "+option+"\nrule 10/s"] = own
		cases["rule 10/s "+option] = own
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
