package test

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// reloadsStore is a zone in a store whose options a test changes.
func reloadsStore(srv *redistest.Server, timeout, zone, rest string) setup {
	return setup{
		app:  redisStore(srv.Addr, "timeout "+timeout, "on_failure deny"),
		site: "rate_limit {\nzone z {\n" + zone + "\n}\n}\n" + rest,
	}
}

// wantStoreUp checks that Redis was never reported to be away.
func (s *site) wantStoreUp() {
	s.Helper()
	if lines := s.log.lines(s.T, storeIsDown); len(lines) > 0 {
		s.Errorf("the log says %v", lines[0])
	}
	if up := s.metric("store_up", "store", "redis"); up != 1 {
		s.Errorf("store_up %v, want 1", up)
	}
}

// TestSettleSurvivesStoreReload reloads the configuration with other options of the store
// while requests run: what they settle is charged in Redis, and Redis is not reported away.
func TestSettleSurvivesStoreReload(t *testing.T) {
	srv, g := redistest.Start(t), newGate()
	const zone = "rule 1000/100h fixed_window\ncost 10\nsettle {http.response.header.X-Tokens}"
	rest := handle(t, "/slow", func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("X-Tokens", "110")
		return g.ServeHTTP(w, r)
	}) + "\nrespond {http.rate_limit.z.remaining}"
	s := serve(t, reloadsStore(srv, "9s", zone, rest))
	var running []<-chan int
	for range 5 {
		running = append(running, s.open(g, req{path: "/slow"}))
	}
	s.reload(reloadsStore(srv, "8s", zone, rest))
	for range running {
		g.goOn <- true
	}
	for _, status := range running {
		if got := <-status; got != 200 {
			t.Errorf("status %d, want 200", got)
		}
	}
	keys := srv.Client().Keys(t.Context(), "diana:*:z:*").Val() // without a check, which would charge a debt
	if len(keys) != 1 {
		t.Fatalf("keys %v, want one", keys)
	}
	until(t, "the settles", func() bool {
		value := srv.Client().Get(t.Context(), keys[0]).Val()
		return len(value) == 24 && math.Float64frombits(binary.LittleEndian.Uint64([]byte(value[16:]))) == 550
	})
	if a := s.want(req{}, 200); a.body != "440" {
		t.Errorf("%s left of 1000 after 5 times 110 and 10, want 440", a.body)
	}
	s.wantStoreUp()
}

// TestWaitSurvivesStoreReload reloads the configuration with other options of the store
// while a request waits: it is decided in Redis when its time has come.
func TestWaitSurvivesStoreReload(t *testing.T) {
	srv := redistest.Start(t)
	const zone = "rule 1/2s\nmax_wait 10s"
	s := serve(t, reloadsStore(srv, "9s", zone, "respond ok"))
	s.want(req{}, 200)
	waits, first := make(chan *answer), req{to: s.url} // the server that will be replaced
	go func() {
		a, err := s.try(first)
		if err != nil {
			a = &answer{body: err.Error()}
		}
		waits <- a
	}()
	until(t, "the request to wait", func() bool { return waiting() == 1 })
	s.reload(reloadsStore(srv, "8s", zone, "respond ok"))
	if a := <-waits; a.status != 200 {
		t.Errorf("status %d %s, want 200", a.status, strings.TrimSpace(a.body))
	}
	s.wantStoreUp()
}

// slowStop is an app that stops when the test lets it. The other apps of its configuration
// are cleaned up after that.
type slowStop struct{ stopping, goOn chan bool }

var slow = slowStop{make(chan bool), make(chan bool)}

func init() { caddy.RegisterModule(slow) }

func (slowStop) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "test_slow_stop", New: func() caddy.Module { return &slow }}
}

func (slowStop) Start() error { return nil }

func (s slowStop) Stop() error {
	s.stopping <- true
	<-s.goOn
	return nil
}

