package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// limiting returns a rate_limit of one zone, with headers.
func limiting(zone, rule, headers string, lines ...string) string {
	return fmt.Sprintf("rate_limit {\nheaders %s\nzone %s {\nrule %s\n%s\n}\n}\n", headers, zone, rule, strings.Join(lines, "\n"))
}

// TestNumbersOfSeveralHandlers checks that headers with numbers are those of the nearest rule of all
// handlers of a request, and on a denial of the rule that denies, wherever it stands.
func TestNumbersOfSeveralHandlers(t *testing.T) {
	const far, near, nearest = "100/1h fixed_window", "10/1h fixed_window", "2/1h fixed_window"
	cost := func(n int) string { return fmt.Sprintf("cost %d", n) }
	for name, c := range map[string]struct {
		site, header string
		want         []string // a status, a limit and what remains of it for each request
	}{
		"the inner is nearest":   {limiting("a", far, "legacy") + limiting("b", near, "legacy"), "", []string{"200 10 9"}},
		"the outer is nearest":   {limiting("a", near, "legacy") + limiting("b", far, "legacy"), "", []string{"200 10 9"}},
		"the innermost of three": {limiting("a", far, "legacy") + limiting("b", near, "legacy") + limiting("c", nearest, "legacy"), "", []string{"200 2 1", "200 2 0", "429 2 0"}},
		"the middle of three":    {limiting("a", far, "legacy") + limiting("b", nearest, "legacy") + limiting("c", near, "legacy"), "", []string{"200 2 1", "200 2 0", "429 2 0"}},
		"requests of OpenAI":     {limiting("a", far, "openai") + limiting("b", nearest, "openai"), "-Requests", []string{"200 2 1", "200 2 0", "429 2 0"}},
		// The other has less left.
		"the inner denies as an error": {
			limiting("a", "200/1h fixed_window", "legacy", cost(99)) + limiting("b", far, "legacy", cost(60)), "",
			[]string{"200 100 40", "429 100 40"},
		},
		"the inner denies by respond": {
			limiting("a", "200/1h fixed_window", "legacy", cost(99)) + limiting("b", far, "legacy", cost(60), "respond 503 busy"), "",
			[]string{"200 100 40", "503 100 40"},
		},
		"one of two zones denies": {
			"rate_limit {\nheaders legacy\nzone a {\nrule 200/1h fixed_window\ncost 99\n}\nzone b {\nrule 100/1h fixed_window\ncost 60\n}\n}\n", "",
			[]string{"200 100 40", "429 100 40"},
		},
		"one of two zones denies, of OpenAI": {
			"rate_limit {\nheaders openai\nzone a {\nrule 200/1h fixed_window\ncost 99\n}\nzone b {\nrule 100/1h fixed_window\ncost 60\n}\n}\n", "-Requests",
			[]string{"200 100 40", "429 100 40"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n, errors := range []string{"", "handle_errors {\nrespond error\n}", "handle_errors {\n" + limiting("e", "100/1h fixed_window", "all") + "respond error\n}"} {
				s := serve(t, setup{site: "route {\n" + c.site + "respond ok\n}\n" + errors})
				for i, want := range c.want {
					a := s.send(req{ip: fmt.Sprintf("10.0.0.%d", n)}) // the counts outlive a configuration
					got := fmt.Sprint(a.status, " ", a.get("X-RateLimit-Limit"+c.header), " ", a.get("X-RateLimit-Remaining"+c.header))
					if got != want {
						t.Errorf("request %d: %s, want %s; errors: %s", i+1, got, want, errors)
					}
				}
			}
		})
	}
}

