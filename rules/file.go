package rules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/option"
)

func init() {
	caddy.RegisterModule((*File)(nil))
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

// statEvery is the interval at which the file's modification time and size are checked.
const statEvery = 250 * time.Millisecond

// CaddyModule returns the Caddy module information.
func (*File) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: Namespace + ".file", New: func() caddy.Module { return new(File) }}
}

// Provision implements caddy.Provisioner.
func (f *File) Provision(caddy.Context) (err error) {
	if f.Path == "" {
		return errors.New("path: want the path of a file")
	}
	if f.path, err = option.Resolve("path", f.Path); err != nil {
		return err
	}
	if f.path, err = filepath.Abs(f.path); err != nil {
		return fmt.Errorf("path: %w", err)
	}
	return checkInterval(f.Interval)
}

// Fetch implements [Source].
func (f *File) Fetch(context.Context) ([]byte, error) {
	// Opening a named pipe must not block; it is rejected below.
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: want a regular file", f.path)
	}
	return limited(file)
}

// Notify implements [Source].
func (f *File) Notify(ctx context.Context, changed func(), _ func(error)) {
	tick := time.NewTicker(statEvery)
	defer tick.Stop()
	was, _ := os.Stat(f.path)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		is, _ := os.Stat(f.path) // nil: it does not exist
		if (is == nil) != (was == nil) || is != nil && differ(is, was) {
			changed()
		}
		was = is
	}
}

// differ reports whether a file may have changed. It returns true for a file modified just
// now: a second change within the resolution of the modification time would go unnoticed
// if it does not change the size.
func differ(is, was os.FileInfo) bool {
	return !os.SameFile(is, was) || is.Size() != was.Size() || !is.ModTime().Equal(was.ModTime()) ||
		time.Since(is.ModTime()).Abs() < 2*statEvery
}

// Every implements [Source].
func (f *File) Every() time.Duration { return interval(f.Interval) }

// Identity implements [Source].
func (f *File) Identity() string { return "file " + f.path }

var (
	_ Source            = (*File)(nil)
	_ caddy.Provisioner = (*File)(nil)
)
