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

// File reads rules from a file, which it watches: a change is seen within a
// quarter of a second.
type File struct {
	// The file's path. {env.*} is replaced.
	Path string `json:"path"`

	// How often to read the file even if its time and size seem the same, at
	// least 1s. Default: 30s.
	Interval caddy.Duration `json:"interval,omitempty"`

	path string
}

// lookEvery is how often the file's time and size are looked at.
const lookEvery = 250 * time.Millisecond

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
	// A pipe must neither block the opening nor drip for ever.
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
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	was, _ := os.Stat(f.path)
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		is, _ := os.Stat(f.path) // nil if it is not there
		if (is == nil) != (was == nil) || is != nil && differ(is, was) {
			changed()
		}
		was = is
	}
}

// differ says whether a file may have changed. Two changes within the smallest
// step of its time, which leave its size, would look like one: a file that was
// just written is read once more.
func differ(is, was os.FileInfo) bool {
	return !os.SameFile(is, was) || is.Size() != was.Size() || !is.ModTime().Equal(was.ModTime()) ||
		time.Since(is.ModTime()).Abs() < 2*lookEvery
}

// Every implements [Source].
func (f *File) Every() time.Duration { return interval(f.Interval) }

// Identity implements [Source].
func (f *File) Identity() string { return "file " + f.path }

var (
	_ Source            = (*File)(nil)
	_ caddy.Provisioner = (*File)(nil)
)
