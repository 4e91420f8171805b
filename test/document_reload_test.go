package test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestDocumentOutlivesReload changes how a source of rules is read, while it is away and nothing can be
// stored. The document in force stays, and is stored as soon as that is possible.
func TestDocumentOutlivesReload(t *testing.T) {
	const document = `{"zones": {"z": {"rules": [{"limit": 4, "window": "1h"}]}}}`
	for name, source := range map[string]func(t *testing.T) (first, second string, leave func()){
		"http": func(t *testing.T) (first, second string, leave func()) {
			var away atomic.Bool
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if away.Load() {
					w.WriteHeader(503)
					return
				}
				_, _ = w.Write([]byte(document))
			}))
			t.Cleanup(srv.Close)
			rules := "rules http " + srv.URL + " {\ninterval "
			return rules + "10s\n}", rules + "11s\n}", func() { away.Store(true) }
		},
		"redis": func(t *testing.T) (first, second string, leave func()) {
			srv := redistest.Start(t)
			if err := srv.Client().Set(t.Context(), "diana:rules", document, 0).Err(); err != nil {
				t.Fatal(err)
			}
			rules := "rules redis diana:rules {\ninterval 1h\n}"
			return redisStore(srv.Addr, "timeout 2s") + rules, redisStore(srv.Addr, "timeout 3s", "name other") + rules, func() { srv.Kill() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, second, leave := source(t)
			const site = "rate_limit {\nzone z {\nstore local\nrule 9/1h\n}\n}\nrespond ok"
			s := serve(t, setup{app: first, site: site})
			inForce := func() bool { return s.send(req{}).get("RateLimit-Policy") == `"z";q=4;w=3600` }
			until(t, "the document to be in force", inForce)
			files := func() []string {
				all, _ := filepath.Glob(filepath.Join(s.storage, "rate_limit", "rules", "*.json"))
				return all
			}
			until(t, "the document to be stored", func() bool { return len(files()) == 1 })
			leave()
			dir := filepath.Join(s.storage, "rate_limit")
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, app := range []string{second, first, second} {
				if s.reload(setup{app: app, site: site}); !inForce() {
					t.Fatal("a reload drops the document in force")
				}
			}
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			if s.reload(setup{app: first, site: site}); !inForce() {
				t.Error("a reload drops the document in force, though it can be stored")
			}
			until(t, "the document to be stored again", func() bool { return len(files()) == 1 })
		})
	}
}
