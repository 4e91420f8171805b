package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/internal/limiter"
)

func TestCost(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone fixed {
					match path /fixed
					rule 10/1h
					rule 20/2h gcra burst 10
					cost 3
				}
				zone priced {
					match path /priced
					rule 10/1h
					cost {header.X-Cost}
				}
			}
			respond ok`})
		a := s.want(req{path: "/fixed"}, 200, 200, 200, 429)
		s.wantHeader(a, "RateLimit", `"fixed";r=1;t=3600, "fixed.2";r=1;t=360`)

		priced := func(cost string) req { return req{path: "/priced", header: map[string]string{"X-Cost": cost}} }
		for _, c := range []struct {
			cost   string
			status int
			left   int
		}{
			{"4", 200, 6}, {"7", 429, 6}, {"6", 200, 0}, {"1", 429, 0},
		} {
			a := s.want(priced(c.cost), c.status)
			s.wantHeader(a, "RateLimit", fmt.Sprintf(`"priced";r=%d;t=3600`, c.left))
			if c.status == 429 {
				s.between(a, "Retry-After", 3590, 3600)
			}
		}
	})
}

// TestBadCostCountsAsOne checks that a cost that is not an integer of at least 1
// is charged as 1 and counted in bad_cost_total.
func TestBadCostCountsAsOne(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: costZone("badcost")})
		bad := []string{"", "0", "-1", "-99999999999999999999", "1.5", "1e3", "0x10", "many", "٣", "5 5"}
		before := s.metric("bad_cost_total", "zone", "badcost")
		for i, v := range bad {
			a := s.want(req{header: map[string]string{"X-Cost": v}}, 200)
			s.wantHeader(a, "RateLimit", fmt.Sprintf(`"badcost";r=%d;t=3600`, 99-i))
		}
		if got := s.metric("bad_cost_total", "zone", "badcost") - before; got != float64(len(bad)) {
			t.Errorf("bad_cost_total rose by %v, want %d", got, len(bad))
		}
		s.want(req{header: map[string]string{"X-Cost": " 10 "}}, 200)
		s.want(req{header: map[string]string{"X-Cost": "+10"}}, 200)
		if got := s.metric("bad_cost_total", "zone", "badcost") - before; got != float64(len(bad)) {
			t.Error("bad_cost_total rose for a valid cost")
		}
	})
}

func costZone(zone string) string {
	return `
		rate_limit {
			zone ` + zone + ` {
				rule 100/1h
				cost {header.X-Cost}
			}
		}
		respond ok`
}

// TestCostAboveLimit checks that a cost no wait could admit is denied without
// Retry-After.
func TestCostAboveLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: costZone("z")})
		for _, v := range []string{"101", "9007199254740993", "9223372036854775807", "9223372036854775808", "99999999999999999999999"} {
			a := s.want(req{header: map[string]string{"X-Cost": v}}, 429)
			s.wantNoHeader(a, "Retry-After")
			s.wantHeader(a, "RateLimit", `"z";r=100;t=0`)
		}
		s.want(req{header: map[string]string{"X-Cost": "100"}}, 200)
	})
}

// TestSettle checks that the excess of the settled cost over the initial cost is
// charged after the response, even into debt, and that nothing is refunded.
func TestSettle(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, rule := range []string{"fixed_window", "sliding_window", "sliding_log", "gcra", "token_bucket"} {
			tokens := "0"
			s := serve(t, setup{app: b.app(), site: `
				rate_limit {
					zone ` + rule + ` {
						rule 100/100h ` + rule + `
						cost 10
						settle {http.response.header.X-Tokens}
					}
				}
				` + handle(t, "*", func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("X-Tokens", tokens)
				_, err := w.Write([]byte("ok"))
				return err
			})})
			for _, c := range []struct {
				tokens string
				left   int // reported by the response, before settling
			}{
				{"30", 90}, {"5", 60}, {"-50", 50}, {"none", 40}, {"", 30}, {"1000000", 20},
			} {
				tokens = c.tokens
				a := s.want(req{}, 200)
				if got := a.get("RateLimit"); !like(fmt.Sprintf(`"%s";r=%d;t=*`, rule, c.left), got) {
					t.Errorf("tokens %q: RateLimit %s, want %d left", c.tokens, got, c.left)
				}
			}
			a := s.want(req{}, 429)
			if rule == "gcra" || rule == "token_bucket" { // owes all of it
				const used = 70 + 1_000_000 // the cost of 10 of the last is within what it settles
				s.between(a, "Retry-After", (used-90)*3600-10, (used-90)*3600)
			} else { // owes at most one capacity
				s.between(a, "Retry-After", 1, 2*100*3600)
			}
		}
	})
}

// TestSettleByHiddenHeader has handlers outside remove or replace the cost in the header of the
// response: what counts is what passed the zone. A trailer counts, too, whether the header announces it or not.
func TestSettleByHiddenHeader(t *testing.T) {
	for i, c := range []struct {
		outside, option, trailer string
		charge                   int
	}{
		{"", "settle {http.response.header.X-Tokens}", "", 100},
		{"header -X-Tokens", "settle {http.response.header.x-tokens}", "", 100},
		{"header >X-Tokens 1", "settle {http.response.header.X-Tokens}", "", 100},
		{"header -X-Tokens", "settle {http.response.header.X-Tokens}*{response.body.n}", "", 500},
		{"header -X-Tokens", "tokens {\ninput {http.response.header.X-Tokens}\nreserve 7\n}", "", 1005},
		{"header -X-Tokens", "settle {http.response.header.X-Late}", "X-Late", 100},
		{"header -X-Tokens", "settle {http.response.header.x-late}", http.TrailerPrefix + "X-Late", 100},
	} {
		s := serve(t, setup{site: c.outside + `
			rate_limit {
				zone z {
					key {header.X-Key}
					rule 10000/1h
					` + c.option + `
					` + map[bool]string{true: "cost 7\nhold"}[strings.HasPrefix(c.option, "settle")] + `
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("X-Tokens", "100")
			if c.trailer != "" {
				if !strings.HasPrefix(c.trailer, http.TrailerPrefix) {
					w.Header().Set("Trailer", c.trailer)
				}
				defer w.Header().Set(c.trailer, "100")
			}
			w.Header().Set("Content-Type", "application/json")
			_, err := w.Write([]byte(`{"n":5,"usage":{"prompt_tokens":10,"completion_tokens":5}}`))
			return err
		})})
		s.want(asking(fmt.Sprint(i), `{}`), 200)
		ended(t)
		if n := s.key(http.MethodGet, "z", fmt.Sprint(i)).Rules[0].Used; int(n) != c.charge {
			t.Errorf("%s, %s: %d charged, want %d", c.outside, c.option, n, c.charge)
		}
	}
}

