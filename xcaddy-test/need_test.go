package xcaddytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestNeedNamesAllThatIsMissing checks that a machine that lacks the programs of the tests,
// and cannot install them, is told of all of them before anything else is done.
func TestNeedNamesAllThatIsMissing(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bash", "dirname", "id", "cut", "tr", "sort"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"--check"}, nil} {
		need := harness.Program(t, "bash", append([]string{"../.ci/need"}, args...)...)
		need.Env = []string{"PATH=" + dir}
		out, err := need.CombinedOutput()
		const want = "missing: chromium curl node prometheus redis urllib3 valgrind; no apt-get, dnf, apk, pacman or brew, so install it yourself\n"
		if err == nil || string(out) != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	}
	unknown := harness.Program(t, "bash", "../.ci/need", "redi")
	if out, err := unknown.CombinedOutput(); err == nil || !strings.Contains(string(out), "unknown part redi: want redis") {
		t.Errorf("%v: %s", err, out)
	}
}
