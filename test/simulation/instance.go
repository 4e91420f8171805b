package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"

	"github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/internal/lib/process"
)

// instance is one Caddy with the plugin: the app, the admin API and a handler for each
// site, provisioned by Caddy. Its listeners are left out: requests are passed to the
// handlers.
type instance struct {
	w       *world
	name    string
	process *process.Process

	mu      sync.Mutex
	running *configuration
	dead    bool // killed: what it still does has no effect
	starts  int
	address string // of its process in the network
	since   time.Duration

	requests *sync.WaitGroup // of its process; under mu
	idle     atomic.Bool     // it is sent no requests
	turn     chan struct{}   // held while a configuration is loaded: Caddy loads one after another
}

// configuration is a configuration of an instance.
type configuration struct {
	ctx    caddy.Context
	cancel context.CancelFunc
	base   caddy.Context
	app    *diana.App
	events *caddyevents.App
	sites  []caddyhttp.MiddlewareHandler
	admin  caddy.AdminRouter
	json   json.RawMessage // of the app
}

// opensStores says whether a configuration has other stores than the one that runs. Those that only
// one instance was reloaded with end with its next reload.
func (in *instance) opensStores(spec *setup) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.running == nil || !bytes.Equal(in.running.json, spec.app())
}

type worldKey struct{}

// start starts the instance as a new process.
func (in *instance) start(spec *setup) error {
	in.mu.Lock()
	in.starts++
	in.address = fmt.Sprintf("%s.%d", in.name, in.starts)
	in.process = &process.Process{ID: rand.Uint64(), Dial: in.w.network.dialer(in.name, in.address)} //nolint:gosec // as the program's
	in.dead = false
	in.since = in.w.now()
	in.mu.Unlock()
	return in.load(spec)
}

// load replaces the configuration as Caddy does: the new one is provisioned and started
// before the old one is stopped and cleaned up.
func (in *instance) load(spec *setup) error {
	c, err := in.provision(spec)
	if err != nil {
		return err
	}
	if err := errors.Join(c.events.Start(), c.app.Start()); err != nil {
		return err
	}
	c.events.Emit(c.ctx, "started", nil) // as caddy.Run does
	in.mu.Lock()
	old := in.running
	in.running = c
	in.mu.Unlock()
	if old != nil {
		time.Sleep(grace)
		old.end()
	}
	return nil
}

// grace is how long requests that began under a configuration go on before it ends.
const grace = 300 * time.Millisecond

func (in *instance) provision(spec *setup) (c *configuration, err error) {
	storageRaw, _ := json.Marshal(map[string]string{"module": "simulation", "instance": in.name})
	cfg := &caddy.Config{
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{
			Level: in.w.logLevel, WriterRaw: json.RawMessage(`{"output":"simulation"}`),
			EncoderRaw: json.RawMessage(`{"format":"json"}`),
		}}}},
		StorageRaw: storageRaw,
	}
	c = new(configuration)
	if c.base, err = caddy.ProvisionContext(cfg); err != nil {
		return nil, err
	}
	// The apps are loaded in a context of ours, which can be canceled.
	c.json = spec.app()
	cfg.AppsRaw = caddy.ModuleMap{"rate_limit": c.json, "events": json.RawMessage(
		`{"subscriptions":[{"events":["rate_limit_store_down","rate_limit_store_up"],"handlers":[{"handler":"simulation"}]}]}`)}
	parent := c.base
	parent.Context = process.With(context.WithValue(c.base.Context, worldKey{}, in), in.process)
	c.ctx, c.cancel = caddy.NewContext(parent)
	defer func() {
		if err != nil {
			c.cancel()
		}
	}()
	v, err := c.ctx.App("rate_limit")
	if err != nil {
		return nil, err
	}
	c.app = v.(*diana.App) //nolint:forcetypeassert // a simulation
	if v, err = c.ctx.App("events"); err != nil {
		return nil, err
	}
	c.events = v.(*caddyevents.App) //nolint:forcetypeassert // a simulation
	for i := range spec.sites {
		h, err := c.ctx.LoadModuleByID("http.handlers.rate_limit", spec.site(i))
		if err != nil {
			return nil, fmt.Errorf("site %d: %w", i, err)
		}
		c.sites = append(c.sites, h.(caddyhttp.MiddlewareHandler)) //nolint:forcetypeassert // a simulation
	}
	if v, err = c.ctx.LoadModuleByID("admin.api.rate_limit", nil); err != nil {
		return nil, err
	}
	c.admin = v.(caddy.AdminRouter) //nolint:forcetypeassert // a simulation
	return c, nil
}

// end stops a configuration and cleans it up, as Caddy does after a reload: the requests
// under way go on.
func (c *configuration) end() {
	_ = errors.Join(c.app.Stop(), c.events.Stop())
	c.cancel()
}

// stop stops the instance gracefully: its requests end first.
func (in *instance) stop() {
	in.mu.Lock()
	c, requests := in.running, in.requests
	in.running = nil
	in.mu.Unlock()
	if c == nil {
		return
	}
	requests.Wait()
	in.finish(c)
}

