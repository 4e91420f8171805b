package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/stores/redisconfig"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/stores"
)

const (
	storeIsDown = "Redis is unavailable: on_failure applies"
	storeIsUp   = "Redis is back: limits are shared again"
)

// failing serves a site with a store at addr and returns the site and the store's
// events.
func failing(t *testing.T, addr, site string, options ...string) (*storeSite, *events) {
	seen, subscribe := listen(t, "rate_limit_store_down", "rate_limit_store_up")
	c := setup{app: redisStore(addr, append(options, "timeout 2s", "dial_timeout 2s")...), global: subscribe, site: site}
	return &storeSite{serve(t, c), c}, seen
}

// storeSite is a site that can be reloaded.
type storeSite struct {
	*site
	config setup
}

const fiveAnHour = `
	rate_limit {
		zone z {
			rule 6/1h
		}
	}
	respond ok`

// down waits until the store is reported down. up waits until it has been reported
// up the given number of times.
func (s *storeSite) down() {
	s.Helper()
	until(s.T, "the store to be down", func() bool {
		// A server that is killed closes connections that it has never answered on.
		lines := len(s.log.lines(s.T, storeIsDown)) + len(s.log.lines(s.T, "Redis rejects calls: on_failure applies"))
		return s.metric("store_up", "store", "redis") == 0 && lines > 0
	})
}

func (s *storeSite) up(times int) {
	s.Helper()
	until(s.T, "the store to be up", func() bool {
		return s.metric("store_up", "store", "redis") == 1 && len(s.log.lines(s.T, storeIsUp)) >= times
	})
	time.Sleep(1200 * time.Millisecond) // longer than the second after which every key is checked in Redis
}

// TestRedisDownAtStart starts Caddy before Redis: limits are enforced locally, and
// shared as soon as Redis is up.
func TestRedisDownAtStart(t *testing.T) {
	srv := redistest.Start(t)
	srv.Kill()
	s, seen := failing(t, srv.Addr, fiveAnHour)
	fallback := s.metric("fallback_total", "zone", "z")
	s.want(req{}, 200, 200, 200, 200, 200, 200, 429)
	if n := s.metric("fallback_total", "zone", "z") - fallback; n != 7 {
		t.Errorf("fallback_total rose by %v, want 7", n)
	}
	s.down()
	line := s.log.lines(t, storeIsDown)[0]
	if line["store"] != "redis" || line["on_failure"] != "local" || line["advice"] == "" || line["error"] == "" {
		t.Errorf("log line %v", line)
	}
	if n := len(s.log.lines(t, "the number of instances is unknown: this one enforces every limit in full until Redis is back")); n != 1 {
		t.Errorf("%d warnings that the number of instances is unknown, want 1", n)
	}
	until(t, "an event", func() bool { return len(seen.named("rate_limit_store_down")) == 1 })
	if e := seen.named("rate_limit_store_down")[0]; e.Data["store"] != "redis" || e.Data["error"] == "" {
		t.Errorf("event %v", e.Data)
	}
	srv.Run()
	s.up(1)
	until(t, "an event", func() bool { return len(seen.named("rate_limit_store_up")) == 1 })
	s.want(req{ip: "10.0.0.1"}, 200)
	s.want(req{}, 429)                                               // requests admitted without Redis are charged to it
	if n := srv.Client().DBSize(context.Background()).Val(); n < 2 { // the zone's key and the list of instances
		t.Errorf("%d keys in Redis", n)
	}
	srv.CheckTTLs()
}

