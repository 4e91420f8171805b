package test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

func TestDuplicates(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					prevent_duplicates 1h
					respond 409 "{http.rate_limit.exceeded.rule}"
				}
			}
			respond ok`})
		base := req{method: "POST", path: "/a?b=c", host: "x.example", ip: "10.0.0.1", body: "body"}
		s.want(base, 200)
		a := s.want(base, 409)
		if a.body != "prevent_duplicates" {
			t.Errorf("rule %q", a.body)
		}
		s.between(a, "Retry-After", 3590, 3600)
		s.wantNoHeader(a, "RateLimit")
		other := func(change func(*req)) {
			t.Helper()
			q := base
			change(&q)
			s.want(q, 200, 409)
		}
		other(func(q *req) { q.method = "PUT" })
		other(func(q *req) { q.method = "DELETE" })
		other(func(q *req) { q.path = "/a?b=d" })
		other(func(q *req) { q.path = "/a" })
		other(func(q *req) { q.path = "/a/?b=c" })
		other(func(q *req) { q.path = "/a%252F?b=c" })
		other(func(q *req) { q.host = "y.example" })
		other(func(q *req) { q.ip = "10.0.0.2" })
		same := base
		same.body = "another body" // bodies are not compared
		s.want(same, 409)
		same.path = "/a%2F?b=c" // as /a/ was: paths are compared as keys are
		s.want(same, 409)
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			q := base
			q.method = method
			s.want(q, 200, 200, 200)
		}
	})
}

// TestDefaultDuplicateWindow checks that the default window is five seconds.
func TestDefaultDuplicateWindow(t *testing.T) {
	s := serve(t, setup{site: "rate_limit {\nzone z {\nprevent_duplicates\n}\n}\nrespond ok"})
	s.want(req{method: "POST"}, 200)
	s.wantHeader(s.want(req{method: "POST"}, 429), "Retry-After", "5")
}

// TestDuplicatesWithBody checks that bodies of up to 64 KiB with a Content-Length are
// compared and that the next handler still reads the whole body.
func TestDuplicatesWithBody(t *testing.T) {
	const edge = 64 << 10
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					prevent_duplicates 1h body
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			_, err = w.Write(body)
			return err
		})})
		for _, c := range []struct {
			body  string
			again int // the status of the repeated request
		}{
			{"", 429},
			{"a", 429},
			{"b", 429},
			{strings.Repeat("a", edge-1), 429},
			{strings.Repeat("a", edge), 429},
			{strings.Repeat("a", edge-1) + "b", 429},
			{strings.Repeat("a", edge+1), 200},
			{strings.Repeat("a", 4*edge), 200},
		} {
			for _, chunked := range []bool{false, true} {
				want := 200
				for i := range 2 {
					if i == 1 && !chunked { // a stream may not end before the response
						want = c.again
					}
					a := s.post(c.body, chunked)
					if a.status != want {
						t.Fatalf("%d bytes, chunked %v: status %d, want %d", len(c.body), chunked, a.status, want)
					}
					if a.status == 200 && a.body != c.body {
						t.Errorf("%d bytes, chunked %v: the handler read %d", len(c.body), chunked, len(a.body))
					}
				}
			}
		}
	})
}

// post sends a body, chunked or with a Content-Length.
func (s *site) post(body string, chunked bool) *answer {
	s.Helper()
	r := req{method: "POST", body: body}.http(s)
	if chunked {
		r.Body, r.ContentLength, r.GetBody = io.NopCloser(strings.NewReader(body)), -1, nil
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return &answer{resp.StatusCode, resp.Header, string(got)}
}

// TestDeniedDuplicateDoesNotExtendWindow sends duplicates throughout the window:
// the first one after its end is admitted.
func TestDeniedDuplicateDoesNotExtendWindow(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "prevent_duplicates 500ms"))
		s.want(req{method: "POST"}, 200)
		begun, denied := time.Now(), 0
		for s.send(req{method: "POST"}).status == 429 {
			denied++
			if time.Since(begun) > 10*time.Second {
				t.Fatal("denied for ten seconds")
			}
		}
		if denied == 0 {
			t.Error("a duplicate was admitted")
		}
	})
}

// TestDuplicatesAndRulesAreAtomic checks that a duplicate charges no rule and that
// a request denied by a rule is not remembered.
func TestDuplicatesAndRulesAreAtomic(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					prevent_duplicates 1h
					rule 2/1h name r
				}
				zone gate {
					match header X-Deny *
					key {header.X-None}
					key_missing deny
					rule 1/1h
				}
			}
			respond ok
			handle_errors {
				respond "{http.rate_limit.exceeded.name} {http.rate_limit.exceeded.rule} {http.rate_limit.z.remaining}"
			}`})
		post := func(path string, status int, body string) {
			t.Helper()
			if a := s.want(req{method: "POST", path: path}, status); a.body != body {
				t.Errorf("%s: %q, want %q", path, a.body, body)
			}
		}
		deny := req{method: "POST", path: "/1", header: map[string]string{"X-Deny": "x"}}
		s.want(deny, 429, 429)
		post("/1", 200, "ok")
		post("/1", 429, "z prevent_duplicates 1")
		post("/1", 429, "z prevent_duplicates 1")
		post("/2", 200, "ok")
		post("/3", 429, "z r 0")
		post("/2", 429, "z r 0")
	})
}

