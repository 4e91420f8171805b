package test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestShadowInAnotherHandler checks that a zone that is in shadow in one handler and enforced in another counts each
// request once: the shadow neither counts for the other nor is counted by it.
func TestShadowInAnotherHandler(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for place, site := range map[string]string{
			"before":              "route {\nSHADOW ZONE respond ok\n}",
			"after":               "route {\nZONE SHADOW respond ok\n}",
			"twice before":        "route {\nSHADOW SHADOW ZONE respond ok\n}",
			"around":              "route {\nSHADOW ZONE SHADOW respond ok\n}",
			"before error routes": "route {\nSHADOW error 404\n}\nhandle_errors {\nroute {\nZONE respond ok 200\n}\n}",
			"in error routes":     "route {\nZONE error 404\n}\nhandle_errors {\nroute {\nSHADOW respond {err.status_code} 200\n}\n}",
			"in a handle":         "handle {\nroute {\nSHADOW handle {\nroute {\nZONE respond ok\n}\n}\n}\n}",
		} {
			for option, c := range map[string]struct {
				lines string
				want  []int
			}{
				"limit":     {"rule 3/1h fixed_window", []int{200, 200, 200, 429}},
				"log":       {"rule 3/1h sliding_log", []int{200, 200, 200, 429}},
				"in_flight": {"in_flight 1\nrule 3/1h", []int{200, 200, 200, 429}},
				"block":     {"rule 1/1h block 2h", []int{200, 429}},
				"hold":      {"cost 60\nhold\nsettle {http.response.header.X-Tokens}\nrule 100/1h fixed_window", []int{200, 200, 200}},
				"settle":    {"settle {http.response.header.X-Tokens}\nrule 10/1h fixed_window", []int{200, 200, 429}},
				"status":    {"count_status 2xx\nrule 3/1h fixed_window", []int{200, 200, 200, 429}},
				"cost":      {"cost 2\nrule 3/1h fixed_window", []int{200, 429}},
			} {
				t.Run(place+" "+option, func(t *testing.T) {
					name := newName("z")
					zone := func(lines string) string {
						return "rate_limit {\nzone " + name + " {\n" + lines + "\n" + c.lines + "\n}\n}\n"
					}
					config := strings.NewReplacer("SHADOW", zone("shadow"), "ZONE", "header X-Tokens 5\n"+zone("")).Replace(site)
					s := serve(t, setup{app: b.app(), site: config})
					for i, want := range c.want {
						if a := s.send(req{}); a.status != want && a.body != fmt.Sprint(want) { // an error route serves denials, too
							t.Errorf("request %d: status %d, want %d: %s", i+1, a.status, want, a.body)
						}
					}
				})
			}
		}
	})
}

// TestShadowTwice checks that a zone in shadow counts a request once, however often it meets it.
func TestShadowTwice(t *testing.T) {
	zone := func(name, lines string) string {
		return "rate_limit {\nzone " + name + " {\n" + lines + "\nrule 10/1h fixed_window\n}\n}\n"
	}
	for place, c := range map[string]struct{ site, document string }{
		"two handlers":            {"route {\nSHADOW SHADOW respond ok\n}", ""},
		"an error route":          {"route {\nSHADOW error 404\n}\nhandle_errors {\nroute {\nSHADOW respond ok\n}\n}", ""},
		"a document":              {"route {\nZONE ZONE respond ok\n}", `{"zones": {"NAME": {"shadow": true}}}`},
		"a document for all":      {"route {\nZONE SHADOW ZONE respond ok\n}", `{"zones": {"*": {"shadow": true}}}`},
		"a document that ends it": {"route {\nSHADOW ZONE respond ok\n}", `{"zones": {"NAME": {"shadow": false}}}`},
	} {
		t.Run(place, func(t *testing.T) {
			name := newName("z")
			config := strings.NewReplacer("SHADOW", zone(name, "shadow"), "ZONE", zone(name, ""), "NAME", name)
			s := &ruledSite{path: filepath.Join(t.TempDir(), "rules.json")}
			s.site = serve(t, setup{app: "rules file " + s.path, site: config.Replace(c.site)})
			if c.document != "" {
				s.apply(config.Replace(c.document))
			}
			for range 5 {
				s.send(req{})
			}
			s.wantCharged(name, 5)
			if got := s.metric("decisions_total", "zone", name, "decision", "allowed"); got != 5 {
				t.Errorf("%v decisions for 5 requests", got)
			}
		})
	}
}

// TestNamedRouteTwiceInShadow is [TestShadowTwice] for a named route that is invoked twice.
func TestNamedRouteTwiceInShadow(t *testing.T) {
	name := newName("z")
	s := newSite(t)
	text := strings.Replace(setup{site: "route {\ninvoke limited\ninvoke limited\nrespond ok\n}"}.caddyfile(s), "http://:8001 {", "&(limited) {\nrate_limit {\nzone "+name+" {\nshadow\nprevent_duplicates 1h\nrule 10/1h fixed_window\n}\n}\n}\nhttp://:8001 {", 1)
	adapted, err := adapt(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.loadJSON(adapted); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		s.want(req{method: "POST", path: fmt.Sprint("/", i)}, 200)
	}
	if used := s.charged(name); used != 5 {
		t.Errorf("%d used after 5 requests", used)
	}
	if got := s.metric("decisions_total", "zone", name, "decision", "shadow_denied"); got != 0 {
		t.Errorf("%v requests would be duplicates of themselves", got)
	}
}

// TestSpendOfShadows checks that costs by group have each request once.
func TestSpendOfShadows(t *testing.T) {
	name := newName("z")
	zone := func(lines string) string {
		return "rate_limit {\nzone " + name + " {\n" + lines + "\nsettle {http.response.header.X-Tokens}\ngroup_by {header.X-Team}\nrule 1000/1h fixed_window\n}\n}\n"
	}
	s := serve(t, setup{site: "route {\n" + zone("shadow") + zone("") + "header X-Tokens 5\nrespond ok\n}"})
	s.want(req{header: map[string]string{"X-Team": "a"}}, 200, 200, 200)
	ended(t)
	if got := s.metric("group_cost_total", "group", "a", "zone", name); got != 15 {
		t.Errorf("%v spent, want 15", got)
	}
	s.wantCharged(name, 15)
}