// TestRedisOutageAndRecovery kills Redis under load: no response is a 5xx, no
// request waits long, and every limit is enforced.
func TestRedisOutageAndRecovery(t *testing.T) {
	srv := redistest.Start(t)
	s, seen := failing(t, srv.Addr, fiveAnHour)
	s.want(req{}, 200, 200, 200, 200, 200, 200, 429)
	for round := 1; round <= 2; round++ {
		srv.Kill()
		admitted := 0
		ip := fmt.Sprintf("10.0.0.%d", round)
		for range 20 {
			a, took := s.timed(req{ip: ip})
			switch {
			case took > 10*time.Second:
				t.Errorf("answered after %v", took)
			case a.status == 200:
				admitted++
			case a.status != 429:
				t.Errorf("status %d", a.status)
			}
		}
		if admitted != 6 {
			t.Errorf("%d admitted during the outage, want 6", admitted)
		}
		s.down()
		srv.Run()
		s.up(round)
		// Requests admitted without Redis are charged to it, by the next request of
		// the key or by a concurrent background call.
		passed := 0
		until(t, "a denial", func() bool {
			if s.send(req{ip: ip}).status == 429 {
				return true
			}
			passed++
			return false
		})
		if passed > 5 {
			t.Errorf("%d passed although 6 were admitted during the outage", passed)
		}
	}
	if down, up := len(seen.wait(t, "rate_limit_store_down", 2)), len(seen.wait(t, "rate_limit_store_up", 2)); down != 2 || up != 2 {
		t.Errorf("%d events down, %d up, want 2 of each", down, up)
	}
	if s.metric("store_errors_total", "store", "redis") == 0 {
		t.Error("store_errors_total is 0")
	}
	s.want(req{}, 429) // Redis restarted empty, and was told what it had known
}

