package sources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/rules"
)

// recorder is a sink that records what it receives.
type recorder struct {
	mu        sync.Mutex
	documents []string
	unchanged int
	errs      []error
}

func (h *recorder) Document(text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.documents = append(h.documents, string(text))
}

func (h *recorder) Unchanged() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unchanged++
}

func (h *recorder) Failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, err)
}

func (h *recorder) last() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.documents) == 0 {
		return ""
	}
	return h.documents[len(h.documents)-1]
}

func (h *recorder) count() (documents, errs int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.documents), len(h.errs)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20s: %s", what)
		}
	}
}

// watch watches a source until the test ends.
func watch(t *testing.T, s rules.Source) *recorder {
	t.Helper()
	if p, ok := s.(caddy.Provisioner); ok {
		if err := p.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
	}
	h := new(recorder)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { follow.Watch(ctx, s, h) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return h
}

// TestFileIsWatched creates, replaces and overwrites a file.
func TestFileIsWatched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	h := watch(t, &File{Path: path, Interval: caddy.Duration(time.Hour)})
	waitFor(t, "an error about a missing file", func() bool { _, errs := h.count(); return errs > 0 })
	for i, text := range []string{"one", "two!", "three"} {
		if i == 1 { // replaced, as by an editor
			if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		waitFor(t, text, func() bool { return h.last() == text })
	}
}

// TestFileRejectsIrregularFiles fetches paths that are no regular files, or too large.
func TestFileRejectsIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, 2*rules.MaxSize), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "regular file", pipe: "regular file", large: "over 1048576"} {
		f := &File{Path: path}
		if err := f.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Fetch(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestHTTPConditionalRequests checks that a document is sent once while its ETag
// remains the same.
func TestHTTPConditionalRequests(t *testing.T) {
	var requests, sent atomic.Int64
	t.Setenv("RULES_TOKEN", "secret")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		sent.Add(1)
		w.Header().Set("ETag", `"1"`)
		fmt.Fprint(w, "{}")
	}))
	defer srv.Close()
	h := watch(t, &HTTP{URL: srv.URL, Headers: http.Header{"Authorization": {"Bearer {env.RULES_TOKEN}"}}, Interval: caddy.Duration(time.Second)})
	waitFor(t, "three requests", func() bool { return requests.Load() >= 3 })
	if n, errs := h.count(); n != 1 || errs != 0 || sent.Load() != 1 || h.last() != "{}" {
		t.Errorf("%d documents, %d errors, %d sent, want 1, 0 and 1", n, errs, sent.Load())
	}
}

// TestHTTPHostileServers fetches from servers with large, endless, slow and redirecting
// responses. The token is sent to no other host, and no error shows it.
func TestHTTPHostileServers(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a request to another host, with %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2*rules.MaxSize)) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for b := make([]byte, 1<<16); ; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/round", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/drip", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
	mux.HandleFunc("/empty", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/unasked", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/fine", http.StatusFound) })
	mux.HandleFunc("/fine", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for path, want := range map[string]string{
		"/large": "over 1048576", "/endless": "over 1048576", "/away": "redirects to another host", "/round": "more than 5 redirects",
		"/drip": "", "/empty": "an empty document", "/unasked": "status 304", "/nothing": "status 404", "/here": "fine", "/fine": "fine",
	} {
		s := &HTTP{URL: strings.Replace(srv.URL, "//", "//user:canary@", 1) + path, Headers: http.Header{"Authorization": {"Bearer canary"}}}
		if err := s.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		if path != "/drip" {
			ctx = context.Background()
		}
		text, err := s.Fetch(ctx)
		cancel()
		switch {
		case want == "fine" && (err != nil || string(text) != want):
			t.Errorf("%s: %q, %v", path, text, err)
		case want != "fine" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary")):
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestHTTPURLs checks that only https, or http to a private address or a name, is accepted, and
// that no error shows a secret of a URL.
func TestHTTPURLs(t *testing.T) {
	for url, want := range map[string]string{
		"https://rules.example.com/x": "", "http://localhost:1/x": "", "http://127.0.0.1/x": "", "http://[::1]:8/x": "",
		"http://consul.service/x": "", "http://10.0.0.1/x": "",
		"http://203.0.113.1/x": "203.0.113.1: not a private address: want https", "http://[2001:db8::1]/x": "want https", "http://0.0.0.0/": "want https", "http://[::ffff:8.8.8.8]/": "want https",
		"ftp://localhost/x": "want https", "": "want such as", "rules.json": "want such as", "{env.NO_SUCH}": "url {env.NO_SUCH}: the placeholder resolves to nothing",
		"htps://canary:canary@localhost/x?token=canary": "url htps://localhost: want https", "https://{env.NO_SUCH}/x?token=canary&a={env.A}": "url {env.NO_SUCH} {env.A}: the placeholder",
	} {
		err := (&HTTP{URL: url}).Provision(caddy.Context{})
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
}

// TestRedisIsWatched changes a key and publishes that. A change whose message is lost
// is found when the connection is opened again.
func TestRedisIsWatched(t *testing.T) {
	srv := redistest.Start(t)
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: srv.Addr})
	defer func() { _ = c.Close() }()
	h := watch(t, &Redis{Key: "diana:rules", Address: "redis://" + srv.Addr, Interval: caddy.Duration(time.Hour)})
	waitFor(t, "an error about a missing key", func() bool { _, errs := h.count(); return errs > 0 })
	for _, text := range []string{"one", "two"} {
		c.Set(ctx, "diana:rules", text, 0)
		c.Publish(ctx, "diana:rules", "")
		waitFor(t, text, func() bool { return h.last() == text })
	}
	c.Set(ctx, "diana:rules", strings.Repeat("x", 2*rules.MaxSize), 0)
	c.Publish(ctx, "diana:rules", "")
	waitFor(t, "an error about the size", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return errors.Is(h.errs[len(h.errs)-1], rules.ErrTooLarge)
	})
	// The message of this change is lost with its connection.
	c.Set(ctx, "diana:rules", "three", 0)
	c.ClientKillByFilter(ctx, "TYPE", "pubsub")
	waitFor(t, "three", func() bool { return h.last() == "three" })
}

// TestFrequentChanges changes a document more than a hundred times a second. It is
// read at most ten times a second, and the last change is not missed.
func TestFrequentChanges(t *testing.T) {
	srv := redistest.Start(t)
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: srv.Addr})
	defer func() { _ = c.Close() }()
	h := watch(t, &Redis{Key: "r", Address: "redis://" + srv.Addr, Interval: caddy.Duration(time.Hour)})
	start := time.Now()
	last := ""
	for i := range 300 {
		last = fmt.Sprint("document ", i)
		c.Set(ctx, "r", last, 0)
		c.Publish(ctx, "r", "")
		time.Sleep(5 * time.Millisecond)
	}
	waitFor(t, last, func() bool { return h.last() == last })
	n, _ := h.count()
	if most := int(time.Since(start)/(100*time.Millisecond)) + 2; n > most {
		t.Errorf("%d documents in %v, want at most %d", n, time.Since(start), most)
	}
}

// TestRedisWithoutAddressOrStore checks invalid configurations of a Redis source.
func TestRedisWithoutAddressOrStore(t *testing.T) {
	r := &Redis{Key: "k"}
	if err := r.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	if err := r.UseStore("", "", nil); err == nil || !strings.Contains(err.Error(), "no address and no store") {
		t.Error(err)
	}
	for _, r := range []*Redis{{}, {Key: "k", Address: "redis://canary:canary@[x"}, {Key: "k", Interval: 5}} {
		if err := r.Provision(caddy.Context{}); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