// TestSettleByBytes checks that bytes are those that were sent: none of a HEAD, whatever the handler
// writes. How many pass after an upgrade is unknown, and costs what was held.
func TestSettleByBytes(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(echo))
	defer up.Close()
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				key {method}
				rule 1000/1h
				cost 7
				settle bytes
				hold
			}
		}
		@upgrade header Upgrade echo
		route {
			reverse_proxy @upgrade ` + up.Listener.Addr().String() + `
			respond "0123456789"
		}`})
	s.want(req{}, 200)
	s.want(req{method: "HEAD"}, 200)
	conn, resp := s.upgrade(req{method: "PATCH"})
	_ = conn.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("status %d of an upgrade", resp.StatusCode)
	}
	ended(t)
	for method, want := range map[string]int{"GET": 10, "HEAD": 0, "PATCH": 7} {
		if n := used(s, method); n != want {
			t.Errorf("%s: %d charged, want %d", method, n, want)
		}
	}
}

// TestHoldsOfAnotherKind checks that what requests hold under rules of another kind does not count
// after a reload, while their permits do, and that their charges are not those of the new rules.
func TestHoldsOfAnotherKind(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		conf := func(rule string) setup {
			return setup{app: b.app(), site: `
				rate_limit {
					zone z {
						key {path}
						rule ` + rule + `
						cost 6
						settle bytes
						hold
						in_flight 3
					}
				}
				` + handle(t, "*", g.ServeHTTP) + `
				handle_errors {
					respond "{http.rate_limit.exceeded.rule}"
				}`}
		}
		s := serve(t, conf("7/1h"))
		for i, kinds := range [][2]string{{"10/1h sliding_log", "10/1h token_bucket"}, {"10/1h gcra", "10/2h fixed_window"}, {"10/1h fixed_window", "10/1h fixed_window\nrule 100/1d fixed_window"}} {
			s.reload(conf(kinds[0]))
			q := req{path: fmt.Sprintf("/%d", i)}
			held := func() limiter.KeyRule { return s.key(http.MethodGet, "z", q.path).Rules[0] }
			before := s.open(g, q)
			s.want(q, 429)
			s.reload(conf(kinds[1]))
			after := s.open(g, q)
			if a := s.want(q, 429); a.get("Retry-After") != "1" { // 6 of 10 are held again
				t.Errorf("%v: Retry-After %q of a denial by what is held", kinds, a.get("Retry-After"))
			}
			s.reload(conf(strings.Replace(kinds[1], "10/", "30/", 1)))
			third := s.open(g, q)
			if a := s.want(q, 429); a.body != "in_flight" || held().Held != 12 { // the first has a permit
				t.Errorf("%v: denied by %s, %+v", kinds, a.body, held())
			}
			for range 3 {
				g.goOn <- true
			}
			for _, status := range []<-chan int{before, after, third} {
				if got := <-status; got != 200 {
					t.Errorf("%v: status %d", kinds, got)
				}
			}
			ended(t)
			if r := held(); r.Used != 4 || r.Held != 0 {
				t.Errorf("%v: %+v, want the 4 used that the requests under the new rules sent", kinds, r)
			}
		}
	})
}

// TestCountStatus checks, for every way to respond, that only responses with a
// counted status are charged.
func TestCountStatus(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("s"))
		w.WriteHeader(status)
	}))
	defer up.Close()
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone bad {
					match query z=bad
					key {query.k}
					rule 1/1h
					count_status 401 5xx
				}
				zone good {
					match query z=good
					key {query.k}
					rule 1/1h
					count_status 200
				}
			}
			basic_auth /auth {
				user $2a$04$e5zdgH4ep2BC6pX5Ei49xe6O8GIkjY8ve9w6Q0yTAiPyzVpDGzPOK
			}
			error /error/503 503
			error /error/404 404
			reverse_proxy /up ` + up.Listener.Addr().String() + `
			` + handle(t, "/implicit", func(w http.ResponseWriter, _ *http.Request) error { _, err := w.Write([]byte("x")); return err }) + `
			` + handle(t, "/silent", func(http.ResponseWriter, *http.Request) error { return nil }) + `
			` + handle(t, "/fails", func(http.ResponseWriter, *http.Request) error { return http.ErrBodyNotAllowed }) + `
			respond /204 204
			respond /499 499
			handle_errors {
				respond "the page for errors" 418
			}`})
		for i, c := range []struct {
			path   string
			status int
			counts string // the zone that charges it, if any
		}{
			{"/auth?", 418, "bad"},
			{"/error/503?", 418, "bad"},
			{"/error/404?", 418, ""},
			{"/fails?", 418, "bad"},
			{"/up?s=401&", 401, "bad"},
			{"/up?s=502&", 502, "bad"},
			{"/up?s=403&", 403, ""},
			{"/up?s=200&", 200, "good"},
			{"/implicit?", 200, "good"},
			{"/silent?", 200, "good"},
			{"/204?", 204, ""},
			{"/499?", 499, ""},
		} {
			for _, zone := range []string{"bad", "good"} {
				q := req{path: c.path + "z=" + zone + "&k=" + strconv.Itoa(i)}
				a := s.want(q, c.status)
				s.wantHeader(a, "RateLimit", `"`+zone+`";r=0;t=1`) // its own reservation
				if c.counts != zone {
					s.want(q, c.status, c.status)
					continue
				}
				denied := s.send(q)
				if got := denied.get("RateLimit"); got != `"`+zone+`";r=0;t=3600` || denied.get("Retry-After") == "" {
					t.Errorf("%s: RateLimit %s, want it charged in %s", c.path, got, zone)
				}
			}
		}
	})
}

