package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// sixAnHour is a zone of six an hour in a store.
func sixAnHour(store string) string {
	return "rate_limit {\nzone z {\nrule 6/1h\nstore " + store + "\n}\n}\nrespond ok"
}

// wantShare checks how many of six an instance enforces without Redis, and how many instances it knows.
func (s *site) wantShare(what, store string, limit, instances int) {
	s.Helper()
	until(s.T, "the store to be down", func() bool {
		s.send(req{})
		return s.metric("store_up", "store", store) == 0
	})
	if got, want := s.send(req{}).get("RateLimit-Policy"), fmt.Sprintf(`"z";q=%d;w=3600`, limit); got != want {
		s.Errorf("%s: %s, want %s", what, got, want)
	}
	if got := s.metric("instances", "store", store); got != float64(instances) {
		s.Errorf("%s: %v instances, want %d", what, got, instances)
	}
}

// TestInstancesOutliveReload changes in an outage what does not move a store to another place, while
// nothing can be stored. The number of live instances stays. At another place nothing is known.
func TestInstancesOutliveReload(t *testing.T) {
	srv := redistest.Start(t)
	store := func(options ...string) string { return redisStore(srv.Addr, options...) }
	s := serve(t, setup{app: store("timeout 2s"), site: sixAnHour("redis")})
	others := startInstances(t, srv, 2)
	until(t, "three instances", func() bool { return s.metric("instances", "store", "redis") == 3 })
	until(t, "their number to be stored", func() bool { b, _ := os.ReadFile(s.instances(srv.Addr)); return string(b) == "3" })
	srv.Kill()
	for _, o := range others {
		_ = o.Destruct()
	}
	dir := filepath.Join(s.storage, "rate_limit")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, app, store string }{
		{"another timeout", store("timeout 1s"), "redis"},
		{"another password", store("timeout 1s", "password p"), "redis"},
		{"another name", store("timeout 1s", "name second"), "second"},
		{"another store at the place", store("timeout 1s", "name second") + store("timeout 1s", "name third"), "third"},
		{"only the other store", store("timeout 1s", "name third"), "third"},
		{"a name of another place", redisStore(unusedAddr(t), "timeout 1s", "name third") + store("timeout 1s", "name fourth"), "fourth"},
	} {
		s.reload(setup{app: c.app, site: sixAnHour(c.store)})
		s.wantShare(c.what, c.store, 2, 3)
	}
	for _, option := range []string{"key_prefix other", "key_secret s", "db 1"} {
		s.reload(setup{app: store("timeout 1s"), site: sixAnHour("redis")})
		s.wantShare("the place before", "redis", 2, 3)
		s.reload(setup{app: store("timeout 1s") + store("timeout 1s", "name second", option), site: sixAnHour("second")})
		s.wantShare(option, "second", 6, 0)
	}
}

// TestStoredInstancesAreOfAPlace starts processes whose stores have the name, but not the place, of one
// whose number of instances was stored.
func TestStoredInstancesAreOfAPlace(t *testing.T) {
	addr := unusedAddr(t)
	for _, c := range []struct {
		address, option  string
		limit, instances int
	}{
		{addr, "key_prefix other", 6, 0},
		{addr, "key_secret s", 6, 0},
		{addr, "db 1", 6, 0},
		{unusedAddr(t), "timeout 1s", 6, 0},
		{addr, "timeout 1s", 2, 3},
	} {
		t.Run(c.option, func(t *testing.T) {
			s := newSite(t)
			path := s.instances(addr)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("3"), 0o600); err != nil {
				t.Fatal(err)
			}
			s.reload(setup{app: redisStore(c.address, c.option), site: sixAnHour("redis")})
			s.wantShare(c.option, "redis", c.limit, c.instances)
		})
	}
}
