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

// binary is the path of the Caddy that StartCaddy runs.
var binary string

// Build runs xcaddy to build Caddy with the plugin in the folder above into dir.
func Build(dir string) error {
	binary = filepath.Join(dir, "caddy")
	return BuildWith(dir, binary, "github.com/dianalimiter/diana")
}

// BuildWith runs xcaddy to build Caddy with the given modules of this repository.
func BuildWith(dir, output string, modules ...string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()

	// The version is only a name for the module at the path. Without it xcaddy
	// would look for a published version.
	args := []string{"tool", "xcaddy", "build", CaddyVersion, "--output", output}
	for _, m := range modules {
		args = append(args, "--with", m+"@v0.0.0="+root+strings.TrimPrefix(m, "github.com/dianalimiter/diana"))
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	// xcaddy builds in a temporary folder below this one, where it must not find a
	// repository for the version stamp.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GOFLAGS=-buildvcs=false")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("xcaddy build: %w\n%s", err, out)
	}
	return nil
}

// BuildHere builds cmd/caddy of this repository into dir. It uses the flags of make
// build, so that both share one build cache, and the given flags. Without flags it
// uses the binary DIANA_CADDY instead, if set.
func BuildHere(dir string, flags ...string) error {
	if built := os.Getenv("DIANA_CADDY"); built != "" && len(flags) == 0 {
		binary = built
		return nil
	}
	root, err := repository()
	if err != nil {
		return err
	}
	binary = filepath.Join(dir, "caddy")
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	args := append([]string{"build", "-trimpath", "-tags", "nobadger,nomysql,nopgx", "-ldflags", "-s -w", "-buildvcs=false"}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", binary, "./cmd/caddy")...)
	cmd.Dir = root
	if len(flags) == 0 {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/caddy: %w\n%s", err, out)
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
// below dir.
func Command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	return cmd
}

// Binary returns the path of the built Caddy.
func Binary() string { return binary }
