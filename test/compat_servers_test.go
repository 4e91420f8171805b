package test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// TestCompatServersKeepCounts checks that identical handlers in two servers, which Caddy provisions in
// any order, keep their own counts over reloads.
func TestCompatServersKeepCounts(t *testing.T) {
	const one = `{"routes": [{"handle": [{"handler": "rate_limit", "key": "{query.id}", "rate": "2r/m"}, {"handler": "static_response"}]}]}`
	s := newSite(t)
	text := []byte(`{"apps": {"http": {"servers": {"srv0": ` + one + `, "srv1": ` + one + `}}}}`)
	load := func() {
		t.Helper()
		if _, err := s.loadText(text, trace.Place{}); err != nil {
			t.Fatal(err)
		}
	}
	load()
	q := req{path: "/?id=1"}
	s.want(q, 200, 200)
	for range 16 {
		load()
		s.want(q, 429)
	}
	q.to = s.second
	s.want(q, 200, 200, 429)

	live := s.zones()
	offline := zonesOf(t, text)
	if len(live.Zones) != 2 || !slices.EqualFunc(live.Zones, offline.Zones, func(a, b cli.Zone) bool { return a.Name == b.Name }) {
		t.Errorf("zones %+v, and %+v of the configuration that does not run: want two of the same names", live.Zones, offline.Zones)
	}
}

// zonesOf returns the admin API's report on the zones of a configuration that does not run.
func zonesOf(t *testing.T, config []byte) (all cli.Zones) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "caddy.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := cli.Open(file, "", "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	w := httptest.NewRecorder()
	if err := o.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), "zones"); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	return all
}