// TestDecisionTimeout suspends Redis with its connections open: every decision is
// made within the timeout, and after three timeouts Redis is no longer called.
func TestDecisionTimeout(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 1s"), site: fiveAnHour})
	s.want(req{}, 200, 200)
	before := s.metric("store_errors_total", "store", "redis", "kind", "timeout")
	if err := syscall.Kill(srv.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		a, took := s.timed(req{ip: "10.0.0.1"})
		if a.status != 200 && a.status != 429 {
			t.Errorf("status %d", a.status)
		}
		if took > 10*time.Second {
			t.Errorf("decided after %v, want 1s at the most", took)
		}
	}
	if n := s.metric("store_errors_total", "store", "redis", "kind", "timeout") - before; n == 0 || n >= 10 {
		t.Errorf("%v calls to Redis timed out, want a few: three of decisions, and heartbeats", n)
	}
	if err := syscall.Kill(srv.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.log.wait(t, storeIsUp)
	s.want(req{ip: "10.0.0.2"}, 200, 200, 200, 200, 200, 200, 429)
}

func TestOnFailureAllow(t *testing.T) {
	s, _ := failing(t, unusedAddr(t), `
		rate_limit {
			zone z {
				rule 1/1h
				in_flight 1
				prevent_duplicates 1h
			}
			headers all
		}
		respond {http.rate_limit.z.decision}`, "on_failure allow")
	for range 10 {
		a := s.want(req{method: "POST"}, 200)
		s.wantNoHeader(a, "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit")
		if a.body != "allowed" {
			t.Errorf("decision %q", a.body)
		}
	}
}

// TestOnFailureDeny checks that requests are denied with 503 immediately, even
// where max_wait is set, and that a shadow zone denies nothing.
func TestOnFailureDeny(t *testing.T) {
	s, _ := failing(t, unusedAddr(t), `
		rate_limit {
			zone plain {
				match path /plain
				rule 1/1h
			}
			zone problem {
				match path /problem
				rule 1/1h
				respond 429 {
					problem
				}
			}
			zone patient {
				match path /patient
				rule 1/1h
				max_wait 30s
			}
			zone dark {
				match path /dark
				shadow
				rule 1/1h
			}
		}
		respond ok
		handle_errors {
			respond "{err.status_code} {http.rate_limit.exceeded.name} {http.rate_limit.exceeded.rule}"
		}`, "on_failure deny")
	a := s.want(req{path: "/plain"}, 503, 503)
	s.wantHeader(a, "Retry-After", "1")
	s.wantHeader(a, "Cache-Control", "no-store")
	s.wantNoHeader(a, "RateLimit", "RateLimit-Policy")
	if a.body != "503 plain store" {
		t.Errorf("body %q", a.body)
	}
	a = s.want(req{path: "/problem"}, 503)
	var p struct {
		Type   string `json:"type"`
		Status int    `json:"status"`
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Type != "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity" || p.Status != 503 {
		t.Errorf("problem %s %v", a.body, err)
	}
	s.wantHeader(a, "Retry-After", "1")
	a, took := s.timed(req{path: "/patient"})
	if a.status != 503 || took > 5*time.Second {
		t.Errorf("status %d after %v, want 503 at once", a.status, took)
	}
	if n := s.metric("fallback_total", "zone", "patient"); n != 1 {
		t.Errorf("a request that may wait was decided %v times, want once", n)
	}
	s.want(req{path: "/dark"}, 200, 200)
	s.want(req{path: "/else"}, 200)
}

// TestFailureIsPerStore checks that zones in other stores continue to count while
// one zone's store is down.
func TestFailureIsPerStore(t *testing.T) {
	for _, failure := range []string{"allow", "deny", "local"} {
		for _, order := range []string{"away here", "here away"} {
			zones := ""
			for _, name := range strings.Fields(order) {
				zones += map[string]string{
					"away": "zone away {\nrule 5/1h\n}\n", "here": "zone here {\nstore local\nrule 2/1h\n}\n",
				}[name]
			}
			t.Run(failure+" "+order, func(t *testing.T) {
				s, _ := failing(t, unusedAddr(t), "rate_limit {\n"+zones+"}\nrespond ok", "on_failure "+failure)
				if failure == "deny" {
					s.wantHeader(s.want(req{}, 503, 503, 503), "Retry-After", "1")
					return
				}
				a := s.want(req{}, 200, 200)
				if got := a.get("RateLimit"); failure == "allow" && got != `"here";r=0;t=3600` {
					t.Errorf("RateLimit %q", got)
				}
				s.between(s.want(req{}, 429), "Retry-After", 3590, 3600)
			})
		}
	}
}

// TestDenialBesideAnOutage has a zone whose limit is used up before one whose store is away, with on_failure deny: the denial is
// of that one, which says when to try again.
func TestDenialBesideAnOutage(t *testing.T) {
	s := serve(t, setup{app: redisStore(unusedAddr(t), "on_failure deny"), site: `
		rate_limit {
			zone here {
				store local
				cost {query.c}
				rule 3/1h
				respond 403
			}
			zone there {
				match query there=1
				rule 9/1h
			}
		}
		respond ok`})
	s.want(req{}, 200, 200, 200, 403)
	for _, path := range []string{"/?there=1", "/?there=1&c=9"} {
		var e cli.Explanation
		if status, text := s.admin("POST", "explain", fmt.Sprintf(`{"url": %q, "client_ip": "127.0.0.1"}`, s.url+path), &e); status != 200 {
			t.Fatal(text)
		}
		s.wantHeader(s.want(req{path: path}, 503), "Retry-After", "1")
		if e.Zone != "there" || e.Rule != "store" || e.RetryIn == nil || *e.RetryIn != 1 {
			t.Errorf("%s: explained as denied by zone %q, rule %q, retry %v", path, e.Zone, e.Rule, e.RetryIn)
		}
	}
	if n := s.metric("denied_total", "zone", "there", "rule", "store"); n != 2 {
		t.Errorf("%v denials for want of the store, want 2", n)
	}
}

// TestFallbackShare checks the fraction of a limit that one instance enforces while
// Redis is down.
func TestFallbackShare(t *testing.T) {
	zone := `
		rate_limit {
			zone z {
				rule 6/1h
				rule 100/1h gcra burst 50
				rule 1/2h name least
			}
			zone big {
				match path /big
				rule 600/1h
			}
		}
		respond ok`
	t.Run("fraction", func(t *testing.T) {
		s, _ := failing(t, unusedAddr(t), zone, "fallback_share 0.5")
		a := s.want(req{}, 200) // a share is at least one request
		s.wantHeader(a, "RateLimit-Policy", `"z";q=3;w=3600, "z.2";q=50;w=3600;diana-burst=25, "z.least";q=1;w=7200`)
		s.wantHeader(a, "RateLimit", `"z";r=2;t=3600, "z.2";r=24;t=72, "z.least";r=0;t=7200`)
		s.want(req{}, 429)
	})
	t.Run("last known number of instances", func(t *testing.T) {
		srv := redistest.Start(t)
		s, _ := failing(t, srv.Addr, fiveAnHour)
		others := startInstances(t, srv, 2)
		until(t, "three instances", func() bool { b, _ := os.ReadFile(s.instances(srv.Addr)); return string(b) == "3" })
		srv.Kill()
		s.want(req{}, 200, 200, 429)
		s.wantHeader(s.want(req{}, 429), "RateLimit-Policy", `"z";q=2;w=3600`)
		for _, o := range others {
			_ = o.Destruct()
		}
	})
	t.Run("persisted across restarts", func(t *testing.T) {
		s, addr := newSite(t), unusedAddr(t)
		path := s.instances(addr)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("3"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.reload(setup{app: redisStore(addr), site: fiveAnHour})
		s.want(req{}, 200, 200, 429)
		if n := len(s.log.lines(t, "the number of instances is unknown: this one enforces every limit in full until Redis is back")); n != 0 {
			t.Errorf("%d warnings that the number of instances is unknown", n)
		}
	})
}

// instances returns the file that holds the number of live instances of a store at an address.
func (s *site) instances(addr string) string {
	o := redis.Options{ConnOptions: redis.ConnOptions{Addresses: []string{addr}, Prefix: redisconfig.DefaultKeyPrefix}}
	return filepath.Join(s.storage, "rate_limit", "instances", rules.Fingerprint(o.Place()))
}

// ignored discards the events of a store.
type ignored struct{}

func (ignored) StoreUp(string, string)                          {}
func (ignored) StoreDown(string, string, stores.Failure, error) {}
func (ignored) StoreError(string, stores.Failure, error)        {}
func (ignored) ClockSteps(string)                               {}
func (ignored) Live(string, int)                                {}
func (ignored) StoreWarning(string, string, string)             {}
func (ignored) Uncharged(string, stores.Uncharged, int64)       {}

// startInstances starts n other instances that use the same Redis.
func startInstances(t *testing.T, srv *redistest.Server, n int) (all []*redis.Store) {
	t.Helper()
	for range n {
		o := redis.Options{Name: "other", Clock: clock.Now, ConnOptions: redis.ConnOptions{
			Addresses: []string{srv.Addr}, Prefix: redisconfig.DefaultKeyPrefix, Timeout: time.Second, DialTimeout: time.Second,
		}}
		s := redis.New(o, ignored{})
		s.Start(0)
		t.Cleanup(func() { _ = s.Destruct() })
		all = append(all, s)
	}
	return all
}

// TestStoreEventsSurviveReload checks that the running configuration receives a
// store's events after reloads that keep the store, including a failed one.
func TestStoreEventsSurviveReload(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	srv := redistest.Start(t)
	s, seen := failing(t, srv.Addr, fiveAnHour)
	until(t, "store_up", func() bool { return s.metric("store_up", "store", "redis") == 1 })
	s.want(req{}, 200, 200)
	s.reload(s.config)
	s.want(req{}, 200, 200)
	bad := s.config
	bad.more = "http://:" + port(taken) + " {\nbind 127.0.0.1\n}"
	for range 8 { // the order in which apps start is random
		if err := s.load(bad); err == nil {
			t.Fatal("loads although the port is in use")
		}
	}
	s.want(req{}, 200, 200, 429)
	srv.Kill()
	s.send(req{})
	s.down()
	until(t, "an event", func() bool { return len(seen.named("rate_limit_store_down")) == 1 })
	srv.Run()
	s.up(1)
	if ctx := seen.named("rate_limit_store_down")[0].Origin(); ctx == nil {
		t.Error("the event has no origin")
	}
}