// finish ends a configuration while no other is loaded: Caddy does one after another.
func (in *instance) finish(c *configuration) {
	in.turn <- struct{}{}
	defer func() { <-in.turn }()
	c.end()
}

// die ends the instance as SIGKILL does: nothing that it does afterwards leaves it.
func (in *instance) die() {
	in.mu.Lock()
	c, requests := in.running, in.requests
	in.running, in.dead, in.requests = nil, true, new(sync.WaitGroup) // it may be started again before they end
	in.mu.Unlock()
	if c == nil {
		return
	}
	in.w.network.bury(in.address)
	// What is left of it is freed, without an effect.
	in.w.background.Go(func() {
		requests.Wait()
		in.finish(c)
	})
}

// isUp says whether the instance serves requests.
func (in *instance) isUp() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.running != nil
}

// current returns the configuration that serves a request, and what is to be called when that ends; nil: the
// instance is down.
func (in *instance) current() (c *configuration, ended func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.running != nil {
		in.requests.Add(1)
	}
	return in.running, in.requests.Done
}

// serve serves a request at a site. next is what follows in the site's chain.
func (in *instance) serve(site int, r *http.Request, next caddyhttp.HandlerFunc) (status int, header http.Header, ok bool) {
	c, ended := in.current()
	if c == nil {
		return 0, nil, false
	}
	defer ended()
	w := httptest.NewRecorder()
	r.RemoteAddr = "203.0.113.7:41234"
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
	err := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				if v != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
					panic(v)
				}
				err = http.ErrAbortHandler
			}
		}()
		return c.sites[site].ServeHTTP(w, r, next)
	}()
	status = w.Code
	var he caddyhttp.HandlerError
	switch {
	case errors.As(err, &he):
		status = he.StatusCode
	case err != nil:
		status = http.StatusInternalServerError
	}
	return status, w.Header(), true
}

// isDead says whether the instance was killed.
func (in *instance) isDead(address string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.dead || in.address != address
}

// addressNow returns the address of the instance's process.
func (in *instance) addressNow() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.address
}

// ask calls the admin API. It returns the status and the body.
func (in *instance) ask(method, path string) (int, string) {
	c, ended := in.current()
	if c == nil {
		return 0, ""
	}
	defer ended()
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
	if err := c.admin.Routes()[0].Handler.ServeHTTP(w, r); err != nil {
		var api caddy.APIError
		if errors.As(err, &api) {
			return api.HTTPStatus, err.Error()
		}
		return http.StatusInternalServerError, err.Error()
	}
	return w.Code, w.Body.String()
}

// modes subscribes to the events that tell a change of mode.
type modes struct {
	in      *instance
	process string // its address
}

func (modes) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.simulation", New: func() caddy.Module { return new(modes) }}
}

func (m *modes) Provision(ctx caddy.Context) error {
	m.in, _ = ctx.Value(worldKey{}).(*instance)
	m.process = m.in.addressNow()
	return nil
}

// Handle implements caddyevents.Handler.
func (m *modes) Handle(_ context.Context, e caddy.Event) error {
	m.in.w.mode(m.in, m.process, e.Name() == "rate_limit_store_up", e.Data)
	return nil
}

// storage is the storage of an instance. It is kept when its process dies.
type storage struct {
	Instance string `json:"instance"`

	mu     *sync.Mutex
	values map[string]stored
}

type stored struct {
	value []byte
	at    time.Time
}

func (*storage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.simulation", New: func() caddy.Module { return new(storage) }}
}

// storages are the storages by instance.
var storages sync.Map

// CertMagicStorage implements caddy.StorageConverter.
func (s *storage) CertMagicStorage() (certmagic.Storage, error) {
	v, _ := storages.LoadOrStore(s.Instance, &storage{s.Instance, new(sync.Mutex), make(map[string]stored)})
	return v.(certmagic.Storage), nil //nolint:forcetypeassert // nothing else is stored
}

func (s *storage) Store(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = stored{slices.Clone(value), time.Now()}
	return nil
}

func (s *storage) Load(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.values[key]; ok {
		return v.value, nil
	}
	return nil, fs.ErrNotExist
}

func (s *storage) Stat(_ context.Context, key string) (certmagic.KeyInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[key]
	if !ok {
		return certmagic.KeyInfo{}, fs.ErrNotExist
	}
	return certmagic.KeyInfo{Key: key, Modified: v.at, Size: int64(len(v.value)), IsTerminal: true}, nil
}

func (s *storage) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, key)
	return nil
}

func (s *storage) Exists(_ context.Context, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.values[key]
	return ok
}

func (s *storage) List(_ context.Context, prefix string, _ bool) (keys []string, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.values {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

func (*storage) Lock(context.Context, string) error   { return nil }
func (*storage) Unlock(context.Context, string) error { return nil }

func init() {
	caddy.RegisterModule(new(storage))
	caddy.RegisterModule(modes{})
	caddy.RegisterModule(logWriter{})
}
