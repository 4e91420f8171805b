package test

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// causeSite serves a zone z around a handler, and tells {http.rate_limit.exceeded.cause} of a denial.
func causeSite(t *testing.T, app, zone, handler string) *site {
	return serve(t, setup{app: app, site: `
		handle_errors {
			respond "{http.rate_limit.exceeded.cause}"
		}
		rate_limit {
			zone z {
				` + zone + `
			}
			zone other {
				rule 1000/1h
			}
		}
		` + handler})
}

// wantCause checks that the last of these requests is denied for a cause, which the placeholder, the
// log, the access log, the metric and the top keys name.
func (s *site) wantCause(cause, rule string, q req, statuses ...int) {
	s.Helper()
	before := s.metric("denied_total", "zone", "z", "rule", rule, "cause", cause)
	status := statuses[len(statuses)-1]
	a := s.want(q, statuses...)
	if a.body != cause {
		s.Errorf("exceeded.cause is %q, want %q", a.body, cause)
	}
	lines := s.log.lines(s.T, "rate limit exceeded")
	if last := lines[len(lines)-1]; last["cause"] != cause || last["rule"] != rule {
		s.Errorf("%s: log line of rule %v with cause %v", cause, last["rule"], last["cause"])
	}
	until(s.T, "the access log to say "+cause, func() bool {
		for _, line := range s.log.lines(s.T, "handled request") {
			if d, _ := line["rate_limit"].(map[string]any); d["cause"] == cause && d["zone"] == "z" && line["status"] == float64(status) {
				return true
			}
		}
		return false
	})
	if n := s.metric("denied_total", "zone", "z", "rule", rule, "cause", cause) - before; n < 1 {
		s.Errorf("denied_total with cause %s rose by %v", cause, n)
	}
}

// explained returns the explanation of a GET request.
func (s *site) explained(path, ip string) (x cli.Explanation) {
	s.Helper()
	if status, text := s.admin("POST", "explain", `{"url": "http://localhost`+path+`", "client_ip": "`+ip+`"}`, &x); status != 200 {
		s.Fatalf("explain: %d %s", status, text)
	}
	return x
}

func TestCauses(t *testing.T) {
	const denied = 429
	for _, c := range []struct {
		cause, rule, zone string
		q                 req
		statuses          []int
	}{
		{"rule", "1", "rule 1/1h", req{}, []int{200, denied}},
		{"rule", "1", "rule 1/1h block 1h", req{}, []int{200, denied}},
		{"blocked", "1", "rule 1/1h block 1h", req{}, []int{200, denied, denied}},
		{"rule", "1", "rule 1/1h\noverride 127.0.0.1 {\nrule 0/1h\n}", req{}, []int{denied}},
		{"duplicate", "prevent_duplicates", "rule 9/1h\nprevent_duplicates 1h", req{method: "POST"}, []int{200, denied}},
		{"key_missing", "key_missing", "rule 9/1h\nkey {header.A}\nkey_missing deny", req{}, []int{denied}},
		{"key_repeated", "key_repeated", "rule 9/1h\nkey {query.a}\nkey_missing skip", req{path: "/?a=1&a=2"}, []int{denied}},
		{"too_large", "1", "rule 9/1h\ncost {header.Cost}", req{header: map[string]string{"Cost": "10"}}, []int{denied}},
		{"overflow", "1", "rule 1/1h\nmax_keys 1", req{ip: "10.0.0.2"}, []int{200, denied}},
	} {
		t.Run(c.cause, func(t *testing.T) {
			s := causeSite(t, "", c.zone, "respond ok")
			if c.cause == "overflow" {
				s.want(req{ip: "10.0.0.1"}, 200)
			}
			s.wantCause(c.cause, c.rule, c.q, c.statuses...)
		})
	}
}

// TestCauseOfRunningRequests has requests under way deny others: by a place, by the cost that they
// hold, and by a queue that is full. A client that leaves while it waits is not denied.
func TestCauseOfRunningRequests(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, c := range []struct{ cause, rule, zone string }{
			{"in_flight", "in_flight", "in_flight 1"},
			{"held", "1", "rule 9/1h token_bucket\ncost 9\nsettle {http.response.header.X-Cost}\nhold"},
		} {
			g := newGate()
			s := causeSite(t, b.app(), c.zone, handle(t, "*", g.ServeHTTP))
			inside := s.open(g, req{})
			s.wantCause(c.cause, c.rule, req{}, 429)
			if x := s.explained("/", "127.0.0.1"); x.Cause != c.cause || x.Handlers[0].Zones[1].Cause != "other_zone" {
				t.Errorf("explained as %+v", x)
			}
			g.goOn <- true
			<-inside
		}
		g := newGate()
		s := causeSite(t, b.app(), "in_flight 1\nmax_wait 30s\nmax_waiting 1", handle(t, "*", g.ServeHTTP))
		inside := s.open(g, req{})
		ctx, leave := context.WithCancel(t.Context())
		go func() { _, _ = s.try(req{ctx: ctx}) }()
		until(t, "one to wait", func() bool { return waiting() == 1 })
		s.wantCause("waiting", "in_flight", req{}, 429)
		s.wantLeft(func() { leave() }, "in_flight")
		g.goOn <- true
		<-inside
	})
}

