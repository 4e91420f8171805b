//go:build unix

package store

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"go.uber.org/zap"

	_ "github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/storetest"
)

// open returns a new instance of the store in a directory.
func open(t testing.TB, d Directory) *files {
	t.Helper()
	d.logger = zap.NewNop()
	s, err := d.Open(func(_ string, open func() stores.Shared) stores.Shared { return open() })
	if err != nil {
		t.Fatal(err)
	}
	f, _ := s.(*files)
	t.Cleanup(func() { _ = f.Destruct() })
	return f
}

// TestStore tests what the store charges, holds and blocks, alone and with others.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "limits")
	storetest.Run(t, storetest.Config{New: func(t testing.TB) stores.Store { return open(t, Directory{Path: dir}) }})
}

// TestDeadInstance gives back what the requests of an instance hold that is gone.
func TestDeadInstance(t *testing.T) {
	dir := t.TempDir()
	first, second := open(t, Directory{Path: dir}), open(t, Directory{Path: dir})
	ask := func(f *files) bool {
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: &stores.Counter{Terms: stores.Terms{Zone: "a", InFlight: 1}}, Subject: stores.Subject{Key: stores.Key{Lo: 1}}, Cost: 1}}}
		f.Decide(t.Context(), check)
		return check.Admitted
	}
	if !ask(first) || ask(second) {
		t.Error("want the permit with the first instance")
	}
	_ = first.own.Close() // as the kernel does when a process ends
	if !ask(second) || ask(second) {
		t.Error("want the permit of an instance that is gone given to the other, once")
	}
}

// TestManyKeys counts more keys than there is room for: no file grows, and no key passes uncounted.
func TestManyKeys(t *testing.T) {
	f := open(t, Directory{Path: t.TempDir()})
	admitted := 0
	for n := range uint64(3 * slotKeys) {
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: &stores.Counter{Terms: stores.Terms{Zone: "a", InFlight: 1}}, Subject: stores.Subject{Key: stores.Key{Hi: n}}, Cost: 1}}}
		if f.Decide(t.Context(), check); check.Admitted {
			admitted++
		}
	}
	if admitted != slotKeys+1 {
		t.Errorf("%d requests of as many keys admitted, want one for each of %d keys, and one for all others", admitted, slotKeys)
	}
}

// TestOutage admits or denies requests while the directory cannot be used, and those after it are
// counted.
func TestOutage(t *testing.T) {
	for word, want := range map[string]stores.Mode{"": stores.ModeAllow, "deny": stores.ModeDeny} {
		dir := t.TempDir()
		f := open(t, Directory{Path: dir, OnFailure: word})
		ask := func(ctx context.Context, want stores.Mode) {
			t.Helper()
			check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: &stores.Counter{Terms: stores.Terms{Zone: "a", InFlight: 1}}, Subject: stores.Subject{Key: stores.Key{Lo: 1}}, Cost: 1}}}
			if f.Decide(ctx, check); check.Mode != want || check.Admitted == (want == stores.ModeDeny) || f.Status().Up != (want == stores.ModeShared) {
				t.Errorf("on_failure %q: %v, admitted %v, want %v", word, check.Mode, check.Admitted, want)
			}
			for i := range check.Zones {
				f.Finish(t.Context(), &check.Zones[i], 0)
			}
		}
		ask(t.Context(), stores.ModeShared)
		other, err := os.OpenFile(filepath.Join(dir, "001.json"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := lock(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		ask(ctx, want)
		cancel()
		_ = other.Close()
		ask(t.Context(), stores.ModeShared)
	}
}

// TestCaddyfile reads the option, and reports one that is wrong with its line.
func TestCaddyfile(t *testing.T) {
	for option, want := range map[string]string{
		"directory /run/limits":                                  `"stores":[{"path":"/run/limits","store":"directory"}]`,
		"directory /run/limits {\nname here\non_failure deny\n}": `"stores":[{"name":"here","on_failure":"deny","path":"/run/limits","store":"directory"}]`,
		"directory":                                   "store directory: want the path of a directory, such as store directory /run/limits, at Caddyfile:3",
		"directory a {\nb\n}":                         `unknown option "b": want name or on_failure, at Caddyfile:4`,
		"directory a\nstore directory b":              `store "directory" is given twice: want another name, at Caddyfile:4`,
		"redis a\nstore directory b {\nname redis\n}": `store "redis" is given twice: want another name, at Caddyfile:4`,
		"folder a":                                    `store "folder": want redis and its address, such as store redis localhost:6379, or directory, at Caddyfile:3`,
	} {
		b, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\nrate_limit {\nstore "+option+"\n}\n}\n:8080\n"), nil)
		got := string(b)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", option, got, want)
		}
	}
}
