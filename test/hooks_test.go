package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
)

// Modules that give the tests access to Caddy: a log writer, a handler and an
// event handler. Each finds its test by a name in the configuration.
func init() {
	caddy.RegisterModule(new(logWriter))
	caddy.RegisterModule(new(hook))
	caddy.RegisterModule(new(eventHook))
	caddy.RegisterModule(new(slowStorage))
	httpcaddyfile.RegisterHandlerDirective("test_hook", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		p := new(hook)
		h.Next()
		if !h.Args(&p.Name) {
			return nil, h.ArgErr()
		}
		return p, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("test_hook", httpcaddyfile.Before, "respond")
}

var (
	names     atomic.Int64
	testLogs  sync.Map // name → *testLog
	hooks     sync.Map // name → handlerFunc
	eventLogs sync.Map // name → *events
)

func newName(kind string) string { return fmt.Sprintf("%s%d", kind, names.Add(1)) }

// testLog is Caddy's log, in JSON.
type testLog struct {
	id  string
	mu  sync.Mutex
	buf bytes.Buffer
}

func newTestLog(t *testing.T) *testLog {
	l := &testLog{id: newName("log")}
	testLogs.Store(l.id, l)
	t.Cleanup(func() { testLogs.Delete(l.id) })
	return l
}

func (l *testLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (*testLog) Close() error { return nil }

func (l *testLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// lines returns the lines with this message.
func (l *testLog) lines(t testing.TB, msg string) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(l.text()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v in the log line %s", err, text)
		}
		if line["msg"] == msg {
			lines = append(lines, line)
		}
	}
	return lines
}

// wait waits for a line with this message and returns it.
func (l *testLog) wait(t testing.TB, msg string) map[string]any {
	t.Helper()
	until(t, "the log line "+msg, func() bool { return len(l.lines(t, msg)) > 0 })
	return l.lines(t, msg)[0]
}

// access waits for the access log lines of n requests, which are written after the
// responses.
func (l *testLog) access(t testing.TB, n int) []map[string]any {
	t.Helper()
	until(t, fmt.Sprint(n, " lines in the access log"), func() bool { return len(l.lines(t, "handled request")) >= n })
	return l.lines(t, "handled request")
}

// logWriter writes to the test's log.
type logWriter struct {
	ID string `json:"id"`
}

func (*logWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.test_log", New: func() caddy.Module { return new(logWriter) }}
}
func (w *logWriter) String() string    { return w.ID }
func (w *logWriter) WriterKey() string { return w.ID }
func (w *logWriter) OpenWriter() (io.WriteCloser, error) {
	l, ok := testLogs.Load(w.ID)
	if !ok {
		return nil, fmt.Errorf("no log %s", w.ID)
	}
	return l.(*testLog), nil
}

func (w *logWriter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&w.ID) {
		return d.ArgErr()
	}
	return nil
}

type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// handle returns a directive that runs f for requests of a path, or for all if the
// path is *.
func handle(t testing.TB, path string, f handlerFunc) (directive string) {
	name := newName("hook")
	hooks.Store(name, f)
	t.Cleanup(func() { hooks.Delete(name) })
	return "test_hook " + path + " " + name
}

// hook is a handler that runs a function of the test.
type hook struct {
	Name string `json:"name"`
}

func (*hook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_hook", New: func() caddy.Module { return new(hook) }}
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	f, ok := hooks.Load(h.Name)
	if !ok {
		return fmt.Errorf("no hook %s", h.Name)
	}
	return f.(handlerFunc)(w, r)
}

// events records emitted events.
type events struct {
	id   string
	hold chan struct{} // if not nil, the handler of each event waits until it is closed
	mu   sync.Mutex
	seen []caddy.Event
}

// listen returns a recorder and the global option that subscribes it to events.
func listen(t *testing.T, names ...string) (*events, string) {
	e := &events{id: newName("events")}
	eventLogs.Store(e.id, e)
	t.Cleanup(func() { eventLogs.Delete(e.id) })
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "on %s test_events %s\n", n, e.id)
	}
	return e, "events {\n" + b.String() + "}\n"
}

func (e *events) named(name string) (found []caddy.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.seen {
		if ev.Name() == name {
			found = append(found, ev)
		}
	}
	return found
}

// wait waits for n events of a name and returns them.
func (e *events) wait(t testing.TB, name string, n int) []caddy.Event {
	t.Helper()
	until(t, fmt.Sprint(n, " events ", name), func() bool { return len(e.named(name)) >= n })
	return e.named(name)
}

// eventHook passes events to the test's recorder.
type eventHook struct {
	ID string `json:"id"`
}

func (*eventHook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.test_events", New: func() caddy.Module { return new(eventHook) }}
}

func (h *eventHook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&h.ID) {
		return d.ArgErr()
	}
	return nil
}

func (h *eventHook) Handle(_ context.Context, ev caddy.Event) error {
	if v, ok := eventLogs.Load(h.ID); ok {
		e := v.(*events)
		if e.hold != nil {
			<-e.hold
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = append(e.seen, ev)
	}
	return nil
}

// slowStorage is a file system storage whose writes of what rate_limit keeps wait for a
// test. It ignores contexts.
type slowStorage struct {
	certmagic.FileStorage
	Root string `json:"root"`
	Hold string `json:"hold"` // of slowStorages
}

var slowStorages sync.Map // name → chan struct{}, closed to let the writes go on

func (*slowStorage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.test_slow", New: func() caddy.Module { return new(slowStorage) }}
}

func (s *slowStorage) CertMagicStorage() (certmagic.Storage, error) {
	s.FileStorage.Path = s.Root
	return s, nil
}

func (s *slowStorage) Store(ctx context.Context, key string, value []byte) error {
	if hold, ok := slowStorages.Load(s.Hold); ok && strings.HasPrefix(key, "rate_limit/") {
		<-hold.(chan struct{})
	}
	return s.FileStorage.Store(context.WithoutCancel(ctx), key, value)
}

var (
	_ caddyhttp.MiddlewareHandler = (*hook)(nil)
	_ caddy.StorageConverter      = (*slowStorage)(nil)
	_ caddyevents.Handler         = (*eventHook)(nil)
	_ caddyfile.Unmarshaler       = (*eventHook)(nil)
	_ caddy.WriterOpener          = (*logWriter)(nil)
)
