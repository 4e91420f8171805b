package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/cli"
)

// overload is a zone with so many places, which never change, and more options.
func overload(places int, more string) string {
	return fmt.Sprintf("rate_limit {\nzone z {\nin_flight adaptive {\nmin %d\nmax %[1]d\npriority {header.X-Tier} paid free\n}\n%s\n}\n}\n", places, more)
}

// places returns the state of the places of the zone z.
func (s *site) places() (p metrics.PlaceState) {
	s.Helper()
	for _, z := range s.zones().Zones {
		if z.Name == "z" && z.Places != nil {
			return *z.Places
		}
	}
	s.Fatal("the zone has no places")
	return p
}

// wantFree waits until no request holds a place or waits for one.
func (s *site) wantFree() {
	s.Helper()
	until(s.T, "all places to be free", func() bool {
		p := s.places()
		return p.InFlight == 0 && waitingIn(p) == 0
	})
}

func waitingIn(p metrics.PlaceState) (sum int) {
	for _, n := range p.Waiting {
		sum += n
	}
	return sum
}

// wantWaiting waits until n requests wait.
func (s *site) wantWaiting(n int) {
	s.Helper()
	until(s.T, fmt.Sprint(n, " requests to wait"), func() bool { return waitingIn(s.places()) == n })
}

func TestOverload(t *testing.T) {
	g := newGate()
	s := serve(t, setup{site: overload(1, "rule 1000/1h") + handle(t, "*", g.ServeHTTP) +
		"\nhandle_errors {\nrespond \"{http.rate_limit.exceeded.cause} {err.status_code} {err.message}\"\n}"})
	first := s.open(g, req{})
	a := s.want(req{ip: "10.0.0.2"}, 503)
	s.wantHeader(a, "Retry-After", "1")
	s.wantNoHeader(a, "RateLimit", "RateLimit-Policy")
	if want := "overload 503 too many requests are in flight"; a.body != want {
		t.Errorf("%q: want %q", a.body, want)
	}
	s.wantLogged("overload", 503)
	if n := s.metric("denied_total", "zone", "z", "rule", "in_flight", "cause", "overload"); n != 1 {
		t.Errorf("denied_total is %v: want 1", n)
	}
	for name, want := range map[string]float64{"in_flight": 1, "in_flight_limit": 1} {
		if n := s.metric(name, "zone", "z"); n != want {
			t.Errorf("%s is %v: want %v", name, n, want)
		}
	}
	for _, to := range []string{"up", "down", "brake"} {
		if n := s.metric("in_flight_moves_total", "zone", "z", "to", to); n != 0 {
			t.Errorf("in_flight_moves_total %s is %v: want 0", to, n)
		}
	}
	if k := s.key("GET", "z", "10.0.0.2"); k.Rules[0].Used != 0 {
		t.Errorf("a request without a place was charged %d: want 0", k.Rules[0].Used)
	}
	g.goOn <- true
	if status := <-first; status != 200 {
		t.Errorf("status %d: want 200", status)
	}
	s.wantFree()
}

// wantLogged waits for a line of the access log with a cause and a status.
func (s *site) wantLogged(cause string, status float64) (line map[string]any) {
	s.Helper()
	until(s.T, "the access log to say "+cause, func() bool {
		for _, l := range s.log.lines(s.T, "handled request") {
			if line, _ = l["rate_limit"].(map[string]any); line["cause"] == cause && l["status"] == status {
				return true
			}
		}
		return false
	})
	return line
}

// TestOverloadRespond checks the response that a zone configures, also to the client of another handler's zone.
func TestOverloadRespond(t *testing.T) {
	for name, c := range map[string]struct {
		respond string
		status  int
		body    string
	}{
		"own":     {"respond 529 busy", 529, "busy"},
		"default": {"respond", 503, ""},
		"problem": {"respond {\nproblem\n}", 503, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Request cannot be satisfied due to temporary server capacity constraints","status":503}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			s := serve(t, setup{site: "route {\nrate_limit {\nzone outer {\nrule 100/1h\n}\n}\n" + overload(1, c.respond) + handle(t, "*", g.ServeHTTP) + "\n}"})
			first := s.open(g, req{})
			a := s.want(req{}, c.status)
			if a.body != c.body {
				t.Errorf("%q: want %q", a.body, c.body)
			}
			s.wantHeader(a, "Retry-After", "1")
			g.goOn <- true
			<-first
			s.wantFree()
		})
	}
}

