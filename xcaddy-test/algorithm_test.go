package xcaddytest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestThirdPartyModules checks that a Caddy that was built with the algorithm, the source and the
// store of the examples, as their pages in docs have it, accepts them.
func TestThirdPartyModules(t *testing.T) {
	adapt := harness.Command(t, t.TempDir(), "adapt", "--config", "-", "--adapter", "caddyfile")
	adapt.Stdin = strings.NewReader("{\nrate_limit {\nrules directory /etc/diana/rules.d\nstore directory /run/limits\n}\n}\n:8080\nrate_limit 5/15m quiet_window\n")
	out, err := adapt.CombinedOutput()
	for _, want := range []string{`{"name":"quiet_window"}`, `"rules":{"path":"/etc/diana/rules.d","source":"directory"}`, `"stores":[{"path":"/run/limits","store":"directory"}]`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s, want %s", err, out, want)
		}
	}
}

// TestThirdPartyStore counts requests to two Caddys in the store of the example, by an algorithm
// of the examples, too, and over a restart of one of them.
func TestThirdPartyStore(t *testing.T) {
	global := "\trate_limit {\n\t\tstore directory " + filepath.Join(t.TempDir(), "limits") + "\n\t}"
	caddys := startMany(t, 2, harness.Config{Global: global, Site: `
		rate_limit {
			zone all {
				key static
				rule 20/1h
				rule 20/1h quiet_window
			}
		}
		respond ok`})
	admitted := 0
	for n := range 60 {
		c := caddys[n%2]
		if n == 15 {
			c.Restart(t)
		}
		if c.Statuses(t, "/", 1)[0] == 200 {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("%d of 60 requests to two Caddys admitted, want the limit of 20", admitted)
	}
}
