package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// randomSite writes random sites whose handlers change requests on their way to zones.
type randomSite struct {
	*rand.Rand
	zones, matchers int
	named           bool // it is in a named route
}

func (s *randomSite) of(list ...string) string { return list[s.IntN(len(list))] }

func (s *randomSite) value() string {
	return s.of("{path}", "{method}", "{header.X-K}", "{vars.t}", "{m.plan}", "{query.q}", "{http.request.orig_uri.path}", "{http.vars.client_ip}", "{host}", "c")
}

// matcher returns a named matcher and its definition, or a path, or nothing.
func (s *randomSite) matcher() (name, definition string) {
	switch s.IntN(4) {
	case 0:
		return "", ""
	case 1:
		return s.of("/a*", "/b*", "/a/b*", "*"), ""
	}
	s.matchers++
	name = fmt.Sprintf("@m%d", s.matchers)
	return name, name + " " + s.of("header X-K a*", "vars {vars.t} /a /b/a", "not path /a*", "method GET POST", "query q=1", `vars {m.plan} gold`, "path_regexp ^/(a|b)", "client_ip 10.0.0.0/31") + "\n"
}

func (s *randomSite) zone() string {
	s.zones++
	z := fmt.Sprintf("zone z%d {\nkey %s {client_ip}\nkey_missing share\nrule %d/100h fixed_window\n", s.zones, s.value(), 1+s.IntN(30))
	for _, option := range []string{"cost {m.cost}\n", "shadow\n", "respond 418\n", "override * 10.0.0.1 unlimited\n", "match path /a*\n", "rule 25/100h fixed_window\n", "exempt method PUT\n"} {
		if s.IntN(6) == 0 {
			z += option
		}
	}
	return z + "}\n"
}

// directives returns random directives for a route block.
func (s *randomSite) directives(depth int) (text string) {
	for range 2 + s.IntN(4) {
		name, definition := s.matcher()
		var line string
		switch n := s.IntN(19); {
		case n < 5:
			line = "rate_limit MATCHER {\n" + s.zone()
			if s.IntN(3) == 0 {
				line += s.zone()
			}
			line += "}"
		case n < 8 && depth < 3:
			line = s.of("handle", "route") + " MATCHER {\n" + s.directives(depth+1) + "}"
		case n == 8 && depth < 3:
			line = "handle_path " + s.of("/a*", "/b*") + " {\n" + s.directives(depth+1) + "}"
		case n == 9 && !s.named:
			line = "invoke MATCHER " + s.of("one", "two")
		case n == 10:
			line = "map " + s.of("{path}", "{header.X-K}", "{method}") + " {m.plan} {m.cost} {\n~^/a gold 2\nab silver 3\ndefault free " + s.of("1", "4", "x") + "\n}"
		case n == 11:
			line = "vars MATCHER t " + s.value()
		case n == 12:
			line = "rewrite MATCHER " + s.of("/a{uri}", "/b/a?q=1", "?q=2&{query}", "{m.plan}")
		case n == 13:
			line = "uri MATCHER " + s.of("strip_prefix /a", "strip_suffix /b", "replace /a /b", "path_regexp /(.)/ /$1$1/", "query q 1")
		case n == 14:
			line = "method MATCHER " + s.of("GET", "POST", "PUT")
		case n == 15:
			line = "request_header MATCHER " + s.of("X-K a{path}", "-X-K", "+X-K b", "X-K a b$0")
		case n == 16 && s.IntN(3) == 0:
			line = s.of("respond MATCHER done 202", "error MATCHER 404")
		case n == 17:
			line = s.of("encode MATCHER gzip", "header MATCHER X-Y {path}", "log_append MATCHER k v")
		default:
			continue
		}
		if strings.Contains(line, "MATCHER") { // the first: those within are replaced
			text += definition
			line = strings.Replace(line, "MATCHER", name, 1)
		}
		text += line + "\n"
	}
	return text
}

var inHeader = regexp.MustCompile(`"(\w+)";r=`)

