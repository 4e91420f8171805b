// Package xcaddytest tests what the README promises of the plugin as users run it:
// built by xcaddy, in real processes, with a real Redis, and observed only from
// outside.
package xcaddytest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

func TestMain(m *testing.M) {
	// Parallel tests mostly wait.
	if !full {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	code := harness.Run(m, harness.Build)
	stopChromium()
	os.Exit(code)
}

// full is true under make chaos, where times and shares have targets.
var full = os.Getenv("DIANA_CHAOS") == "full"

// pick returns whole under make chaos and otherwise short.
func pick[T any](whole, short T) T {
	if full {
		return whole
	}
	return short
}

// late reports a time or a share that misses its target on an idle machine. It fails
// the test under make chaos. Under make test, which may share the machine with other
// work, it only logs.
func late(t *testing.T, format string, args ...any) {
	t.Helper()
	if full {
		t.Errorf(format, args...)
		return
	}
	t.Logf("LATE: "+format, args...)
}

// untilStopped returns a condition that is true until stop is called or the test
// ends.
func untilStopped(t *testing.T) (more func() bool, stop func()) {
	ctx, stop := context.WithCancel(t.Context())
	return func() bool { return ctx.Err() == nil }, stop
}

// algorithms are the names of the six built-in algorithms.
var algorithms = []string{
	"fixed_window", "sliding_log", "sliding_window", "token_bucket", "leaky_bucket", "gcra",
}

func TestModulesAreListed(t *testing.T) {
	out, err := harness.Command(t, t.TempDir(), "list-modules").CombinedOutput()
	if err != nil {
		t.Fatalf("list-modules: %v\n%s", err, out)
	}
	listed := strings.Fields(string(out))
	want := []string{"http.handlers.rate_limit", "rate_limit"}
	for _, algorithm := range algorithms {
		want = append(want, "http.rate_limit.algorithms."+algorithm)
	}
	for _, source := range []string{"redis", "http", "file"} {
		want = append(want, "http.rate_limit.rule_sources."+source)
	}
	for _, module := range want {
		if !slices.Contains(listed, module) {
			t.Errorf("%s is not listed", module)
		}
	}
}

// onRedis returns the global option for a store in r with additional options.
func onRedis(r *harness.Redis, options ...string) string { return onRedisWith(r, "", options...) }

// onRedisWith is like onRedis, with additional lines beside the store.
func onRedisWith(r *harness.Redis, lines string, options ...string) string {
	return fmt.Sprintf("\trate_limit {\n\t\tstore redis %s {\n%s\n\t\t}\n%s\n\t}",
		r.Addr, strings.Join(options, "\n"), lines)
}

// urls returns the URL of a path on each instance.
func urls(caddys []*harness.Caddy, path string) []string {
	all := make([]string, len(caddys))
	for i, c := range caddys {
		all[i] = c.URL + path
	}
	return all
}

// startMany starts n instances with the same configuration.
func startMany(t *testing.T, n int, config harness.Config) []*harness.Caddy {
	t.Helper()
	all := make([]*harness.Caddy, n)
	for i := range all {
		all[i] = harness.StartCaddy(t, config)
	}
	return all
}
