package xcaddytest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestThirdPartyModules checks that the commands in docs/new-algorithm.md and
// docs/new-rule-source.md build a Caddy that accepts the algorithm and the source of
// examples; both are built into one here.
func TestThirdPartyModules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	caddy := filepath.Join(dir, "caddy")
	const module = "github.com/dianalimiter/diana"
	if err := harness.BuildWith(dir, caddy, module, module+"/examples/algorithm", module+"/examples/source"); err != nil {
		t.Fatal(err)
	}
	adapt := exec.Command(caddy, "adapt", "--config", "-", "--adapter", "caddyfile")
	adapt.Stdin = strings.NewReader("{\nrate_limit {\nrules directory /etc/diana/rules.d\n}\n}\n:8080\nrate_limit 5/15m quiet_window\n")
	out, err := adapt.CombinedOutput()
	for _, want := range []string{`{"name":"quiet_window"}`, `"rules":{"path":"/etc/diana/rules.d","source":"directory"}`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s, want %s", err, out, want)
		}
	}
}