// TestExplainFollowsRoutes checks on random routes that what explain says of a request is what the
// next request meets: who decides, and what is left then of each rule.
func TestExplainFollowsRoutes(t *testing.T) {
	r := storekit.Seeded(t)
	handlers, denials := 0, 0
	for range 25 {
		s := &randomSite{Rand: r}
		s.named = true
		named := "&(one) {\nroute {\n" + s.directives(1) + "}\n}\n&(two) {\nroute {\n" + s.directives(2) + "}\n}\n"
		s.named = false
		c := setup{site: "route {\n" + s.directives(0) + "respond ok\n}\nhandle_errors {\nrate_limit {\n" + s.zone() + "}\nrespond failed {err.status_code}\n}"}
		site := newSite(t)
		whole := strings.Replace(c.caddyfile(site), "http://:8001", named+"http://:8001", 1)
		adapted, err := adapt(t, whole)
		if err != nil {
			t.Fatalf("%v\n%s", err, whole)
		}
		if err := site.loadJSON(adapted); err != nil {
			t.Fatalf("%v\n%s", err, whole)
		}
		for range 40 {
			q := req{
				method: s.of("GET", "GET", "POST", "PUT"), path: s.of("/a", "/b", "/a/b", "/b/a", "/c") + s.of("", "/", "/a", "/b?q=1", "?q=1"),
				ip: fmt.Sprintf("10.0.0.%d", s.IntN(3)), header: map[string]string{"X-K": s.of("a", "ab", "b")},
			}
			body, _ := json.Marshal(map[string]any{"method": q.method, "url": site.url + q.path, "client_ip": q.ip, "remote_ip": "127.0.0.1", "headers": q.header})
			var e cli.Explanation
			if status, text := site.admin("POST", "explain", string(body), &e); status != 200 {
				t.Fatal(text)
			}
			a := site.send(q)
			told := make(map[string]bool) // zones in the response's headers
			for _, value := range a.header.Values("RateLimit") {
				for _, m := range inHeader.FindAllStringSubmatch(value, -1) {
					told[m[1]] = true
				}
			}
			met := make(map[string]int) // by zone and key
			for _, h := range e.Handlers {
				handlers++
				for _, z := range h.Zones {
					delete(told, z.Zone)
					met[z.Zone+" "+z.Key]++
				}
			}
			for _, h := range e.Handlers {
				denies := slices.ContainsFunc(h.Zones, func(z limiter.Key) bool { return z.Decision == "denied" })
				for _, z := range h.Zones {
					if len(z.Rules) == 0 || met[z.Zone+" "+z.Key] > 1 { // one in shadow counts each time
						continue
					}
					var now limiter.Key
					if status, text := site.admin("GET", "zones/"+z.Zone+"/key?hash="+z.Key, "", &now); status != 200 {
						t.Fatal(text)
					}
					for i, rule := range z.Rules {
						got, want := now.Rules[i].Remaining, rule.Remaining
						if !denies && z.Decision == "allowed" {
							want -= z.Cost
						}
						if got != want {
							t.Fatalf("%+v: status %d; zone %s has %d left, want %d\n%+v\n%s%s", q, a.status, z.Zone, got, want, e, named, c.site)
						}
					}
				}
			}
			denied := a.status == 429 || a.status == 418
			if denied {
				denials++
			}
			if denied != (e.Decision == "denied") || len(told) > 0 {
				t.Fatalf("%+v: status %d by %v; explained: %s\n%+v\n%s%s", q, a.status, told, e.Decision, e, named, c.site)
			}
		}
	}
	t.Logf("%d handlers, %d denials", handlers, denials)
	if handlers == 0 || denials == 0 {
		t.Error("the routes lead nowhere")
	}
}

// TestExplainNamesWhatIsNotRun checks that explain names the handlers before a zone that it does not
// run, and ends at those that answer every request.
func TestExplainNamesWhatIsNotRun(t *testing.T) {
	s := serve(t, setup{site: `
	route {
		basic_auth /in {
			bob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
		}
		rate_limit {
			zone first {
				rule 1/1h
			}
		}
		forward_auth /in 127.0.0.1:1 {
			uri /check
		}
		rate_limit {
			zone second {
				rule 1/1h
			}
		}
		reverse_proxy 127.0.0.1:1
		rate_limit {
			zone never {
				rule 1/1h
			}
		}
	}`})
	for path, want := range map[string]string{"/": "first []; second []; ", "/in": "first [authentication]; second [authentication reverse_proxy]; "} {
		var e cli.Explanation
		if status, text := s.admin("POST", "explain", fmt.Sprintf(`{"url": "http://localhost%s", "client_ip": "10.0.0.1"}`, path), &e); status != 200 {
			t.Fatal(text)
		}
		got := ""
		for _, h := range e.Handlers {
			got += fmt.Sprintf("%s %v; ", h.Zones[0].Zone, h.NotRun)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
