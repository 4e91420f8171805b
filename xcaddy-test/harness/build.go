// Package harness starts what the tests are about, as users get it: a Caddy
// that the real xcaddy built, and real Redis servers. It looks at them from
// outside only: HTTP, Caddy's admin endpoint, log lines, Redis commands.
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

// CaddyVersion is the Caddy that the plugin is built into.
const CaddyVersion = "v2.11.9"

// buildTime is what a build on a slow machine with nothing cached may take.
const buildTime = 10 * time.Minute

// binary is the Caddy that Start runs.
var binary string

// Build has xcaddy build Caddy with the plugin from the folder above into dir.
func Build(dir string) error {
	binary = filepath.Join(dir, "caddy")
	return BuildWith(dir, binary, "github.com/dianalimiter/diana")
}

// BuildWith has xcaddy build Caddy with these modules of this repository.
func BuildWith(dir, output string, modules ...string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()

	// The version is only a name for what lies at the path: xcaddy would look
	// for a published one without it.
	args := []string{"tool", "xcaddy", "build", CaddyVersion, "--output", output}
	for _, m := range modules {
		args = append(args, "--with", m+"@v0.0.0="+root+strings.TrimPrefix(m, "github.com/dianalimiter/diana"))
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	// xcaddy works in a folder of its own below this one and may not find a
	// repository there that its build could stamp.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GOFLAGS=-buildvcs=false")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("xcaddy build: %w\n%s", err, out)
	}
	return nil
}

// BuildHere has Go build the Caddy of this repository, the plugin in it, into
// dir. It takes the flags of `make build`, so that both share one build cache,
// and these. Without flags, a Caddy that was built before is taken where
// DIANA_CADDY names it.
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

// repository is the folder of the plugin: the first one above the tests that has
// its main package.
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

// Run has build make the Caddy of a package's tests in a folder of their own, and
// runs them. It returns the code to exit with.
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

// Command is the built Caddy with args, its files kept below dir.
func Command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	return cmd
}

// Binary is the path of the built Caddy.
func Binary() string { return binary }
