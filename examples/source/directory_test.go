package source

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/sourcetest"
)

// TestSource tests reading, limits, watching, and faults.
func TestSource(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rules.d")
	path := filepath.Join(dir, "team.json")
	sourcetest.Run(t, sourcetest.Config{
		New:    func(testing.TB) rules.Source { return &Directory{Path: dir} },
		Write:  func(t testing.TB, document []byte) { write(t, path, string(document)) },
		Remove: func(testing.TB) { _ = os.Remove(path) },
		Break: func(t testing.TB) func() { // a file instead of the directory
			for _, err := range []error{os.Rename(dir, dir+".old"), os.WriteFile(dir, nil, 0o600)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			return func() { _ = os.Remove(dir); _ = os.Rename(dir+".old", dir) }
		},
		Same: func(wrote, got []byte) bool { // without the spaces
			var a, b bytes.Buffer
			return json.Compact(&a, wrote) == nil && json.Compact(&b, got) == nil && a.String() == b.String()
		},
	})
}

// write replaces a file atomically.
func write(t testing.TB, path, text string) {
	t.Helper()
	for _, err := range []error{os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestJoinedDocuments joins documents, and rejects what does not fit together.
func TestJoinedDocuments(t *testing.T) {
	dir := t.TempDir()
	d := &Directory{Path: dir}
	write(t, filepath.Join(dir, "a.json"), `{"zones": {"a": {"shadow": true}}}`)
	write(t, filepath.Join(dir, "b.json"), `{"zones": {"b": {"enabled": false}}}`)
	write(t, filepath.Join(dir, "README"), `not a document`)
	text, err := d.Fetch(context.Background())
	if err != nil || string(text) != `{"zones":{"a":{"shadow":true},"b":{"enabled":false}}}` {
		t.Errorf("%s, %v", text, err)
	}
	for document, want := range map[string]string{
		`{"zones": {"a": {}}}`: `c.json: zone "a" is in another file, too`,
		`{"zones": {"c": 1}}`:  "c.json: /zones/c: 1: want an object",
	} {
		write(t, filepath.Join(dir, "c.json"), document)
		if _, err := d.Fetch(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", document, err, want)
		}
	}
}

// TestCaddyfile reads the option, and reports one that is wrong with its line.
func TestCaddyfile(t *testing.T) {
	for option, want := range map[string]string{
		"directory /etc/diana/rules.d": `"rules":{"path":"/etc/diana/rules.d","source":"directory"}`,
		"directory":                    "rules directory: want the path of a directory, such as rules directory /etc/diana/rules.d, at Caddyfile:3",
		"directory a {\nb\n}":          `rules directory: unknown option "b"`,
	} {
		b, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\nrate_limit {\nrules "+option+"\n}\n}\n:8080\n"), nil)
		got := string(b)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", option, got, want)
		}
	}
}
