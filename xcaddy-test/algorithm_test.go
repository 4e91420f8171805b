package xcaddytest

import (
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestThirdPartyModules checks that a Caddy that was built with the algorithm and the source
// of the examples, as docs/new-algorithm.md and docs/new-rule-source.md have it, accepts both.
func TestThirdPartyModules(t *testing.T) {
	adapt := harness.Command(t, t.TempDir(), "adapt", "--config", "-", "--adapter", "caddyfile")
	adapt.Stdin = strings.NewReader("{\nrate_limit {\nrules directory /etc/diana/rules.d\n}\n}\n:8080\nrate_limit 5/15m quiet_window\n")
	out, err := adapt.CombinedOutput()
	for _, want := range []string{`{"name":"quiet_window"}`, `"rules":{"path":"/etc/diana/rules.d","source":"directory"}`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s, want %s", err, out, want)
		}
	}
}