// TestSettleOfCountedStatus checks that only responses with a counted status are
// settled.
func TestSettleOfCountedStatus(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					rule 100/1h
					cost 5
					count_status 200
					settle {query.tokens}
				}
			}
			respond /bad 400
			respond ok`})
		left := func(want int) {
			t.Helper()
			a := s.want(req{path: "/bad"}, 400)
			if got := a.get("RateLimit"); !strings.HasPrefix(got, fmt.Sprintf(`"z";r=%d;`, want-5)) { // its own cost is reserved
				t.Errorf("RateLimit %s, want %d left", got, want)
			}
		}
		left(100)
		s.want(req{path: "/bad?tokens=50"}, 400)
		left(100)
		s.want(req{path: "/?tokens=3"}, 200) // less than the cost: nothing is refunded
		left(95)
		s.want(req{path: "/?tokens=25"}, 200)
		left(70)
		s.want(req{path: "/"}, 200)
		left(65)
	})
}

// TestParallelLogins sends a thousand wrong passwords concurrently: exactly the
// limit reaches the login.
func TestParallelLogins(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone login {
					key all
					rule 5/1m
					count_status 401
				}
			}
			respond /right 200
			respond 401`})
		var statuses [600]atomic.Int64
		parallel(50, func(int) {
			for range 20 {
				if a, err := s.try(req{path: "/wrong"}); err != nil {
					t.Error(err)
				} else {
					statuses[a.status].Add(1)
				}
			}
		})
		if n := statuses[401].Load(); n != 5 {
			t.Errorf("%d of 1000 responses are 401, want exactly 5", n)
		}
		if n := statuses[401].Load() + statuses[429].Load(); n != 1000 {
			t.Errorf("%d responses are 401 or 429, want 1000", n)
		}
		s.between(s.want(req{path: "/right"}, 429), "Retry-After", 1, 60)
	})
}

