package sources

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/configure/external"
	"github.com/dianalimiter/diana/internal/lib/filewatch"
	"github.com/dianalimiter/diana/rules"
)

func init() {
	caddy.RegisterModule(new(File))
}

// File reads rules from a file. It checks the file for changes every 250ms.
type File struct {
	// The path of the file. {env.*} placeholders are replaced. Required.
	Path string `json:"path"`

	// The interval at which the file is read even if its modification time and size
	// do not change, at least 1s. Default: 30s.
	Interval caddy.Duration `json:"interval,omitempty"`

	path string
}

// CaddyModule returns the Caddy module information.
func (*File) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.rule_sources.file", New: func() caddy.Module { return new(File) }}
}

// Provision implements caddy.Provisioner.
func (f *File) Provision(caddy.Context) (err error) {
	if f.Path == "" {
		return errors.New("path: want the path of a file")
	}
	if f.path, err = external.Resolve("path", f.Path); err != nil {
		return err
	}
	if f.path, err = filepath.Abs(f.path); err != nil {
		return fmt.Errorf("path: %w", err)
	}
	return checkInterval(f.Interval)
}

// Fetch implements [rules.Source].
func (f *File) Fetch(context.Context) ([]byte, error) {
	text, err := readIfThere(f.path)
	switch {
	case err != nil:
		return nil, err
	case text == nil:
		return nil, fmt.Errorf("%s: %w", f.path, rules.ErrEmpty)
	case len(text) > rules.MaxSize:
		return nil, rules.ErrTooLarge
	}
	return text, nil
}

// Notify implements [rules.Source].
func (f *File) Notify(ctx context.Context, changed func(), _ func(error)) {
	filewatch.Watch(ctx, f.path, changed)
}

// Every implements [rules.Source].
func (f *File) Every() time.Duration { return interval(f.Interval) }

// Identity implements [rules.Source].
func (f *File) Identity() string { return "file " + f.path }

var (
	_ rules.Source      = (*File)(nil)
	_ caddy.Provisioner = (*File)(nil)
)
