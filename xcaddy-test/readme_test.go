package xcaddytest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

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