// TestReplacedStoreIsSilent replaces a store by another one of the same name. While the
// configuration of the old store still stops, and afterwards, requests under way find that
// its Redis has gone: that is not reported under the name of the new store.
func TestReplacedStoreIsSilent(t *testing.T) {
	before, after, g := redistest.Start(t), redistest.Start(t), newGate()
	const zone = "rule 1000/100h fixed_window\nsettle {http.response.header.X-Tokens}"
	rest := handle(t, "/slow", func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("X-Tokens", "11")
		return g.ServeHTTP(w, r)
	}) + "\nrespond ok"
	s := newSite(t)
	first := reloadsStore(before, "9s", zone, rest)
	adapted, err := adapt(t, first.caddyfile(s))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.loadJSON([]byte(strings.Replace(string(adapted), `"apps":{`, `"apps":{"test_slow_stop":{},`, 1))); err != nil {
		t.Fatal(err)
	}
	const each = 5 // more failures than open the breaker
	var running []<-chan int
	for range 2 * each {
		running = append(running, s.open(g, req{path: "/slow"}))
	}
	loaded := make(chan error)
	go func() { loaded <- s.load(reloadsStore(after, "9s", zone, rest)) }()
	<-slow.stopping
	before.Kill()
	finish := func(requests []<-chan int) {
		for range requests {
			g.goOn <- true
		}
		for _, status := range requests {
			<-status
		}
	}
	finish(running[:each])
	slow.goOn <- true
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	finish(running[each:])
	s.want(req{}, 200)
	s.wantStoreUp()
}

// TestModeIsToldOnceOverAReload reloads with other options of the store while Redis is away,
// and again after it is back: the new store begins in the mode that was reported, and reports
// its end.
func TestModeIsToldOnceOverAReload(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, reloadsStore(srv, "30ms", "rule 1000/100h", "respond ok"))
	away := func() int { // a server that is killed closes connections that it has never answered on
		return len(s.log.lines(t, storeIsDown)) + len(s.log.lines(t, "Redis rejects calls: on_failure applies"))
	}
	srv.Kill()
	until(t, "the store to be down", func() bool {
		s.send(req{})
		return s.metric("store_up", "store", "redis") == 0 && away() == 1
	})
	s.reload(reloadsStore(srv, "31ms", "rule 1000/100h", "respond ok"))
	for range 10 {
		s.send(req{})
	}
	srv.Run()
	until(t, "the store to be up", func() bool { return len(s.log.lines(t, storeIsUp)) == 1 })
	if n := away(); n != 1 {
		t.Errorf("Redis was reported away %d times, want once", n)
	}
	if up := s.metric("store_up", "store", "redis"); up != 1 {
		t.Errorf("store_up %v, want 1", up)
	}
}

// TestRenamedStoreBeginsAway renames the store while Redis is away. It is told as away from the first moment on,
// and its first request is decided alone without a call.
func TestRenamedStoreBeginsAway(t *testing.T) {
	srv := redistest.Start(t)
	config := func(name string) setup {
		return setup{app: redisStore(srv.Addr, "name "+name, "timeout 2s"), site: "rate_limit {\nzone z {\nrule 1000/100h\n}\n}\nrespond ok"}
	}
	s := serve(t, config("one"))
	until(t, "Redis", func() bool { return s.send(req{}).status == 200 && s.zones().Stores[0].Up })
	srv.Kill()
	until(t, "the store to be down", func() bool {
		s.send(req{})
		return s.metric("store_up", "store", "one") == 0
	})
	s.reload(config("two"))
	if store := s.zones().Stores[0]; store.Name != "two" || store.Up {
		t.Errorf("store %s is told as shared", store.Name)
	}
	if up := s.metric("store_up", "store", "two"); up != 0 {
		t.Errorf("store_up %v after the reload, want 0", up)
	}
	if s.send(req{}); s.zones().Stores[0].Up {
		t.Error("the store is told as shared after a request")
	}
	srv.Run()
	until(t, "the store to be up", func() bool { return s.metric("store_up", "store", "two") == 1 })
}

// charged returns what is used of a fixed_window of zone z by all keys in Redis.
func charged(t *testing.T, srv *redistest.Server) (sum float64) {
	rdb := srv.Client()
	for _, name := range rdb.Keys(t.Context(), "diana:*:z:*").Val() {
		if value := rdb.Get(t.Context(), name).Val(); len(value) == 24 {
			sum += math.Float64frombits(binary.LittleEndian.Uint64([]byte(value[16:])))
		}
	}
	return sum
}

