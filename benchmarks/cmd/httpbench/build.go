package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build builds Caddy with Diana and Caddy with the others into dir, both as
// the repository's Makefile does.
func build(ctx context.Context, dir string) (diana, peers string, err error) {
	root, err := goTool(ctx, "list", "-m", "-f", "{{.Dir}}", "github.com/dianalimiter/diana")
	if err != nil {
		return "", "", err
	}
	here, err := goTool(ctx, "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", "", err
	}
	diana, peers = filepath.Join(dir, "caddy-diana"), filepath.Join(dir, "caddy-peers")
	for _, b := range [][3]string{{root, diana, "./cmd/caddy"}, {here, peers, "./cmd/peercaddy"}} {
		_, err := goTool(ctx, "build", "-C", b[0], "-trimpath", "-tags", "nobadger,nomysql,nopgx",
			"-ldflags", "-s -w", "-o", b[1], b[2])
		if err != nil {
			return "", "", err
		}
	}
	return diana, peers, nil
}

func goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // arguments are our own
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, complaints.String())
	}
	return strings.TrimSpace(out.String()), nil
}