// TestPriorities has requests of two classes wait: the first class is served first, in the order of arrival.
func TestPriorities(t *testing.T) {
	g := newGate()
	s := serve(t, setup{site: overload(1, "max_wait 1m\nmax_waiting 4") + handle(t, "*", g.ServeHTTP)})
	first := s.open(g, req{})
	statuses := make(chan string, 10)
	send := func(name, tier string, waiting int) {
		go func() {
			a := s.send(req{header: map[string]string{"X-Tier": tier, "X-Name": name}})
			statuses <- fmt.Sprint(name, " ", a.status)
		}()
		s.wantWaiting(waiting)
	}
	send("a", "free", 1)
	send("b", "", 2) // no class: the last
	send("c", "paid", 3)
	send("d", "paid", 4)
	go func() { // the queue is full: the last of the least class goes
		a := s.send(req{header: map[string]string{"X-Tier": "paid", "X-Name": "e"}})
		statuses <- fmt.Sprint("e ", a.status)
	}()
	if got := <-statuses; got != "b 503" {
		t.Errorf("%s: want the last in order, b, denied", got)
	}
	if x := s.explainedFull("/", map[string]string{"X-Tier": "paid"}); x.Handlers[0].Zones[0].Place == nil || *x.Handlers[0].Zones[0].Place != (limiter.KeyPlace{Priority: "paid", Limit: 1, InFlight: 1, Waits: true}) {
		t.Errorf("explained as %+v: want priority paid, 1 of 1 in flight, waiting", x.Handlers[0].Zones[0].Place)
	}
	if n := s.metric("bad_priority_total", "zone", "z"); n != 2 {
		t.Errorf("bad_priority_total is %v: want 2, of the first request and b", n)
	}
	if n := s.metric("waiting", "zone", "z", "priority", "paid"); n != 3 {
		t.Errorf("%v wait with priority paid: want 3", n)
	}
	g.goOn <- true
	<-first
	for _, want := range []string{"c", "d", "e", "a"} {
		if r := <-g.entered; r.Header.Get("X-Name") != want {
			t.Errorf("%s is served: want %s", r.Header.Get("X-Name"), want)
		}
		g.goOn <- true
		if got := <-statuses; got != want+" 200" {
			t.Errorf("%s: want %s 200", got, want)
		}
	}
	if n := s.metric("wait_seconds", "zone", "z", "priority", "paid"); n != 3 {
		t.Errorf("%v waits with priority paid: want 3", n)
	}
	s.wantFree()
}

// explainedFull returns the explanation of a request with headers.
func (s *site) explainedFull(path string, header map[string]string) (x cli.Explanation) {
	s.Helper()
	body := fmt.Sprintf(`{"client_ip":"192.0.2.1","url":"http://localhost:8001%s","headers":{%s}}`, path, strings.Join(quoted(header), ","))
	if status, text := s.admin("POST", "explain", body, &x); status != 200 {
		s.Fatalf("status %d %s", status, text)
	}
	return x
}

func quoted(header map[string]string) (list []string) {
	for k, v := range header {
		list = append(list, fmt.Sprintf("%q:[%q]", k, v))
	}
	return list
}