// TestOutageOutlivesStoreReload reloads with other options of the store while Redis does not
// answer: what was admitted without it is charged when it is back.
func TestOutageOutlivesStoreReload(t *testing.T) {
	const keys, each = 40, 5
	srv := redistest.Start(t)
	config := func(timeout string) setup {
		return setup{
			app:  redisStore(srv.Addr, "timeout "+timeout, "fallback_share 1"),
			site: "rate_limit {\nzone z {\nkey {query.k}\nrule 1000/100h fixed_window\n}\n}\nrespond ok",
		}
	}
	s := serve(t, config("25ms"))
	get := func(k int) { s.want(req{path: "/?k=" + strconv.Itoa(k)}, 200) }
	get(keys)
	srv.Stall()
	until(t, "the store to be down", func() bool {
		get(keys)
		return s.metric("store_up", "store", "redis") == 0
	})
	for k := range keys {
		for range each {
			get(k)
		}
	}
	s.reload(config("30ms"))
	srv.Resume()
	until(t, "the debts to be charged", func() bool { return charged(t, srv) >= keys*each })
}

// TestOtherPlaceIsCountedAnew changes the prefix of the keys, then the database, then the
// server. Neither counts nor a block move along.
func TestOtherPlaceIsCountedAnew(t *testing.T) {
	srv, other := redistest.Start(t), redistest.Start(t)
	config := func(srv *redistest.Server, options ...string) setup {
		return setup{
			app:  redisStore(srv.Addr, append(options, "timeout 9s")...),
			site: "rate_limit {\nzone z {\nrule 1/100h {\nblock 100h\n}\n}\n}\nrespond ok",
		}
	}
	s := newSite(t)
	for i, c := range []setup{
		config(srv), config(srv, "key_prefix second"), config(srv, "key_prefix second", "db 1"),
		config(other, "key_prefix second", "db 1"),
	} {
		if err := s.load(c); err != nil {
			t.Fatal(err)
		}
		for n, want := range []int{200, 429, 429} {
			if a := s.send(req{}); a.status != want {
				t.Errorf("place %d, request %d: status %d, want %d", i, n, a.status, want)
			}
		}
	}
}

// TestReplacedRulesOweNothing changes the window of a zone's rule again and again while Redis
// does not answer. Only what the rules in force count is charged when it is back.
func TestReplacedRulesOweNothing(t *testing.T) {
	const keys, changes = 30, 5
	srv := redistest.Start(t)
	config := func(window int) setup {
		return setup{
			app:  redisStore(srv.Addr, "timeout 25ms", "fallback_share 1"),
			site: fmt.Sprintf("rate_limit {\nzone z {\nkey {query.k}\nrule 1000/%dh fixed_window\n}\n}\nrespond ok", window),
		}
	}
	s := serve(t, config(100))
	s.want(req{path: "/?k=0"}, 200)
	srv.Stall()
	until(t, "the store to be down", func() bool {
		s.want(req{path: "/?k=0"}, 200)
		return s.metric("store_up", "store", "redis") == 0
	})
	for i := range changes {
		s.reload(config(101 + i))
		for k := range keys {
			s.want(req{path: "/?k=" + strconv.Itoa(k)}, 200)
		}
	}
	srv.Resume()
	names := func() int { return len(srv.Client().Keys(t.Context(), "diana:*:z:*").Val()) }
	until(t, "the debts to be charged", func() bool { return names() >= keys })
	until(t, "the store to be up", func() bool { return len(s.log.lines(t, storeIsUp)) == 1 })
	s.want(req{path: "/?k=new"}, 200)
	until(t, "Redis to decide", func() bool { return names() > keys })
	if n := names(); n > keys+2 { // the new key, and that of before the outage
		t.Errorf("%d keys in Redis, want %d: those of replaced rules are not sent", n, keys+2)
	}
}

// TestRemovedOverrideIsOwed removes an override while Redis does not answer. Its key is counted
// under the same name in Redis by the zone's rules, so that what was admitted under it is charged.
func TestRemovedOverrideIsOwed(t *testing.T) {
	srv := redistest.Start(t)
	config := func(override string) setup {
		return setup{
			app:  redisStore(srv.Addr, "timeout 25ms", "fallback_share 1"),
			site: "rate_limit {\nzone z {\nkey {query.k}\nrule 1000/100h fixed_window\n" + override + "}\n}\nrespond ok",
		}
	}
	s := serve(t, config("override a {\nrule 900/100h fixed_window\n}\n"))
	s.want(req{path: "/?k=b"}, 200)
	srv.Stall()
	until(t, "the store to be down", func() bool {
		s.want(req{path: "/?k=b"}, 200)
		return s.metric("store_up", "store", "redis") == 0
	})
	const admitted = 500
	for range admitted {
		s.want(req{path: "/?k=a"}, 200)
	}
	s.reload(config(""))
	srv.Resume()
	until(t, "the debt to be charged", func() bool { return charged(t, srv) >= admitted })
}

