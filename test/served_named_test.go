package test

import (
	"fmt"
	"strings"
	"testing"
)

// TestServedAfterANamedRoute checks that a request costs what the response of an error route says, if only a named
// route has its zones: routes of the server's errors are compiled before named ones are provisioned.
func TestServedAfterANamedRoute(t *testing.T) {
	model, dead := modelServer(t), closedPort(t)
	for place, c := range map[string][2]string{
		"around":        {"route {\ninvoke limits\nreverse_proxy " + dead + "\n}\nhandle_errors {\nreverse_proxy " + model + "\n}", "&(limits) {\nZONE\n}\n"},
		"with upstream": {"route {\ninvoke limits\n}\nhandle_errors {\nreverse_proxy " + model + "\n}", "&(limits) {\nroute {\nZONE reverse_proxy " + dead + "\n}\n}\n"},
		"twice":         {"route {\ninvoke limits\ninvoke limits\nreverse_proxy " + dead + "\n}\nhandle_errors {\nreverse_proxy " + model + "\n}", "&(limits) {\nZONE\n}\n"},
		"nested":        {"route {\ninvoke outer\nreverse_proxy " + dead + "\n}\nhandle_errors {\nreverse_proxy " + model + "\n}", "&(limits) {\nZONE\n}\n&(outer) {\ninvoke limits\n}\n"},
		"in errors":     {"route {\nerror 503\n}\nhandle_errors {\nroute {\ninvoke limits\nreverse_proxy " + model + "\n}\n}", "&(limits) {\nZONE\n}\n"},
		"matched":       {"route {\ninvoke limits\nreverse_proxy " + dead + "\n}\nhandle_errors 502 503 {\nreverse_proxy " + model + "\n}\nhandle_errors {\nrespond no\n}", "&(limits) {\nZONE\n}\n"},
		"two of them":   {"route {\ninvoke limits\ninvoke more\nreverse_proxy " + dead + "\n}\nhandle_errors {\nreverse_proxy " + model + "\n}", "&(limits) {\nZONE\n}\n&(more) {\nrate_limit {\nzone other {\nin_flight 1\n}\n}\n}\n"},
		"beside others": {"rate_limit /none 1/1h\nroute {\ninvoke limits\nreverse_proxy " + dead + "\n}\nhandle_errors {\nreverse_proxy " + model + "\n}", "&(limits) {\nZONE\n}\n"},
	} {
		for charge, c2 := range map[string]struct {
			lines string
			want  int
		}{
			"tokens":       {"tokens openai {\nreserve 10\n}\nrule 20000/1h fixed_window", 5700},
			"body":         {"settle {response.body.usage.total_tokens}\nrule 20000/1h fixed_window", 5700},
			"count_status": {"count_status 2xx\nrule 20000/1h fixed_window", 1},
			"in_flight":    {"in_flight 1\nrule 20000/1h fixed_window", 1},
		} {
			t.Run(place+" "+charge, func(t *testing.T) {
				name := newName("z")
				zone := "rate_limit {\nzone " + name + " {\n" + c2.lines + "\n}\n}\n"
				s := serve(t, setup{site: c[0], more: strings.ReplaceAll(c[1], "ZONE", zone)})
				for i := range 2 {
					q := req{method: "POST", path: []string{"/v1", "/stream"}[i], body: `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`, header: map[string]string{"Content-Type": "application/json", "Accept-Encoding": "gzip"}}
					a := s.want(q, 200)
					if n := len(a.header.Values("RateLimit-Policy")); n != 1 && charge != "in_flight" {
						t.Errorf("%d headers RateLimit-Policy", n)
					}
				}
				s.wantCharged(name, int64(2*c2.want))
			})
		}
	}
}

// TestServedBySubroutes checks that error routes of a subroute, which only JSON has, charge what they answer: of a zone
// in the subroute, in a named route that it invokes, and around it.
func TestServedBySubroutes(t *testing.T) {
	model, dead := modelServer(t), closedPort(t)
	proxy := func(to string) string { return `{"handler":"reverse_proxy","upstreams":[{"dial":"` + to + `"}]}` }
	for place, c := range map[string][2]string{
		"inside":  {`{"handler":"subroute","routes":[{"handle":[ZONE,` + proxy(dead) + `]}],"errors":{"routes":[{"handle":[` + proxy(model) + `]}]}}`, `{"handle":[{"handler":"vars"}]}`},
		"invoked": {`{"handler":"subroute","routes":[{"handle":[{"handler":"invoke","name":"n"},` + proxy(dead) + `]}],"errors":{"routes":[{"handle":[` + proxy(model) + `]}]}}`, `{"handle":[ZONE]}`},
		"deep":    {`{"handler":"subroute","routes":[{"handle":[{"handler":"subroute","routes":[{"handle":[{"handler":"invoke","name":"n"},` + proxy(dead) + `]}]}]}],"errors":{"routes":[{"handle":[` + proxy(model) + `]}]}}`, `{"handle":[ZONE]}`},
		"within":  {`{"handler":"invoke","name":"n"}`, `{"handle":[{"handler":"subroute","routes":[{"handle":[ZONE,` + proxy(dead) + `]}],"errors":{"routes":[{"handle":[` + proxy(model) + `]}]}}]}`},
		"around":  {`ZONE,{"handler":"subroute","routes":[{"handle":[` + proxy(dead) + `]}],"errors":{"routes":[{"handle":[` + proxy(model) + `]}]}}`, `{"handle":[{"handler":"vars"}]}`},
	} {
		t.Run(place, func(t *testing.T) {
			name := newName("z")
			zone := `{"handler":"rate_limit","zones":[{"name":"` + name + `","tokens":{"reserve":10},"rules":[{"limit":20000,"window":"1h","algorithm":{"name":"fixed_window"}}]}]}`
			s := newSite(t)
			if err := s.loadJSON(fmt.Appendf(nil, `{"admin":{"disabled":true,"config":{"persist":false}},"storage":{"module":"file_system","root":%q},"apps":{"http":{"servers":{"srv0":{"listen":[":8001"],"automatic_https":{"disable":true},"routes":[{"handle":[%s]}],"named_routes":{"n":%s}}}}}}`,
				s.storage, strings.ReplaceAll(c[0], "ZONE", zone), strings.ReplaceAll(c[1], "ZONE", zone))); err != nil {
				t.Fatal(err)
			}
			s.want(req{method: "POST", body: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, header: map[string]string{"Content-Type": "application/json"}}, 200)
			s.wantCharged(name, 5700)
		})
	}
}
