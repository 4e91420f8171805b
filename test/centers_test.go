package test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// The answers of configuration centers below are written from their documentation, not
// recorded from servers: status, headers that say what the body is, and body.

// center is a configuration center.
type center struct {
	name   string // in the URL of docs/rules.md
	target string // path and query
	header string // a header that it requires, with its value
	value  string

	present, missing, denied reply
}

type reply struct {
	status int
	header string // one header and its value
	body   string
}

var centers = []center{
	{
		name: "consul", target: "/v1/kv/diana/rules?raw", header: "X-Consul-Token", value: "127.0.0.1",
		present: reply{200, "X-Consul-Index: 162", `{"zones": {"z": {"rules": [{"limit": 3, "window": "100h"}]}}}`},
		missing: reply{404, "X-Consul-Index: 1", ""},
		denied:  reply{403, "Content-Type: text/plain; charset=utf-8", "Permission denied: token with AccessorID '00000000-0000-0000-0000-000000000002' lacks permission 'key:read' on \"diana/rules\""},
	},
	{
		name: "nacos", target: "/nacos/v1/cs/configs?dataId=diana.json&group=DEFAULT_GROUP", header: "Authorization", value: "Bearer 127.0.0.1",
		present: reply{200, "Config-Type: json", `{"zones": {"z": {"rules": [{"limit": 3, "window": "100h"}]}}}`},
		missing: reply{404, "Content-Type: text/html;charset=UTF-8", "config data not exist"},
		denied:  reply{403, "Content-Type: application/json", `{"timestamp":"2026-01-01T00:00:00.000+00:00","status":403,"error":"Forbidden","message":"unknown user!","path":"/nacos/v1/cs/configs"}`},
	},
	{
		name: "apollo", target: "/configfiles/raw/diana/default/rules.json",
		present: reply{200, "Content-Type: application/json;charset=UTF-8", `{"zones": {"z": {"rules": [{"limit": 3, "window": "100h"}]}}}`},
		missing: reply{404, "Content-Length: 0", ""},
		denied:  reply{401, "Content-Type: application/json", `{"status":401,"message":"Unauthorized"}`},
	},
}

// documentedCenter returns the block of docs/rules.md that reads rules from a center.
func documentedCenter(t *testing.T, name string) string {
	t.Helper()
	for _, sn := range snippets(t) {
		if sn.file == "docs/rules.md" && strings.Contains(sn.text, "rules http http://"+name) {
			return sn.text
		}
	}
	t.Fatalf("docs/rules.md has no example for %s", name)
	return ""
}

// TestConfigurationCenters reads rules from what stands for Consul, Nacos and Apollo, with
// the configurations in docs/rules.md.
func TestConfigurationCenters(t *testing.T) {
	for _, c := range centers {
		t.Run(c.name, func(t *testing.T) {
			var now atomic.Pointer[reply]
			now.Store(&c.missing)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RequestURI() != c.target {
					t.Errorf("a request for %s, want %s", r.URL.RequestURI(), c.target)
				}
				a := *now.Load()
				if c.header != "" && r.Header.Get(c.header) != c.value {
					a = c.denied
				}
				name, value, _ := strings.Cut(a.header, ": ")
				w.Header().Set(name, value)
				w.WriteHeader(a.status)
				_, _ = w.Write([]byte(a.body))
			}))
			defer srv.Close()
			_, option, _ := strings.Cut(localize(t, documentedCenter(t, c.name)), "rules http http://")
			_, option, _ = strings.Cut(option, "/")
			option, _, _ = strings.Cut(option, "\t\t}\n")
			option = strings.Replace(strings.Replace(option, "interval 10s", "", 1), "{\n", "{\ninterval 1s\n", 1)
			s := serve(t, setup{
				app:  "rules http " + srv.URL + "/" + option + "}",
				site: "rate_limit {\nzone z {\nkey all\nrule 1/100h\n}\n}\nrespond ok",
			})
			state := func(want, text string) {
				t.Helper()
				until(t, "the state "+want, func() bool { r := s.source(); return r.State == want && strings.Contains(r.Error, text) })
			}
			state("empty", "")
			s.want(req{}, 200, 429)
			now.Store(&c.present)
			state("ok", "")
			s.want(req{}, 200, 200, 429)
			now.Store(&c.denied)
			state("away", "status 40")
			now.Store(&c.present)
			state("ok", "")
			now.Store(&c.missing)
			state("away", "has lost the document: its rules stay in force; write it again")
			s.want(req{}, 429)
		})
	}
}
