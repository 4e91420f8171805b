package sources_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/rules/sources"
	"github.com/dianalimiter/diana/sourcetest"
)

// TestSources runs the tests that sources of other modules have to pass.
func TestSources(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.json")
		sourcetest.Run(t, sourcetest.Config{
			New:    func(testing.TB) rules.Source { return &sources.File{Path: path, Interval: caddy.Duration(time.Hour)} },
			Write:  func(t testing.TB, document []byte) { replaceFile(t, path, document) },
			Remove: func(testing.TB) { _ = os.Remove(path) },
			Break: func(t testing.TB) func() {
				for _, err := range []error{os.Rename(path, path+".old"), os.Mkdir(path, 0o700)} {
					if err != nil {
						t.Fatal(err)
					}
				}
				return func() { _ = os.Remove(path); _ = os.Rename(path+".old", path) }
			},
			Within: time.Second,
		})
	})
	t.Run("http", func(t *testing.T) {
		srv := new(documentServer)
		at := httptest.NewServer(srv)
		t.Cleanup(at.Close)
		sourcetest.Run(t, sourcetest.Config{
			New: func(testing.TB) rules.Source {
				return &sources.HTTP{URL: at.URL, Interval: caddy.Duration(time.Second)}
			},
			Write:  func(_ testing.TB, document []byte) { srv.set(document, 200) },
			Remove: func(testing.TB) { srv.set(nil, 404) },
			Break:  func(testing.TB) func() { srv.set(nil, 500); return func() { srv.set(nil, 200) } },
		})
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t)
		client := server.Client()
		sourcetest.Run(t, sourcetest.Config{
			New: func(testing.TB) rules.Source {
				return &sources.Redis{Key: "diana:rules", Address: "redis://" + server.Addr, Interval: caddy.Duration(time.Hour)}
			},
			Write: func(t testing.TB, document []byte) {
				if err := client.Set(t.Context(), "diana:rules", document, 0).Err(); err != nil {
					t.Fatal(err)
				}
				client.Publish(t.Context(), "diana:rules", "")
			},
			Remove: func(t testing.TB) {
				client.Del(t.Context(), "diana:rules")
				client.Publish(t.Context(), "diana:rules", "")
			},
			Break:  func(testing.TB) func() { server.Stall(); return server.Resume },
			Within: time.Second,
		})
	})
}

// replaceFile replaces a file atomically.
func replaceFile(t testing.TB, path string, text []byte) {
	t.Helper()
	for _, err := range []error{os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// documentServer serves a document with an ETag.
type documentServer struct {
	mu       sync.Mutex
	document []byte
	status   int
}

// set changes the document, unless it is nil, and the status.
func (s *documentServer) set(document []byte, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status = status; document != nil {
		s.document = document
	}
}

// ServeHTTP implements http.Handler.
func (s *documentServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tag := `"` + rules.Fingerprint(string(s.document)) + `"` // of the text: the same again is the same
	switch {
	case s.status != 200:
		w.WriteHeader(s.status)
	case r.Header.Get("If-None-Match") == tag:
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("ETag", tag)
		_, _ = w.Write(s.document)
	}
}
