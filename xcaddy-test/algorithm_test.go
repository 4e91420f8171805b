package xcaddytest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestSeventhAlgorithm checks that the command in docs/new-algorithm.md builds a
// Caddy that accepts the algorithm of examples/algorithm in a rule.
func TestSeventhAlgorithm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	caddy := filepath.Join(dir, "caddy")
	err := harness.BuildWith(dir, caddy, "github.com/dianalimiter/diana", "github.com/dianalimiter/diana/examples/algorithm")
	if err != nil {
		t.Fatal(err)
	}
	adapt := exec.Command(caddy, "adapt", "--config", "-", "--adapter", "caddyfile")
	adapt.Stdin = strings.NewReader(":8080\nrate_limit 5/15m quiet_window\n")
	if out, err := adapt.CombinedOutput(); err != nil || !strings.Contains(string(out), `{"name":"quiet_window"}`) {
		t.Errorf("%v: %s", err, out)
	}
}
