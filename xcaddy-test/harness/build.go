// Package harness runs Caddy, built by xcaddy as users build it, and real Redis
// servers. It observes them only from outside: by HTTP, Caddy's admin endpoint, log
// lines and Redis commands.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// CaddyVersion is the version of Caddy that the plugin is built into.
const CaddyVersion = "v2.11.9"

// buildTime is the maximum time of a build on a slow machine without a cache.
const buildTime = 10 * time.Minute

// programTime is how long a program may take that a test runs to its end.
const programTime = 15 * time.Minute

// binary is the path of the Caddy that StartCaddy runs.
var binary string

// module is the plugin, which is in the folder above.
const module = "github.com/dianalimiter/diana"

// Build makes StartCaddy run the binary DIANA_CADDY if it is set, and otherwise one that
// [XCaddy] builds into dir.
func Build(dir string) error {
	if binary = os.Getenv("DIANA_CADDY"); binary != "" {
		return nil
	}
	binary = filepath.Join(dir, "caddy")
	return XCaddy(binary)
}

// XCaddy runs xcaddy to build Caddy with the plugin of this repository and the modules of
// its examples, as docs/internals/new-algorithm.md, docs/internals/new-rule-source.md and docs/internals/new-store.md have it.
func XCaddy(output string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	// xcaddy builds in a temporary folder below this one, where it must not find a
	// repository for the version stamp.
	dir, err := os.MkdirTemp("", "diana")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	// The version is only a name for the module at the path. Without it xcaddy
	// would look for a published version.
	args := []string{"tool", "xcaddy", "build", CaddyVersion, "--output", output}
	for _, path := range []string{"", "/examples/algorithm", "/examples/source", "/examples/store"} {
		args = append(args, "--with", module+path+"@v0.0.0="+root+path)
	}
	return run(filepath.Join(root, "xcaddy-test"), []string{"TMPDIR=" + dir, "GOFLAGS=" + os.Getenv("GOFLAGS") + " -buildvcs=false"}, args)
}

// BuildHere is like Build for a Caddy that is built with additional flags, such as -race,
// from cmd/caddy of this repository.
func BuildHere(dir string, flags ...string) error {
	if len(flags) == 0 {
		return Build(dir)
	}
	root, err := repository()
	if err != nil {
		return err
	}
	binary = filepath.Join(dir, "caddy")
	args := append([]string{"build", "-trimpath", "-tags", "nobadger,nomysql,nopgx", "-buildvcs=false"}, flags...)
	return run(root, nil, append(args, "-o", binary, "./cmd/caddy"))
}

// run runs the go command with additional environment variables.
func run(dir string, env, args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// repository returns the root of the repository: the first folder above the tests
// that has cmd/caddy.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "caddy")); err == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("no folder above the tests has cmd/caddy")
		}
		dir = above
	}
}

// Run calls build to build the Caddy of a package's tests in a temporary folder and
// runs the tests. It returns the exit code.
func Run(m *testing.M, build func(dir string) error) int {
	dir, err := os.MkdirTemp("", "diana")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Command returns a command that runs the built Caddy with args and keeps its files
// below dir. It is killed at the end of the test, or after programTime.
func Command(t testing.TB, dir string, args ...string) *exec.Cmd {
	cmd := Program(t, binary, args...)
	cmd.Env = environment(dir)
	return cmd
}

// Program is like Command for another program.
func Program(t testing.TB, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), programTime)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	return cmd
}

// environment is that of a Caddy that keeps its files below dir.
func environment(dir string) []string {
	return append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
}

// Binary returns the path of the built Caddy.
func Binary() string { return binary }
