package test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/testdir"
)

// Caddy has one configuration per process, so tests with a site are not parallel.

// setup is a Caddyfile in parts, to which the options of every test are added.
type setup struct {
	global string // lines of the global options
	app    string // lines in the global option rate_limit
	site   string // lines of the first site
	more   string // additional sites; http://:8002 is the second server
}

// The servers listen on free ports, so that no two configurations contend for
// one. Caddy requires their addresses to differ.
var listeners = strings.NewReplacer(`":8001"`, `"127.0.0.1:0"`, `":8002"`, `"127.0.0.2:0"`)

func (c setup) caddyfile(s *site) string {
	return fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	skip_install_trust
	storage file_system %s
	log default {
		output test_log %s
		format json
	}
	servers {
		trusted_proxies static 127.0.0.0/8
		trusted_proxies_strict
	}
	%s
	rate_limit {
		%s
	}
}
http://:8001 {
	log
	%s
}
%s
`, s.storage, s.log.id, c.global, c.app, c.site, c.more)
}

// site is a running Caddy, accessed over HTTP.
type site struct {
	*testing.T
	urls    sync.RWMutex // for requests in other goroutines while the configuration is loaded
	url     string       // of the first server
	second  string       // of the second, if any
	storage string
	begun   time.Time
	log     *testLog
	client  *http.Client
}

// serve runs a configuration until the end of the test.
func serve(t *testing.T, c setup) *site {
	t.Helper()
	s := newSite(t)
	if err := s.load(c); err != nil {
		t.Fatal(err)
	}
	return s
}

func newSite(t *testing.T) *site {
	s := &site{T: t, storage: testdir.New(t), begun: time.Now(), log: newTestLog(t)}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	s.client = &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		endGates(t)
		// A request that outlives its test would be taken for one of a later test.
		ended(t)
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		wantPools(t, 0, 0)
		if t.Failed() {
			t.Logf("the log:\n%s", s.log.text())
		}
	})
	return s
}

// load replaces the running configuration.
func (s *site) load(c setup) error {
	s.Helper()
	adapted, err := adapt(s.T, c.caddyfile(s))
	if err != nil {
		return err
	}
	return s.loadJSON(adapted)
}

func (s *site) loadJSON(adapted []byte) error {
	if err := caddy.Load([]byte(listeners.Replace(string(adapted))), true); err != nil {
		return err
	}
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		return err
	}
	address := func(server string) string {
		srv := app.(*caddyhttp.App).Servers[server]
		if srv == nil {
			return ""
		}
		return "http://" + srv.Listeners()[0].Addr().String()
	}
	s.urls.Lock()
	defer s.urls.Unlock()
	s.url, s.second = address("srv0"), address("srv1")
	return nil
}

// reload is like load and fails the test on error.
func (s *site) reload(c setup) {
	s.Helper()
	if err := s.load(c); err != nil {
		s.Fatal(err)
	}
}

// req is a request. The zero value is GET / from 127.0.0.1.
type req struct {
	method, path, body string
	ip                 string // the client's address, as a proxy forwards it
	host               string
	header             map[string]string
	to                 string // the server's URL; default: the first server
	ctx                context.Context
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a *answer) get(name string) string { return a.header.Get(name) }

func (q req) http(s *site) *http.Request {
	ctx := q.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	s.urls.RLock()
	url := cmp.Or(q.to, s.url) + cmp.Or(q.path, "/")
	s.urls.RUnlock()
	r, err := http.NewRequestWithContext(ctx, cmp.Or(q.method, http.MethodGet), url, strings.NewReader(q.body))
	if err != nil {
		s.Fatal(err)
	}
	if q.ip != "" {
		r.Header.Set("X-Forwarded-For", q.ip)
	}
	for k, v := range q.header {
		r.Header.Set(k, v)
	}
	r.Host = cmp.Or(q.host, r.Host)
	return r
}

// try sends a request and returns any error.
func (s *site) try(q req) (*answer, error) {
	resp, err := s.client.Do(q.http(s))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return &answer{resp.StatusCode, resp.Header, string(body)}, err
}

// once sends each request over a connection of its own. On a connection that was kept, the transport sends
// a request again whose connection the server closes before it answers, which is charged again.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}

// send sends a request and returns its response.
func (s *site) send(q req) *answer {
	s.Helper()
	a, err := s.try(q)
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// want sends a request once for each status, sequentially, and returns the last
// response.
func (s *site) want(q req, statuses ...int) (last *answer) {
	s.Helper()
	for i, want := range statuses {
		last = s.send(q)
		if last.status != want {
			s.Fatalf("request %d of %+v: status %d %q, want %d", i+1, q, last.status, last.body, want)
		}
	}
	return last
}

// wantHeader checks that a header has exactly one value and that it is want. The times of RateLimit
// may be shorter by as many seconds as the site is old, on a machine that stood still.
func (s *site) wantHeader(a *answer, name, want string) {
	s.Helper()
	got := a.header.Values(name)
	if len(got) == 1 && got[0] == want {
		return
	}
	if len(got) == 1 && name == "RateLimit" {
		gotText, gotTimes := cutTimes(got[0])
		wantText, wantTimes := cutTimes(want)
		same, old := gotText == wantText, int(time.Since(s.begun).Seconds())
		for i := range gotTimes {
			same = same && gotTimes[i] <= wantTimes[i] && gotTimes[i] >= wantTimes[i]-old
		}
		if same {
			return
		}
	}
	s.Errorf("%s: %q, want %q", name, got, want)
}

var times = regexp.MustCompile(`;t=[0-9]+`)

// cutTimes returns the value of RateLimit without its times, and those.
func cutTimes(value string) (text string, seconds []int) {
	text = times.ReplaceAllStringFunc(value, func(t string) string {
		n, _ := strconv.Atoi(t[len(";t="):])
		seconds = append(seconds, n)
		return ";t"
	})
	return text, seconds
}

func (s *site) wantNoHeader(a *answer, names ...string) {
	s.Helper()
	for _, name := range names {
		if got := a.header.Values(name); len(got) > 0 {
			s.Errorf("%s: %q, want none", name, got)
		}
	}
}

// parallel runs f n times concurrently.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// until waits until ok returns true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// ended waits until no request is in Diana's handler.
func ended(t testing.TB) {
	t.Helper()
	var in []string
	defer func() {
		if len(in) > 0 {
			t.Logf("%d requests, the first:\n%s", len(in), in[0])
		}
	}()
	until(t, "the end of all requests", func() bool {
		in = append(goroutinesIn("limiter.(*request).serve("), goroutinesIn("limiter.ErrorRoute.ServeHTTP(")...)
		return len(in) == 0
	})
}

// goroutinesIn returns the stacks of the goroutines of this process that are in a function.
func goroutinesIn(function string) []string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 2)
	return slices.DeleteFunc(strings.Split(b.String(), "\n\n"), func(stack string) bool { return !strings.Contains(stack, function) })
}

// standstill measures how long the machine stands still: by how much, in sum, timers are late.
// stood ends the measurement. What takes longer than promised by that much has kept its promise.
func standstill() (stood func() time.Duration) {
	const tick = 5 * time.Millisecond
	var (
		late time.Duration
		wg   sync.WaitGroup
		done = make(chan struct{})
	)
	wg.Go(func() {
		for {
			begun := time.Now()
			select {
			case <-done:
				return
			case <-time.After(tick):
				late += time.Since(begun) - tick
			}
		}
	})
	return func() time.Duration {
		close(done)
		wg.Wait()
		return late
	}
}

// backend is the store of a test's zones.
type backend struct {
	redis *redistest.Server // nil: in this process
}

// app returns the options that select the backend, with a timeout long enough for
// a loaded machine.
func (b backend) app() string {
	if b.redis == nil {
		return ""
	}
	return redisStore(b.redis.Addr, "timeout 10s")
}

func redisStore(addr string, options ...string) string {
	return "store redis " + addr + " {\n" + strings.Join(options, "\n") + "\n}\n"
}

// onBoth runs a test with the local store and with Redis. Every key left in Redis
// must have a TTL and must not reveal the parts of zone keys.
func onBoth(t *testing.T, test func(t *testing.T, b backend)) {
	t.Run("local", func(t *testing.T) { test(t, backend{}) })
	t.Run("redis", func(t *testing.T) {
		b := backend{redistest.Start(t)}
		test(t, b)
		b.redis.CheckTTLs()
	})
}

// stopCaddy stops the running configuration.
func stopCaddy() error { return caddy.Stop() }

// wantPools checks the number of pooled tables and clients.
func wantPools(t testing.TB, wantTables, wantClients int) {
	t.Helper()
	for name, want := range map[string]int{"tables": wantTables, "stores": wantClients} {
		if n := len(pool.Values(name)); n != want {
			t.Errorf("%d pooled %s, want %d", n, name, want)
		}
	}
}

// command returns a program in the root of the repository, which is killed after some minutes.
func command(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.WaitDelay = root, time.Second
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	return cmd
}

// unixSocket returns a path short enough for a socket.
func unixSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// unusedAddr returns an address on which nothing listens, as long as the tests run.
func unusedAddr(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(redistest.FreePort(t)))
}

// handlers returns the rate_limit handlers of the running configuration.
func (s *site) handlers() (found []*diana.Handler) {
	s.Helper()
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		s.Fatal(err)
	}
	var look func(routes caddyhttp.RouteList)
	look = func(routes caddyhttp.RouteList) {
		for _, route := range routes {
			for _, h := range route.Handlers {
				switch h := h.(type) {
				case *diana.Handler:
					found = append(found, h)
				case *caddyhttp.Subroute:
					look(h.Routes)
				}
			}
		}
	}
	for _, srv := range app.(*caddyhttp.App).Servers {
		look(srv.Routes)
	}
	return found
}