// TestDuplicatesInFullZone has one client fill a zone with unlike requests. The requests of
// others are not taken for duplicates of them, in this process and in an outage of Redis.
func TestDuplicatesInFullZone(t *testing.T) {
	const zone = `
		rate_limit {
			zone z {
				prevent_duplicates 1h
				max_keys 500
			}
		}
		respond ok`
	check := func(t *testing.T, s *site) {
		for i := range 900 {
			s.send(req{method: "POST", path: "/" + strconv.Itoa(i), ip: "10.0.0.1"})
		}
		denied := 0
		for i := range 20 {
			if s.send(req{method: "POST", ip: "10.0.0." + strconv.Itoa(i+2)}).status == 429 {
				denied++
			}
		}
		if denied > 0 {
			t.Errorf("%d of 20 other clients are denied, want none", denied)
		}
	}
	t.Run("local", func(t *testing.T) {
		s := serve(t, setup{site: zone})
		before := s.metric("overflow_total", "zone", "z")
		check(t, s)
		if n := s.metric("overflow_total", "zone", "z") - before; n != 0 {
			t.Errorf("overflow_total rose by %v, want 0: nothing was charged to a shared counter", n)
		}
		if line := s.log.wait(t, "the zone is full: further requests are not compared by prevent_duplicates"); line["zone"] != "z" {
			t.Errorf("log line %v", line)
		}
		if lines := s.log.lines(t, zoneIsFull); len(lines) > 0 {
			t.Errorf("log lines %v, want none: no keys share counters", lines)
		}
	})
	t.Run("outage", func(t *testing.T) {
		srv := redistest.Start(t)
		s := serve(t, setup{app: redisStore(srv.Addr, "timeout 10s"), site: zone})
		s.want(req{method: "POST", path: "/first"}, 200)
		srv.Kill()
		s.want(req{method: "POST", path: "/first"}, 429) // still compared
		check(t, s)
	})
}

// TestDuplicatesArePutBack makes Redis lose what it knew of requests. Nobody sends them again,
// but what this instance admitted is put back.
func TestDuplicatesArePutBack(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 10s"), site: `
		rate_limit {
			zone z {
				prevent_duplicates 1h
			}
		}
		respond ok`})
	known := func() int { return len(srv.Client().Keys(t.Context(), "diana:{*}:z:*").Val()) }
	for i := range 3 {
		s.want(req{method: "POST", path: "/" + strconv.Itoa(i)}, 200)
	}
	had := known()
	until(t, "a heartbeat", func() bool { return srv.Client().DBSize(t.Context()).Val() > int64(had) })
	srv.Client().FlushAll(t.Context())
	until(t, "the requests to be known again", func() bool { return known() == had })
}

// TestDuplicatesInOtherSpellings sends one request with its path and host in many spellings,
// and others that differ.
func TestDuplicatesInOtherSpellings(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				prevent_duplicates 1h
			}
		}
		respond ok`})
	passed := 0
	for _, path := range []string{"/files/one", "//files/one", "/files/./one", "/x/../files/one", "/Files/%6fne", "/files%2Fone"} {
		for _, host := range []string{"localhost", "LOCALHOST", "localhost.", "localhost:80"} {
			if s.send(req{method: "POST", path: path, host: host}).status == 200 {
				passed++
			}
		}
	}
	if passed != 1 {
		t.Errorf("%d spellings of one request pass, want 1", passed)
	}
	for _, path := range []string{"/files/one/", "/files/one?a", "/files/one?A", "/files/two"} {
		s.want(req{method: "POST", path: path, host: "localhost"}, 200, 429)
	}
}