// wantLeft checks that a request whose client leaves is counted apart, and not as denied.
func (s *site) wantLeft(leave func(), rule string) {
	s.Helper()
	denials := func() (n float64) {
		return s.metric("decisions_total", "zone", "z", "decision", "denied") + s.metric("decisions_total", "zone", "z", "decision", "delayed")
	}
	left := func() float64 { return s.metric("decisions_total", "zone", "z", "decision", "left") }
	before, beforeLeft, lines, requests := denials(), left(), len(s.log.lines(s.T, "rate limit exceeded")), s.zones().Requests
	leave()
	until(s.T, "the request to be counted as left", func() bool { return left() == beforeLeft+1 })
	until(s.T, "the access log", func() bool {
		for _, line := range s.log.lines(s.T, "handled request") {
			if d, _ := line["rate_limit"].(map[string]any); d["cause"] == "left" && d["decision"] == "left" && d["rule"] == rule {
				return true
			}
		}
		return false
	})
	now := s.zones().Requests
	if n := denials() - before; n > 0 || len(s.log.lines(s.T, "rate limit exceeded")) != lines || now.Left != requests.Left+1 || now.Denied != requests.Denied {
		s.Errorf("a client that left: %v denials, requests %+v before and %+v after", n, requests, now)
	}
}

// TestLeftInLeakyBucket has a client leave that a leaky_bucket had admitted, and delays. It stays
// charged, and counts neither as delayed nor as denied.
func TestLeftInLeakyBucket(t *testing.T) {
	s := causeSite(t, "", "rule 1/10s leaky_bucket burst 3", "log_append decided {http.rate_limit.z.decision}\nrespond ok")
	s.want(req{}, 200)
	ctx, leave := context.WithCancel(t.Context())
	delayed := func() float64 { return s.metric("decisions_total", "zone", "z", "decision", "delayed") }
	before := delayed()
	go func() { _, _ = s.try(req{ctx: ctx}) }()
	until(t, "one to be delayed", func() bool { return delayed() == before+1 })
	requests, left := s.zones().Requests, s.metric("decisions_total", "zone", "z", "decision", "left")
	leave()
	// In metrics it stays counted as delayed, too, until another is: a counter never decreases.
	until(t, "it to be counted as left", func() bool { return s.metric("decisions_total", "zone", "z", "decision", "left") == left+1 })
	until(t, "the request to be counted as left", func() bool { return s.zones().Requests.Left == requests.Left+1 })
	if now := s.zones().Requests; delayed() != before+1 || now.Delayed != requests.Delayed-1 || now.Denied != requests.Denied {
		t.Errorf("requests %+v before and %+v after", requests, now)
	}
	if k := s.key("GET", "z", "127.0.0.1"); k.Rules[0].Used == 0 {
		t.Error("it is not charged")
	}
	until(t, "the access log, with the zone's placeholder", func() bool {
		return slices.ContainsFunc(s.log.lines(t, "handled request"), func(line map[string]any) bool { return line["decided"] == "left" })
	})
}

// TestCauseInOutage has an instance use up its share of a limit while Redis is away, or deny all.
func TestCauseInOutage(t *testing.T) {
	for _, c := range []struct{ cause, rule, options, zone string }{
		{"share", "1", "fallback_share 0.5", "rule 4/1h"},
		{"share", "1", "fallback_share 0.5", "rule 4/1h\ncost 3"},
		{"rule", "1", "fallback_share 1", "rule 2/1h"},
		{"store", "store", "on_failure deny", "rule 4/1h"},
	} {
		t.Run(c.cause, func(t *testing.T) {
			srv := redistest.Start(t)
			s := causeSite(t, redisStore(srv.Addr, "timeout 2s", "dial_timeout 200ms", c.options), c.zone, "respond ok")
			q := req{ip: "10.9.8.7"}
			s.want(q, 200)
			srv.Kill()
			until(t, "a denial", func() bool { return s.send(q).status != 200 })
			until(t, "the store to be away", func() bool { return s.metric("store_up", "store", "redis") == 0 })
			status := 429
			if c.cause == "store" {
				status = 503
			}
			s.wantCause(c.cause, c.rule, q, status)
			if k := s.key("GET", "z", "10.9.8.7"); k.Cause != c.cause {
				t.Errorf("the key is %+v", k)
			}
		})
	}
}

// TestTopSaysWhy checks that the most denied keys say why they were denied the last time.
func TestTopSaysWhy(t *testing.T) {
	s := causeSite(t, "", "rule 1/1h block 1h", "respond ok")
	s.want(req{}, 200, 429)
	for _, want := range []string{"rule", "blocked"} {
		var top cli.Top
		s.admin("GET", "zones/z/top", "", &top)
		if len(top.Denied) != 1 || top.Denied[0].Cause != want || top.Busy[0].Cause != "" {
			t.Errorf("top keys %+v, want cause %s", top, want)
		}
		s.want(req{}, 429)
	}
	if x := s.explained("/", url.PathEscape("127.0.0.1")); x.Cause != "blocked" {
		t.Errorf("explained as %s", strconv.Quote(x.Cause))
	}
}