// TestPendingRequestsDenyForOneSecond checks that a denial caused by reservations
// of unanswered requests, whose end is unknown, has a Retry-After of one second.
func TestPendingRequestsDenyForOneSecond(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		entered, goOn := make(chan bool), make(chan bool)
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					rule 2/1h name r
					count_status 401
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			entered <- true
			<-goOn
			w.WriteHeader(200)
			return nil
		}) + `
			handle_errors {
				respond {http.rate_limit.exceeded.rule}
			}`})
		done := make(chan int, 3)
		for range 2 {
			go func() { a, _ := s.try(req{}); done <- a.status }()
			<-entered
		}
		a := s.want(req{}, 429)
		s.wantHeader(a, "Retry-After", "1")
		if a.body != "r" {
			t.Errorf("rule %q", a.body)
		}
		goOn <- true
		if status := <-done; status != 200 {
			t.Errorf("status %d", status)
		}
		// One was answered with a status that is not counted: its reservation is released.
		until(t, "the reservation to be released", func() bool {
			go func() { a, _ := s.try(req{}); done <- a.status }()
			select {
			case <-entered:
				return true
			case status := <-done:
				return status != 429
			}
		})
		goOn <- true
		goOn <- true
	})
}

// TestAbortedResponseIsCounted checks that a response aborted after its counted
// status was written is charged: aborting must not bypass the limit.
func TestAbortedResponseIsCounted(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					rule 1/1h
					count_status 401
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.Path == "/written" {
				w.WriteHeader(401)
			}
			panic(http.ErrAbortHandler)
		})})
		for range 3 { // no status was written, so nothing is charged
			if a, err := s.try(req{path: "/nothing"}); err == nil {
				t.Fatalf("status %d, want an aborted connection", a.status)
			}
		}
		until(t, "the reservations to be released", func() bool { a, err := s.try(req{path: "/written"}); return err != nil || a.status != 429 })
		until(t, "a denial", func() bool { a, err := s.try(req{path: "/written"}); return err == nil && a.status == 429 })
		s.between(s.want(req{}, 429), "Retry-After", 3590, 3600)
	})
}