// TestUpstreamThatLimitsItself checks that of two limits the stricter is told, with all that belongs
// to it.
func TestUpstreamThatLimitsItself(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.URL.Query() {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer up.Close()
	for i, c := range []struct{ headers, query, want string }{
		{"legacy", "X-RateLimit-Remaining=0&X-RateLimit-Limit=5&X-RateLimit-Reset=1700000000", "X-RateLimit-Remaining=0&X-RateLimit-Limit=5&X-RateLimit-Reset=1700000000"},
		{"legacy", "X-RateLimit-Remaining=0", "X-RateLimit-Remaining=0&X-RateLimit-Limit=&X-RateLimit-Reset="},
		{"legacy", "X-RateLimit-Remaining=99&X-RateLimit-Limit=500", "X-RateLimit-Remaining=99&X-RateLimit-Limit=100&X-RateLimit-Reset=3600"},
		{"legacy", "X-RateLimit-Remaining=many", "X-RateLimit-Remaining=99&X-RateLimit-Limit=100"},
		{"legacy", "X-RateLimit-Remaining=-1", "X-RateLimit-Remaining=99&X-RateLimit-Limit=100"},
		{"legacy", "X-RateLimit-Remaining=3, 98", "X-RateLimit-Remaining=3, 98"},
		{"legacy", "X-RateLimit-Remaining=0.0&X-RateLimit-Limit=600.0", "X-RateLimit-Remaining=0.0&X-RateLimit-Limit=600.0&X-RateLimit-Reset="},
		{"legacy", "X-RateLimit-Remaining=598.0", "X-RateLimit-Remaining=99&X-RateLimit-Limit=100"},
		{"legacy", "X-RateLimit-Remaining=nan", "X-RateLimit-Remaining=99&X-RateLimit-Limit=100"},
		{"legacy", "X-RateLimit-Remaining=0%3Bw=60", "X-RateLimit-Remaining=0%3Bw=60"},
		{"legacy", "RateLimit-Remaining=0&RateLimit-Limit=5", "RateLimit-Remaining=0&RateLimit-Limit=5&X-RateLimit-Remaining=99"},
		{"draft", `RateLimit="a"%3Br=500, "b"%3Bt=7%3Br=5`, `RateLimit="a"%3Br=500, "b"%3Bt=7%3Br=5&RateLimit-Policy=`},
		{"legacy", "X-RateLimit-Used=7", "X-RateLimit-Used=7&X-RateLimit-Remaining=99"},
		{"draft", `RateLimit="default"%3Br=98%3Bt=7&RateLimit-Policy="default"%3Bq=500`, `RateLimit="default"%3Br=98%3Bt=7&RateLimit-Policy="default"%3Bq=500`},
		{"draft", `RateLimit="default"%3Br=100%3Bt=7&RateLimit-Policy="default"%3Bq=500`, `RateLimit="api"%3Br=99%3Bt=3600&RateLimit-Policy="api"%3Bq=100%3Bw=3600`},
		{"draft", `RateLimit=limit=100, remaining=5, reset=50`, `RateLimit=limit=100, remaining=5, reset=50&RateLimit-Policy=`},
		{"draft", "X-RateLimit-Remaining=5", `X-RateLimit-Remaining=5&RateLimit="api"%3Br=99%3Bt=3600`},
		{"all", "X-RateLimit-Remaining=5", `X-RateLimit-Remaining=5&RateLimit="api"%3Br=99%3Bt=3600`},
		{"openai", "X-RateLimit-Remaining-Requests=5&X-RateLimit-Reset-Requests=2m", "X-RateLimit-Remaining-Requests=5&X-RateLimit-Reset-Requests=2m&X-RateLimit-Limit-Requests="},
		{"openai", "X-RateLimit-Remaining-Requests=500", "X-RateLimit-Remaining-Requests=99&X-RateLimit-Reset-Requests=1h0m0s"},
		{"openai", "X-RateLimit-Remaining-Tokens=5", "X-RateLimit-Remaining-Tokens=5&X-RateLimit-Remaining-Requests=99"},
	} {
		s := serve(t, setup{site: "rate_limit {\nheaders " + c.headers + "\nzone api {\nrule 100/1h fixed_window\n}\n}\nreverse_proxy " + up.Listener.Addr().String()})
		a := s.want(req{ip: fmt.Sprintf("10.0.0.%d", i), path: "/?" + strings.ReplaceAll(c.query, " ", "%20")}, 429)
		for _, field := range strings.Split(c.want, "&") {
			name, want, _ := strings.Cut(field, "=")
			if want = strings.ReplaceAll(want, "%3B", ";"); !s.tells(a, name, want) {
				t.Errorf("case %d: %s %q, want %q", i, name, a.header.Values(name), want)
			}
		}
	}
}

// tells reports whether a header has one value and it is this, or, if it is empty, none. Times are
// shorter if the machine stood still.
func (s *site) tells(a *answer, name, want string) bool {
	got := a.header.Values(name)
	if len(got) != 1 || want == "" {
		return len(got) == 0 && want == ""
	}
	wanted, err := strconv.Atoi(want)
	if n, err2 := strconv.Atoi(got[0]); err == nil && err2 == nil && wanted >= 3600 {
		return n <= wanted && n > wanted-600
	}
	gotText, _ := cutTimes(got[0])
	wantText, _ := cutTimes(want)
	return gotText == wantText
}

// TestErrorRouteThatProxies checks that an upstream in an error route adds nothing to the headers of a
// denial, and that a response with which it serves the request has nothing of the denial.
func TestErrorRouteThatProxies(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.URL.Query() {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
		status, _ := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
		w.WriteHeader(status)
	}))
	defer up.Close()
	const (
		denied = `RateLimit="a";r=7;t=3600, "b";r=0;t=3600&RateLimit-Policy="a";q=9;w=3600, "b";q=1;w=3600&X-RateLimit-Limit=1&Retry-After=3600`
		served = `RateLimit="a";r=7;t=3600&RateLimit-Policy="a";q=9;w=3600&X-RateLimit-Limit=9&Retry-After=`
	)
	for i, c := range []struct{ path, errors, want string }{
		{"/429", "", denied + "&Cache-Control=no-store"},
		{"/429?Retry-After=7&RateLimit=x&RateLimit-Policy=x&X-RateLimit-Limit=x", "", denied},
		{"/503?Retry-After=9000", "", strings.Replace(denied, "After=3600", "After=9000", 1)},
		{"/429?Cache-Control=private", "", denied + "&Cache-Control=private"},
		{"/404", "", denied},
		{"/200", "", served + "&Cache-Control="},
		{"/200?Retry-After=7&Cache-Control=public", "", strings.Replace(served, "After=", "After=7", 1) + "&Cache-Control=public"},
		{"/204?RateLimit=x&RateLimit-Policy=x", "", served},
		{"/302", "", served},
		{"/200", "header Retry-After 5\nheader -RateLimit", "Retry-After=5&RateLimit=&X-RateLimit-Limit=9"},
		{"/429", "header Retry-After 5\nheader -RateLimit\nheader X-RateLimit-Limit x", "Retry-After=5&RateLimit=&X-RateLimit-Limit=x"},
		{"/200", limiting("e", "3/1h", "all"), `RateLimit="a";r=7;t=3600, "e";r=2;t=3600&X-RateLimit-Limit=3&Retry-After=`},
		{"/429", limiting("e", "3/1h", "all"), `RateLimit="a";r=7;t=3600, "b";r=0;t=3600, "e";r=2;t=3600&X-RateLimit-Limit=1&Retry-After=3600`},
	} {
		s := serve(t, setup{site: "route {\n" + limiting("a", "9/1h fixed_window", "all") + limiting("b", "1/1h fixed_window", "all", "cost 1") + "respond ok\n}\nhandle_errors {\nroute {\n" + c.errors + "\nreverse_proxy " + up.Listener.Addr().String() + "\n}\n}"})
		client := fmt.Sprintf("10.0.0.%d", i)
		s.want(req{ip: client, path: "/first"}, 200)
		a := s.send(req{ip: client, path: c.path})
		if want := c.path[1:4]; strconv.Itoa(a.status) != want {
			t.Errorf("case %d: status %d, want %s", i, a.status, want)
		}
		for _, field := range strings.Split(c.want, "&") {
			name, want, _ := strings.Cut(field, "=")
			if !s.tells(a, name, want) {
				t.Errorf("case %d: %s %q, want %q", i, name, a.header.Values(name), want)
			}
		}
	}
}

