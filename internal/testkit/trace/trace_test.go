package trace

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRun checks that every expectation of a trace can succeed and fail.
func TestRun(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		w.Header().Set("Retry-After", "60")
		w.Header().Set("X-Seen", strings.Join([]string{
			r.Method, r.URL.String(), r.Host, r.Header.Get("X-Forwarded-For"), r.Header.Get("X-A"), user + password, r.Header.Get("Upgrade"),
		}, " "))
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = w.Write(append([]byte("body "), body...))
	}))
	defer srv.Close()
	for _, c := range []struct{ line, want string }{
		{`POST /a?b=c X-A=1 from=192.0.2.1 host=h "body=x y" basic=u:p upgrade => 200*2 "has=body x y" "X-Seen=POST /a?b=c h 192.0.2.1 1 up websocket"`, ""},
		{"GET /no => 429 retry=60", ""},
		{"GET /no => until 429", ""},
		{"together GET / => 200*3", ""},
		{"GET / => 200 X-No=none", ""},
		{"GET /no => 200*2 429", "request 1: status 429"},
		{"together GET / => 200*2 429", "statuses [200 200 200]"},
		{"GET / => 200 retry=59", "retry-after"},
		{"GET / => 200 retry=70", "retry-after"},
		{"GET / => 200 retry=none", "retry-after"},
		{"GET / => 200 has=other", "body"},
		{"GET / => 200 X-Seen=none", "header X-Seen"},
		{"GET / => 200 X-No=1", "header X-No"},
		{"GET / => 200 took=1h", "took"},
	} {
		steps, err := Parse("# a comment\n" + c.line + "\n")
		if err != nil {
			t.Fatal(err)
		}
		n, err := Run(srv.Client(), srv.URL, steps)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.line, err, c.want)
		}
		if err == nil && n != len(steps[0].Statuses) {
			t.Errorf("%s: %d requests, want %d", c.line, n, len(steps[0].Statuses))
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, line := range []string{"GET /", "GET / =>", "GET / X => 200", "GET / => 20", "GET / => 200*x", "GET / => until 200 429", "GET / => 200 took=x", `GET / "`} {
		if s, err := Parse(line); err == nil {
			t.Errorf("%s: parsed as %+v, want an error", line, s)
		}
	}
}
