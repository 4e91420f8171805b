package trace

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// Compat runs the Caddyfiles of a folder in a Caddy with the plugin they were written
// for, runs their traces, and checks that the JSON file beside each is what the
// plugin's adapter produces. With UPDATE_GOLDENS=1 it rewrites the JSON. Each
// Caddyfile is tried up to tries times, for a plugin whose windows are aligned to the
// clock.
func Compat(t *testing.T, folder string, tries int) {
	files, err := filepath.Glob(filepath.Join(folder, "*.Caddyfile"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Caddyfile in %s: %v", folder, err)
	}
	requests := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file) //nolint:gosec // a file of the test
			if err != nil {
				t.Fatal(err)
			}
			adapted, err := Adapt(string(text))
			if err != nil {
				t.Fatal(err)
			}
			holdJSON(t, strings.TrimSuffix(file, ".Caddyfile")+".json", adapted)
			for try := 1; ; try++ {
				n, err := runOnce(t, adapted, string(text))
				requests += n
				if err == nil {
					break
				}
				if try == tries {
					t.Fatal(err)
				}
			}
		})
	}
	t.Logf("%d files, %d requests", len(files), requests)
}

func runOnce(t *testing.T, adapted []byte, text string) (requests int, err error) {
	t.Helper()
	steps, err := Parse(Comments(text))
	if err != nil {
		t.Fatal(err)
	}
	moved, _, err := Place{Storage: t.TempDir()}.Move(adapted)
	if err != nil {
		t.Fatal(err)
	}
	urls, err := Load(moved)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	return Run(client, urls[0], steps)
}

func holdJSON(t *testing.T, file string, adapted []byte) {
	t.Helper()
	var want bytes.Buffer
	if err := json.Indent(&want, adapted, "", "\t"); err != nil {
		t.Fatal(err)
	}
	want.WriteByte('\n')
	if os.Getenv("UPDATE_GOLDENS") != "" {
		if err := os.WriteFile(file, want.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file) //nolint:gosec // a file of the test
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s (%v):\n%s\nwant the adapter's output:\n%s", file, err, got, &want)
	}
}