// TestErrorRouteOfTheUpstream checks the headers of a request that was admitted and whose upstream
// failed: an error route that proxies adds nothing to them.
func TestErrorRouteOfTheUpstream(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining"} {
			w.Header().Set(name, "500")
		}
	}))
	defer up.Close()
	s := serve(t, setup{site: limiting("a", "9/1h fixed_window", "all") + "error 502\nhandle_errors {\nreverse_proxy " + up.Listener.Addr().String() + "\n}"})
	a := s.want(req{}, 200)
	for name, want := range map[string]string{"RateLimit": `"a";r=8;t=3600`, "RateLimit-Policy": `"a";q=9;w=3600`, "X-RateLimit-Limit": "9", "X-RateLimit-Remaining": "8"} {
		if !s.tells(a, name, want) {
			t.Errorf("%s %q, want %q", name, a.header.Values(name), want)
		}
	}
}

// TestShouldRetry checks that headers openai keep clients from a wait above a minute, or without an end.
func TestShouldRetry(t *testing.T) {
	for _, c := range []struct{ rule, should, zone string }{
		{"1/60s fixed_window", "", ""},
		{"1/90s fixed_window", "false", ""},
		{"1/4d fixed_window", "false", ""},
		{"1/1s fixed_window", "false", "key {header.X-Key}\nkey_missing deny"},
	} {
		s := serve(t, setup{site: limiting("a", c.rule, "openai", c.zone) + "respond ok"})
		if c.zone == "" {
			s.want(req{}, 200)
		}
		a := s.want(req{}, 429)
		if got := a.get("X-Should-Retry"); got != c.should {
			t.Errorf("%s: x-should-retry %q, want %q", c.rule, got, c.should)
		}
		if ms, _ := strconv.Atoi(a.get("Retry-After-Ms")); c.zone == "" && (ms > 60_000) != (c.should == "false") {
			t.Errorf("%s: retry-after-ms %d", c.rule, ms)
		}
	}
}
