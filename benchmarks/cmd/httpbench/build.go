package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build builds Caddy with Diana and Caddy with the other plugins into dir, with the
// flags of the Makefile, unless they are given.
func build(ctx context.Context, dir string, o *options) error {
	for _, b := range []struct {
		file            *string
		module, command string
	}{{&o.diana, "github.com/dianalimiter/diana", "./cmd/caddy"}, {&o.peers, "github.com/dianalimiter/diana/benchmarks", "./cmd/peercaddy"}} {
		if *b.file != "" {
			var err error
			if *b.file, err = filepath.Abs(*b.file); err != nil { // it runs in another folder
				return err
			}
			continue
		}
		log.Printf("building %s of %s", b.command, b.module)
		root, err := goTool(ctx, "list", "-m", "-f", "{{.Dir}}", b.module)
		if err != nil {
			return err
		}
		*b.file = filepath.Join(dir, filepath.Base(b.command))
		_, err = goTool(ctx, "build", "-C", root, "-trimpath", "-tags", "nobadger,nomysql,nopgx",
			"-ldflags", "-s -w", "-o", *b.file, b.command)
		if err != nil {
			return err
		}
	}
	return nil
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