// TestPlaceIsReleased ends requests in all ways.
func TestPlaceIsReleased(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(echo))
	defer up.Close()
	s := serve(t, setup{site: `
		handle_errors {
			rate_limit {
				zone errors {
					in_flight adaptive
				}
			}
			respond "error {err.status_code}"
		}
		` + overload(1, "") + `
		handle /error {
			error 502
		}
		handle /panic {
			` + handle(t, "*", func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) }) + `
		}
		handle /inner {
			rate_limit {
				zone inner {
					key all
					rule 1/1h
				}
			}
			respond ok
		}
		handle /stream {
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return nil
	}) + `
		}
		handle /retry {
			reverse_proxy 127.0.0.1:1 127.0.0.1:2 {
				lb_retries 3
			}
		}
		handle /upgrade {
			reverse_proxy ` + up.Listener.Addr().String() + `
		}
		handle {
			respond ok
		}`})
	for range 3 {
		s.want(req{path: "/error"}, 502)
		s.want(req{}, 200)
		_, _ = s.try(req{path: "/panic"})
		s.wantFree()
		s.want(req{path: "/retry"}, 502)
		s.want(req{path: "/nowhere"}, 200)
	}
	s.want(req{path: "/inner"}, 200, 429, 429)
	s.wantFree()
	ctx, leave := context.WithCancel(t.Context())
	resp, err := s.client.Do(req{path: "/stream", ctx: ctx}.http(s))
	if err != nil {
		t.Fatal(err)
	}
	s.want(req{}, 503)
	leave()
	_ = resp.Body.Close()
	s.wantFree()
	status, leaveUpgraded := s.upgradeTo("/upgrade")
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("status %d: want the connection upgraded", status)
	}
	s.want(req{}, 503)
	leaveUpgraded()
	s.wantFree()
}

// TestPlaceLingers has a client leave whose request goes on upstream.
func TestPlaceLingers(t *testing.T) {
	g := newGate()
	s := serve(t, setup{site: overload(1, "linger 1h") + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		g.entered <- r
		<-r.Context().Done()
		return nil
	})})
	ctx, leave := context.WithCancel(t.Context())
	go func() { _, _ = s.try(req{ctx: ctx}) }()
	<-g.entered
	leave()
	ended(t)
	s.want(req{}, 503)
	if p := s.places(); p.InFlight != 1 {
		t.Errorf("%d in flight: want the request of the client that left", p.InFlight)
	}
}

// TestPlacesSurviveReload reloads the configuration while a request waits: it is served when the request from before ends,
// which counts until then.
func TestPlacesSurviveReload(t *testing.T) {
	g := newGate()
	handler := handle(t, "*", g.ServeHTTP)
	s := serve(t, setup{site: overload(1, "max_wait 1m") + handler})
	first := s.open(g, req{})
	waiting := make(chan int, 1)
	go func() { waiting <- s.send(req{}).status }()
	s.wantWaiting(1)
	s.reload(setup{site: overload(1, "max_wait 2m") + handler})
	if p := s.places(); p.InFlight != 1 || waitingIn(p) != 1 {
		t.Errorf("%+v after a reload: want one in flight and one waiting", p)
	}
	for _, status := range []<-chan int{first, waiting} {
		g.goOn <- true
		if got := <-status; got != 200 {
			t.Errorf("status %d: want 200", got)
		}
	}
	s.wantFree()
}

// TestPlaceInTwoHandlers has a request pass a zone in two handlers: it takes one place.
func TestPlaceInTwoHandlers(t *testing.T) {
	g := newGate()
	s := serve(t, setup{site: "route {\n" + overload(1, "") + overload(1, "") + handle(t, "*", g.ServeHTTP) + "\n}"})
	first := s.open(g, req{})
	s.want(req{}, 503)
	g.goOn <- true
	if status := <-first; status != 200 {
		t.Errorf("status %d: want 200", status)
	}
	s.wantFree()
}

// TestAdaptiveShadow checks that a zone in shadow denies nothing.
func TestAdaptiveShadow(t *testing.T) {
	g := newGate()
	s := serve(t, setup{site: overload(1, "shadow") + handle(t, "*", g.ServeHTTP)})
	first, second := s.open(g, req{}), s.open(g, req{})
	g.goOn <- true
	g.goOn <- true
	if a, b := <-first, <-second; a != 200 || b != 200 {
		t.Errorf("statuses %d and %d: want 200", a, b)
	}
}

// TestBrake has requests fail after they were served: the limit is halved, which is told.
func TestBrake(t *testing.T) {
	seen, global := listen(t, "rate_limit_braked")
	var fails atomic.Bool
	s := serve(t, setup{global: global, site: "rate_limit {\nzone z {\nin_flight adaptive\n}\n}\n" + handle(t, "*", func(w http.ResponseWriter, _ *http.Request) error {
		if fails.Load() {
			time.Sleep(60 * time.Millisecond)
			w.WriteHeader(http.StatusGatewayTimeout)
			return nil
		}
		_, err := io.WriteString(w, "ok")
		return err
	})})
	for range 30 {
		s.want(req{}, 200)
	}
	fails.Store(true)
	parallel(20, func(int) {
		for range 3 {
			_, _ = s.try(req{})
		}
	})
	e := seen.wait(t, "rate_limit_braked", 1)[0]
	if e.Data["zone"] != "z" || e.Data["from"] != int64(20) {
		t.Errorf("event %v: want it of zone z, from 20", e.Data)
	}
	p := s.places()
	if p.Moves["brake"] < 1 || p.Last == nil || p.Last.To != "brake" || p.Limit > 20 {
		t.Errorf("%+v: want a brake", p)
	}
	if n := s.metric("in_flight_moves_total", "zone", "z", "to", "brake"); n < 1 {
		t.Errorf("in_flight_moves_total of brakes is %v: want 1 at least", n)
	}
}

// TestBrakeBehindErrorRoute has an error route answer for an upstream that fails slowly: whatever it says, the upstream has
// failed.
func TestBrakeBehindErrorRoute(t *testing.T) {
	var fails atomic.Bool
	s := serve(t, setup{site: "rate_limit {\nzone z {\nin_flight adaptive\n}\n}\n" + handle(t, "*", func(http.ResponseWriter, *http.Request) error {
		if fails.Load() {
			time.Sleep(60 * time.Millisecond)
			return caddyhttp.Error(http.StatusGatewayTimeout, io.ErrUnexpectedEOF)
		}
		return nil
	}) + "\nhandle_errors {\nrespond sorry 200\n}"})
	for range 30 {
		s.want(req{}, 200)
	}
	fails.Store(true)
	for range 40 {
		if s.want(req{}, 200); s.places().Moves["brake"] > 0 {
			return
		}
	}
	t.Errorf("%+v: want a brake", s.places())
}
