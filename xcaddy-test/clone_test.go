package xcaddytest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// fence matches the blocks of a page of documentation.
var fence = regexp.MustCompile("(?s)\n```(caddyfile|sh)\n(.*?)```")

// TestFromCloneToThreeInstances clones the repository and follows docs/install.md as it is written, but for
// the ports: from make build to three instances behind a proxy, with Redis, the page and metrics. It
// logs how long that took. What Go has compiled before, for this test's own Caddy, is not compiled again.
func TestFromCloneToThreeInstances(t *testing.T) {
	t.Parallel()
	began := time.Now()
	clone := filepath.Join(t.TempDir(), "diana")
	if out, err := harness.Program(t, "git", "clone", "-q", "..", clone).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	page, err := os.ReadFile(filepath.Join(clone, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Three instances behind a proxy\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var caddyfiles, shells []string
	moved := onFreePorts(t, "6379", "2020", "2021", "2022", "2023", "8080", "8081", "8082", "8083")
	for _, block := range fence.FindAllStringSubmatch(moved.Replace(section), -1) {
		if block[1] == "sh" {
			shells = append(shells, block[2])
		} else {
			caddyfiles = append(caddyfiles, block[2])
		}
	}
	if len(caddyfiles) != 2 || len(shells) != 3 {
		t.Fatalf("%d Caddyfiles and %d scripts, want 2 and 3", len(caddyfiles), len(shells))
	}
	// A busy machine would ask Redis in vain within the default of 25 ms.
	caddyfiles[0] = strings.Replace(caddyfiles[0], "key_secret ", "timeout 5s\nkey_secret ", 1)
	for i, name := range []string{"instance.caddyfile", "proxy.caddyfile"} {
		if !strings.Contains(section, "as `"+name+"`") {
			t.Errorf("the page does not say what %s is", name)
		}
		if err := os.WriteFile(filepath.Join(clone, name), []byte(caddyfiles[i]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	step := func(name string) string {
		return fmt.Sprintf("echo \"== %s after $SECONDS s\"\n", name)
	}
	fleet, _, _ := strings.Cut(shells[1][strings.Index(shells[1], "bin/caddy rate-limit zones --fleet"):], "#") // which tells of the others once they have reported
	fleet = strings.TrimSpace(fleet)
	script := shells[0] + step("started") +
		"trap '" + strings.ReplaceAll(shells[2], "'", "") + "' EXIT\n" +
		"for i in $(seq 120); do " + fleet + " | grep -q '^3 of 3 instances' && break; sleep 1; done\n" + shells[1] + "curl -s -o /dev/null -w 'page %{http_code}\\n' -H 'Sec-Fetch-Mode: navigate' http://localhost:" + moved.Replace("2023") + "/rate_limit/\n" + step("asked")
	cached, err := harness.Program(t, "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(cached))
	out, _ := runShell(t, clone, script, "GOCACHE="+caches[0], "GOMODCACHE="+caches[1])
	took := time.Since(began)
	_, started, _ := strings.Cut(out, "== started")
	statuses, rest, _ := strings.Cut(started, "\n3 of 3 instances\n")
	if err := wantStatuses(statuses, times(10, http.StatusOK), times(3, http.StatusTooManyRequests)); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"api", `caddy_rate_limit_decisions_total{decision="allowed",zone="api"} `, "page 200"} {
		if !strings.Contains(rest, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("printed:\n%s", out)
	}
	t.Logf("from git clone to the answers of three instances behind a proxy: %v; %q", took.Round(100*time.Millisecond), regexp.MustCompile("== .*").FindAllString(out, -1))
}

// onFreePorts returns what replaces ports by free ones.
func onFreePorts(t *testing.T, ports ...string) *strings.Replacer {
	t.Helper()
	var pairs []string
	for _, port := range ports {
		pairs = append(pairs, port, fmt.Sprint(harness.FreePort(t)))
	}
	return strings.NewReplacer(pairs...)
}
