package test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestBodyInErrorRoutes checks that error routes get the body of a request that was read, whatever copy of the
// request they have: tracing makes one for what is within it, and so do handle_response and intercept.
func TestBodyInErrorRoutes(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %s", r.ContentLength, b)
	}))
	defer echo.Close()
	dead := closedPort(t)
	const body = `{"id":"7","stream":true,"messages":[]}`
	for name, c := range map[string]struct{ zone, fails, want string }{
		"key":        {"key {body.id}\nkey_missing deny\nrule 5/1h", "reverse_proxy " + dead, body},
		"denied":     {"key {body.id}\nkey_missing deny\nrule 5/1h\noverride 7 {\nrule 0/1h\n}", "respond no", body},
		"tokens":     {"tokens openai {\nreserve 10\n}\nrule 20000/1h", "reverse_proxy " + dead, body},
		"ask_usage":  {"tokens openai {\nreserve 10\nask_usage\n}\nrule 20000/1h", "reverse_proxy " + dead, `{"stream_options":{"include_usage":true},` + body[1:]},
		"duplicates": {"prevent_duplicates 1h body", "error 503", body},
		"no writer":  {"key {body.id}\nkey_missing deny\nrule 5/1h", "error 503", body},
	} {
		headers := ""
		if name == "no writer" {
			headers = "headers off\n"
		}
		zone := "rate_limit {\n" + headers + "zone ZONE {\n" + c.zone + "\n}\n}\n"
		for place, site := range map[string]string{
			"plain":           "route {\n" + zone + c.fails + "\n}",
			"tracing":         "route {\ntracing {\nspan x\n}\n" + zone + c.fails + "\n}",
			"tracing between": "route {\n" + zone + "tracing {\nspan x\n}\n" + zone + c.fails + "\n}",
			"intercept":       "route {\nintercept {\nhandle_response {\nroute {\n" + zone + c.fails + "\n}\n}\n}\nrespond ok\n}",
			"named route":     "route {\ntracing {\nspan x\n}\ninvoke limits\n}",
		} {
			t.Run(name+" "+place, func(t *testing.T) {
				zone := newName("z")
				more := "&(limits) {\nroute {\n" + strings.ReplaceAll("rate_limit {\n"+headers+"zone ZONE {\n"+c.zone+"\n}\n}\n"+c.fails, "ZONE", zone) + "\n}\n}\n"
				s := serve(t, setup{site: strings.ReplaceAll(site, "ZONE", zone) + "\nhandle_errors {\nreverse_proxy " + echo.Listener.Addr().String() + "\n}", more: more})
				a := s.send(req{method: "POST", body: body, header: map[string]string{"Content-Type": "application/json"}})
				if want := fmt.Sprintf("%d %s", len(c.want), c.want); a.status != 200 || a.body != want {
					t.Errorf("status %d, %s, want %s", a.status, a.body, want)
				}
			})
		}
	}
}
