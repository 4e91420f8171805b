package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestDenialAcrossFormats checks that all numbers of a denial by an inner handler are those of the rule that denies,
// whatever formats the handlers have, and that an error route that serves the request leaves none of them.
func TestDenialAcrossFormats(t *testing.T) {
	formats := []string{"draft", "legacy", "all", "openai", "off"}
	for i, outer := range formats {
		for k, inner := range formats {
			for how, lines := range map[string]string{"error": "", "respond": "respond 503 no", "immediate": "key {header.X-No}\nkey_missing deny", "problem": "respond 429 {\nproblem\n}"} {
				for end, errors := range map[string]string{"": "", "page": "handle_errors {\nrespond denied\n}", "limited page": "handle_errors {\nroute {\n" + limiting("e", "50/1h fixed_window", outer) + "respond denied\n}\n}", "served": "handle_errors {\nrespond ok 200\n}"} {
					s := serve(t, setup{site: "route {\n" + limiting("a", "100/1h fixed_window", outer) + limiting("b", "1/1h fixed_window", inner, lines) + "respond ok\n}\n" + errors})
					client := req{ip: fmt.Sprintf("10.%d.%d.%d", i, k, len(how)*16+len(end))}
					s.send(client)
					a := s.send(client)
					served := end == "served" && a.status == 200
					for name, values := range a.header {
						switch {
						case !strings.HasPrefix(name, "X-Ratelimit-"):
						case served && strings.Contains(name, "-Limit") && values[0] == "1", served && strings.Contains(name, "-Remaining") && values[0] == "0",
							!served && strings.Contains(name, "-Limit") && values[0] != "1", !served && strings.Contains(name, "-Remaining") && values[0] != "0":
							t.Errorf("%s around %s, %s, %s: %d with %s: %s", outer, inner, how, end, a.status, name, values[0])
						}
					}
				}
			}
		}
	}
}

// TestServedAfterADenial checks that a response with which an error route serves a request has nothing of the denial.
func TestServedAfterADenial(t *testing.T) {
	for _, headers := range []string{"draft", "legacy", "all", "openai"} {
		for _, zones := range []string{"", "zone other {\nkey all\nrule 100/1h\n}\n"} {
			s := serve(t, setup{site: "rate_limit {\nheaders " + headers + "\n" + zones + "zone a {\nrule 1/1h fixed_window\n}\n}\nrespond ok\nhandle_errors {\nrespond served 200\n}"})
			client := req{ip: "10.9." + fmt.Sprint(len(zones)) + "." + fmt.Sprint(len(headers))}
			s.want(client, 200)
			a := s.want(client, 200)
			for name := range a.header {
				if a.body != "served" || strings.HasPrefix(strings.ToLower(name), "x-ratelimit") || strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "Retry-After") || name == "X-Should-Retry" || name == http.CanonicalHeaderKey("Cache-Control") {
					t.Errorf("headers %s: %q with %s: %q", headers, a.body, name, a.header[name])
				}
			}
		}
	}
}

// TestNumbersOfOtherZones checks the placeholders of zones when another one denies without a look at counts.
func TestNumbersOfOtherZones(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for name, lines := range map[string]string{
			"key_missing":  "key {header.X-Key}\nkey_missing deny\nrule 9/1h",
			"limit 0":      "key {query.z}\nkey_missing share\nrule 9/1h\noverride x {\nrule 0/1h\n}",
			"key_repeated": "key {query.a}\nkey_repeated deny\nkey_missing share\nrule 9/1h",
			"too large":    "key all\nrule 9/1h fixed_window\nhold\ncost {query.c}\nsettle {http.response.header.X-No}",
		} {
			first, last := newName("a"), newName("c")
			site := "rate_limit {\nzone " + first + " {\nrule 5/1h fixed_window\n}\nzone b {\n" + lines + "\n}\nzone " + last + " {\nkey all\nrule 7/1h fixed_window burst 7\ncost 2\n}\n}\nrespond ok\n"
			site = strings.Replace(site, " burst 7", "", 1)
			numbers := strings.NewReplacer("A", "http.rate_limit."+first, "C", "http.rate_limit."+last).Replace("{A.limit} {A.remaining} {A.decision} {C.limit} {C.remaining} {C.used}")
			s := serve(t, setup{app: b.app(), site: site + "handle_errors {\nrespond \"" + numbers + "\"\n}"})
			s.want(req{path: "/?a=1&c=1", header: map[string]string{"X-Key": "k"}}, 200)
			for range 2 { // nothing is charged
				a := s.want(req{path: "/?a=1&a=2&c=100&z=x"}, 429)
				if want := "5 4 denied_elsewhere 7 5 2"; a.body != want {
					t.Errorf("%s: %q, want %q", name, a.body, want)
				}
			}
		}
	})
}
