package xcaddytest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestReadmeTry checks that the README's configuration to try answers its commands as stated.
func TestReadmeTry(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	try := regexp.MustCompile("(?s)```caddyfile\\n(\\{\\n\\tadmin [^`]*:8080 .*?)```\\s+```sh\\nbin/caddy run --config Caddyfile\\n(.*?)```").FindSubmatch(readme)
	if try == nil {
		t.Fatal("the README has nothing to try")
	}
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, try[1], 0o600); err != nil {
		t.Fatal(err)
	}
	printed, _ := runSingle(t, file, string(try[2]))
	if err := wantStatuses(printed, times(10, 200), times(2, 429)); err != nil {
		t.Errorf("%v; printed:\n%s", err, printed)
	}
}

// TestReadmeConfigurationsAreValid checks that every configuration in the README is
// valid as it is.
func TestReadmeConfigurationsAreValid(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```caddyfile\\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("no configuration in the README")
	}
	for _, block := range blocks {
		dir := t.TempDir()
		path := filepath.Join(dir, "Caddyfile")
		if err := os.WriteFile(path, block[1], 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := harness.Command(t, dir, "validate", "--config", path)
		cmd.Env = append(cmd.Env, "REDIS_PASSWORD=any")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s\n%s", err, block[1], out)
		}
	}
}