// TestKnownSurvivesReload reloads the configuration, with the same options of the store and with
// others, or tries to, and has Redis lose its memory before or afterwards. What the process knows of
// a key that no request has asked for since is put back.
func TestKnownSurvivesReload(t *testing.T) {
	for _, c := range []struct {
		timeout string
		away    bool // while the configuration is loaded
		fails   bool // what is loaded is invalid, behind the zone
	}{{"9s", false, false}, {"8s", false, false}, {"9s", true, false}, {"8s", true, false}, {"9s", false, true}} {
		srv := redistest.Start(t)
		s := serve(t, reloadsStore(srv, "9s", "rule 1000/100h fixed_window", "respond ok"))
		s.want(req{}, 200, 200, 200)
		names := srv.Client().Keys(t.Context(), "diana:*:z:*").Val()
		if c.away {
			srv.Kill()
		}
		rest := "respond ok\nheader X-Timeout " + c.timeout
		if c.fails {
			rest = "@odd header_regexp X-Odd [\nrespond @odd odd\n" + rest
		}
		if err := s.load(reloadsStore(srv, c.timeout, "rule 1000/100h fixed_window", rest)); (err != nil) != c.fails {
			t.Fatal(err)
		}
		runtime.GC() // nothing refers to the rules before any more
		if c.away {
			srv.Run()
		}
		if err := srv.Client().FlushAll(t.Context()).Err(); err != nil || len(names) != 1 {
			t.Fatalf("%d keys: %v", len(names), err)
		}
		until(t, fmt.Sprintf("the key is put back, %+v", c), func() bool { return srv.Client().Exists(t.Context(), names[0]).Val() == 1 })
		if k := s.key("GET", "z", "127.0.0.1"); k.Rules[0].Remaining != 997 {
			t.Errorf("%+v: %d left of 1000 after 3 requests", c, k.Rules[0].Remaining)
		}
	}
}

// TestDebtsOfAReplacedStoreAreCounted moves a zone to another Redis, or out of Redis, while what it has
// admitted alone is still owed to the first. That is charged there if it is back in time, and counted otherwise.
func TestDebtsOfAReplacedStoreAreCounted(t *testing.T) {
	const admitted = 7
	for name, then := range map[string]func(other string) setup{
		"another Redis": func(other string) setup {
			return setup{app: redisStore(other), site: "rate_limit {\nzone moves {\nrule 1000/100h\n}\n}\nrespond ok"}
		},
		"a local zone": func(other string) setup {
			return setup{app: redisStore(other), site: "rate_limit {\nzone moves {\nrule 1000/100h\nstore local\n}\n}\nrespond ok"}
		},
		"no zone": func(other string) setup {
			return setup{app: redisStore(other), site: "respond ok"}
		},
		"no store": func(string) setup {
			return setup{site: "rate_limit {\nzone moves {\nrule 1000/100h\n}\n}\nrespond ok"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv, other := redistest.Start(t), redistest.Start(t)
			s := serve(t, setup{app: redisStore(srv.Addr, "fallback_share 1"), site: "rate_limit {\nzone moves {\nrule 1000/100h\n}\n}\nrespond ok"})
			srv.Kill()
			until(t, "the store to be down", func() bool { return s.metric("store_up", "store", "redis") == 0 })
			before := s.metric("uncharged_total", "zone", "moves")
			for range admitted {
				s.want(req{}, 200)
			}
			s.reload(then(other.Addr))
			if name != "no zone" {
				srv.Run()
				until(t, "the debts to be charged", func() bool {
					return len(srv.Client().Keys(t.Context(), "diana:{*}:moves:*").Val()) == 1
				})
				return
			}
			until(t, "the debts to be counted", func() bool {
				return s.metric("uncharged_total", "zone", "moves", "reason", "closed") >= before+admitted
			})
		})
	}
}
