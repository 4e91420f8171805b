package test

import (
	"strings"
	"testing"
)

// TestMistakesAreNamed checks that an error names the mistake, and nothing that follows from it.
func TestMistakesAreNamed(t *testing.T) {
	zone := func(options string) string {
		return ":8080 {\nrate_limit {\nzone api {\n" + options + "\n}\n}\n}\n"
	}
	for in, want := range map[string]string{
		":8080 {\nrate_limit {\nzone api\nrule 10/s\n}\n}\n}\n":              "zone api: no rule: want { after its name",
		":8080 {\nrate_limit {\nzone api\nkey {client_ip}\nrule 1/s\n}\n}\n": "zone api: no rule: want { after its name",
		zone("rule 1M/1d"):                                                    "did you mean 1000000",
		zone("rule 10k/1h"):                                                   "did you mean 10000",
		zone("rule 1,000/1h"):                                                 "did you mean 1000",
		zone("rule 1_000_000/1h"):                                             "did you mean 1000000",
		zone("rule x/1h"):                                                     "want a whole number",
		zone("rule 1.5/1h"):                                                   "want a whole number",
		zone("rule 10/wk"):                                                    "did you mean w",
		zone("rule 10/5msec"):                                                 "did you mean 5ms",
		zone("rule 10/s\nresponse_body hello"):                                "did you mean respond",
		zone("rule 10/s\nerror_message hello"):                                "did you mean respond",
		zone("rule 100/60"):                                                   "did you mean 60s",
		zone("rule 10/s 20/m"):                                                `rate "20/m" beside 10/s: want a line rule 20/m`,
		zone("rule 10/s\nmax_keys 1M"):                                        "did you mean 1000000",
		zone("rule 10/s\nin_flight 1,000"):                                    "did you mean 1000",
		zone("rule 10/s\nipv6_prefix /64"):                                    "did you mean 64",
		zone("rule 10/s\nexempt private"):                                     "private_ranges",
		zone("rule 10/s\ndryrun"):                                             "did you mean shadow",
		zone("rule 10/s\nmaxconcurrent 5"):                                    "did you mean in_flight",
		zone("rule 10/s\nenabled false"):                                      "it belongs in a document of rules",
		zone("rule 10/s\nexceptions"):                                         "it belongs in a document of rules",
		":8080 {\nrate_limit 10/s 20/m\n}\n":                                  `rate "20/m" beside 10/s`,
		":8080 {\nrate_limit {\nzone api 10/s\n}\n}\n":                        `zone api: unexpected "10/s": want one name, and its options in a block`,
		"{\nrate_limit {\nstore redis a:1 {\npass x\n}\n}\n}\n:8080\n":        "did you mean password",
		"{\nrate_limit {\nstore redis a:1 {\nuser x\n}\n}\n}\n:8080\n":        "did you mean username",
		"{\nrate_limit {\nstore redis a:1 {\ndatabase 1\n}\n}\n}\n:8080\n":    "did you mean db",
		"{\nrate_limit {\nstore redis a:1 {\nmaster m\n}\n}\n}\n:8080\n":      "did you mean sentinel",
		"{\nrate_limit {\nstore redis a:1 {\non_fail allow\n}\n}\n}\n:8080\n": "did you mean on_failure",
	} {
		_, err := adapt(t, in)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "errors:") {
			t.Errorf("%s\n%v\nwant only %q", in, err, want)
		}
	}
}

// TestWarningsOfZones checks warnings of single zones, and that those who resemble them have none.
func TestWarningsOfZones(t *testing.T) {
	const (
		mixed    = "a key part combines the client's address with text"
		nobody   = "no request has a header, cookie or parameter of the zone"
		thursday = "fixed_window align begins its weeks on Thursday"
	)
	for _, c := range []struct {
		options, msg string
		want         int
	}{
		{"key {client_ip}-x\nevents 5\nwindow 1m\nipv6_prefix 48", mixed, 1},
		{"key {client_ip}-x\nevents 5\nwindow 1m\nipv4_prefix 24", mixed, 1},
		{"key {client_ip}-x\nevents 5\nwindow 1m", mixed, 0},
		{"key {client_ip}\nevents 5\nwindow 1m\nipv6_prefix 48", mixed, 0},
		{"key {cookie.user[id]}\nrule 5/1m", nobody, 0},
		{"key {cookie.a:b}\nrule 5/1m", nobody, 0},
		{"key {cookie.*}\nrule 5/1m", nobody, 1},
		{"key {header.user[id]}\nrule 5/1m", nobody, 1},
		{"rule 5/1w fixed_window align", thursday, 1},
		{"rule 5/7d fixed_window align", thursday, 1},
		{"rule 5/2w fixed_window align", thursday, 1},
		{"rule 5/1w fixed_window", thursday, 0},
		{"rule 5/1d fixed_window align", thursday, 0},
	} {
		warned(t, setup{site: "rate_limit {\nzone z {\n" + c.options + "\n}\n}"}, c.msg, c.want)
	}
	s := serve(t, setup{site: "rate_limit {\nzone z {\nkey {cookie.user[id]}\nkey_missing skip\nrule 1/1h\n}\n}\nrespond ok"})
	q := req{header: map[string]string{"Cookie": "user[id]=7"}}
	s.want(q, 200, 429)
	q.header["Cookie"] = "user[id]=8"
	s.want(q, 200, 429)
}
