package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// modelServer answers as a language model that tells 5,700 tokens, or for /stream as a stream of events.
func modelServer(t *testing.T) string {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const usage = `"usage":{"prompt_tokens":700,"completion_tokens":5000,"total_tokens":5700}`
		w.Header().Set("X-Tokens", "5700")
		if strings.Contains(r.URL.Path, "stream") {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: {\"choices\":[],%s}\n\ndata: [DONE]\n\n", usage)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"content":"hi"}}],%s}`, usage)
	}))
	t.Cleanup(up.Close)
	return up.Listener.Addr().String()
}

// closedPort returns an address at which nobody listens.
func closedPort(t *testing.T) string {
	up := httptest.NewServer(nil)
	up.Close()
	return up.Listener.Addr().String()
}

// TestServedByAnotherHandler checks that a request costs what the response says that the client gets, wherever in the
// server it is made.
func TestServedByAnotherHandler(t *testing.T) {
	model, dead := modelServer(t), closedPort(t)
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
	defer failing.Close()
	broken := failing.Listener.Addr().String()
	zone := func(name, lines string) string { return "rate_limit {\nzone " + name + " {\n" + lines + "\n}\n}\n" }
	for place, site := range map[string]string{
		"error route":           "ZONE reverse_proxy " + dead + "\nhandle_errors {\nreverse_proxy " + model + "\n}",
		"the same zone there":   "ZONE reverse_proxy " + dead + "\nhandle_errors {\nroute {\nZONE reverse_proxy " + model + "\n}\n}",
		"only there":            "reverse_proxy " + dead + "\nhandle_errors {\nroute {\nZONE reverse_proxy " + model + "\n}\n}",
		"other zones there":     "ZONE reverse_proxy " + dead + "\nhandle_errors {\nroute {\n" + zone("other", "rule 100/1h") + "reverse_proxy " + model + "\n}\n}",
		"other zones around":    "route {\n" + zone("other", "in_flight 5\nrule 100/1h") + "ZONE" + zone("inner", "rule 100/1h") + "reverse_proxy " + dead + "\n}\nhandle_errors {\nreverse_proxy " + model + "\n}",
		"a matched error route": "ZONE reverse_proxy " + dead + "\nhandle_errors 502 503 {\nreverse_proxy " + model + "\n}\nhandle_errors {\nrespond no\n}",
		"error":                 "ZONE error 503\nhandle_errors {\nreverse_proxy " + model + "\n}",
		"handle_response":       "route {\nZONE reverse_proxy " + broken + " {\nmethod GET\n@bad status 5xx\nhandle_response @bad {\nreverse_proxy " + model + "\n}\n}\n}",
		"in handle_response":    "reverse_proxy " + broken + " {\nmethod GET\n@bad status 5xx\nhandle_response @bad {\nroute {\nZONE reverse_proxy " + model + "\n}\n}\n}",
		"intercept":             "route {\nZONE intercept {\n@bad status 5xx\nhandle_response @bad {\nreverse_proxy " + model + "\n}\n}\nrespond 500\n}",
	} {
		for charge, c := range map[string]struct {
			lines string
			want  int // charged
		}{
			"tokens":       {"tokens openai {\nreserve 10\n}\nrule 20000/1h fixed_window", 5700},
			"body":         {"settle {response.body.usage.total_tokens}\nrule 20000/1h fixed_window", 5700},
			"header":       {"cost 10\nhold\nsettle {http.response.header.X-Tokens}\nrule 20000/1h fixed_window", 5700},
			"count_status": {"count_status 2xx\nrule 20000/1h fixed_window", 1},
			"plain":        {"in_flight 1\nrule 20000/1h fixed_window", 1},
		} {
			t.Run(place+" "+charge, func(t *testing.T) {
				name := newName("z")
				s := serve(t, setup{site: strings.ReplaceAll(site, "ZONE", zone(name, c.lines))})
				for i := range 2 {
					a := s.send(req{method: "POST", path: []string{"/v1", "/stream"}[i], body: `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`, header: map[string]string{"Content-Type": "application/json", "Accept-Encoding": "gzip"}})
					if a.status != 200 {
						t.Fatalf("status %d", a.status)
					}
				}
				s.wantCharged(name, int64(2*c.want))
			})
		}
	}
}

// TestBytesOfAnErrorRoute checks that settle bytes charges what an error route writes.
func TestBytesOfAnErrorRoute(t *testing.T) {
	name := newName("z")
	s := serve(t, setup{site: "rate_limit {\nzone " + name + " {\nsettle bytes\nrule 20000/1h fixed_window\n}\n}\nerror 503\nhandle_errors {\nrespond " + strings.Repeat("x", 500) + "\n}"})
	s.want(req{}, 503)
	s.wantCharged(name, 500)
}

// TestStatusOfAnErrorRoute checks that count_status counts a response by its status and by that of the error that it
// answers.
func TestStatusOfAnErrorRoute(t *testing.T) {
	for _, c := range []struct {
		count, fails, answers string
		want                  int64
	}{
		{"2xx", "503", "200", 1}, {"401", "401", "302", 1}, {"401", "401", "401", 1}, {"404", "401", "200", 0}, {"2xx", "401", "401", 0}, {"5xx", "404", "500", 1},
	} {
		name := newName("z")
		s := serve(t, setup{site: "rate_limit {\nzone " + name + " {\ncount_status " + c.count + "\nrule 100/1h fixed_window\n}\n}\nerror " + c.fails + "\nhandle_errors {\nrespond " + c.answers + "\n}"})
		status, _ := strconv.Atoi(c.answers)
		s.want(req{}, status)
		t.Logf("count_status %s, error %s answered with %s", c.count, c.fails, c.answers)
		s.wantCharged(name, c.want)
	}
}

// TestPlaceOfAnErrorRoute checks that a request holds its place until an error route has answered it, and not longer
// however that ends.
func TestPlaceOfAnErrorRoute(t *testing.T) {
	for name, fails := range map[string]string{
		"answers":    "respond done",
		"fails":      "error 404",
		"does not":   "header X-A b",
		"for others": "@no path /no\nrespond @no no",
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, setup{site: "rate_limit {\nzone " + newName("z") + " {\nin_flight 1\nrule 3/1h\n}\n}\nerror 503\nhandle_errors {\n" + fails + "\n}"})
			for range 3 {
				if a := s.send(req{}); a.status == 429 {
					t.Fatal("a place is lost")
				}
			}
			s.want(req{}, 429)
		})
	}
}

// charged returns what the client has used of a zone's first rule.
func (s *site) charged(zone string) int64 {
	return s.key(http.MethodGet, zone, "127.0.0.1").Rules[0].Used
}

// wantCharged checks what the client has used of a zone once its requests have ended, which is after it has their
// responses.
func (s *site) wantCharged(zone string, want int64) {
	s.Helper()
	ended(s.T)
	if used := s.charged(zone); used != want {
		s.Errorf("%d charged, want %d", used, want)
	}
}
