package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

const onceEach = `
	rate_limit {
		zone z {
			rule 3/1h
			in_flight 1
			prevent_duplicates 1h
		}
	}`

// TestZoneInTwoHandlers has requests pass one zone in two handlers, or in one that stands in a
// named route which is invoked twice. They are counted once: by its rules, its permits and its
// fingerprints.
func TestZoneInTwoHandlers(t *testing.T) {
	for _, c := range []struct{ name, site, more string }{
		{"handlers", "route {" + onceEach + onceEach + "\nrespond ok\n}", ""},
		{"named route", "route {\ninvoke limited\ninvoke limited\nrespond ok\n}", "&(limited) {" + onceEach + "\n}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b backend) {
				s := serve(t, setup{app: b.app(), site: c.site, more: c.more})
				s.want(req{method: "POST", path: "/1"}, 200, 429)
				s.want(req{method: "POST", path: "/2"}, 200)
				s.wantExplained("/3", "allowed", "z", "")
				s.wantHeader(s.want(req{method: "POST", path: "/3"}, 200), "RateLimit", `"z";r=0;t=3600`)
				s.wantExplained("/4", "denied", "z")
				s.want(req{method: "POST", path: "/4"}, 429)
			})
		})
	}
}

// wantExplained checks the decision about a request, and the zones, separated by spaces, that
// would count it in each handler.
func (s *site) wantExplained(path, decision string, handlers ...string) {
	s.Helper()
	var e cli.Explanation
	body := fmt.Sprintf(`{"method": "POST", "url": "http://localhost:8001%s", "client_ip": "127.0.0.1"}`, path)
	if status, text := s.admin("POST", "explain", body, &e); status != 200 {
		s.Fatal(text)
	}
	var got []string
	for _, h := range e.Handlers {
		var zones []string
		for _, z := range h.Zones {
			zones = append(zones, z.Zone)
		}
		got = append(got, strings.Join(zones, " "))
	}
	if e.Decision != decision || strings.Join(got, "\n") != strings.Join(handlers, "\n") {
		s.Errorf("%s: %s by %q, want %s by %q", path, e.Decision, got, decision, handlers)
	}
}

// TestRepeatedZoneWarning checks the warning about routes that lead through a zone twice, and
// that zones in routes of which a request takes only one earn none.
func TestRepeatedZoneWarning(t *testing.T) {
	const (
		msg  = "a route has the zone twice: it counts a request once"
		zone = "{\nzone z {\nrule 1/1h\n}\n}\n"
		z    = "rate_limit " + zone
		a    = "rate_limit /a* " + zone
		b    = "rate_limit /b* " + zone
		last = "respond ok\n"
	)
	matching := func(path, option string) string {
		return "rate_limit {\nzone z {\nmatch path " + path + "\nrule 1/1h\n" + option + "\n}\n}\n"
	}
	for site, want := range map[string]int{
		z + last:                              0,
		z + z + last:                          1,
		z + z + z + last:                      1,
		"route {\n" + z + z + last + "}":      1,
		z + "handle /a* {\n" + z + last + "}": 1,
		"route {\n" + a + z + last + "}":      1,
		a + a + last:                          1,
		a + b + last:                          0,
		"handle /a* {\n" + z + "}\nhandle {\n" + z + last + "}":  0,
		"handle /a* {\n" + z + z + last + "}":                    1,
		z + "handle_errors {\n" + z + "}":                        0, // it passes the second if the first denies it
		"handle_errors {\n" + z + z + "}":                        1,
		"route {\ninvoke limited\n" + last + "}":                 0,
		"route {\ninvoke limited\ninvoke limited\n" + last + "}": 1,
		"route {\ninvoke limited\n" + z + last + "}":             1,
		"invoke /a* limited\ninvoke /b* limited\n" + last:        0,
		"rate_limit 1/1h {\nname y\n}\n" + z + last:              0,
		matching("/a*", "") + matching("/b*", "") + last:         0,
		matching("/a*", "") + matching("/a*", "") + last:         1,
		matching("/a*", "") + z + last:                           1,
		matching("/a*", "shadow") + z + last:                     0, // which no request passes
		"route {\ninvoke endless\n" + last + "}":                 0,
	} {
		s := serve(t, setup{site: site, more: "http://:8002 {\ninvoke limited\n}\n&(limited) {\n" + z + "}\n&(endless) {\ninvoke endless\ninvoke endless\n}\n"})
		lines := s.log.lines(t, msg)
		if len(lines) != want {
			t.Errorf("%q: %d warnings, want %d", site, len(lines), want)
		}
		if len(lines) > 0 && (lines[0]["level"] != "warn" || lines[0]["zone"] != "z" || lines[0][adviceField] == "") {
			t.Errorf("%q: line %v", site, lines[0])
		}
	}
}
