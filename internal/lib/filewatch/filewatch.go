// Package filewatch reads files and watches them for changes.
package filewatch

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// every is the interval at which a file's modification time and size are checked.
const every = 250 * time.Millisecond

// Read returns the content of a regular file, up to most bytes.
func Read(path string, most int64) ([]byte, error) {
	// Opening a named pipe must not block; it is rejected below.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the configuration names it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: want a regular file", path)
	}
	return io.ReadAll(io.LimitReader(file, most))
}

// Watch calls changed whenever a file may have changed, until ctx ends. It checks the
// file every 250ms.
func Watch(ctx context.Context, path string, changed func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	was, _ := os.Stat(path)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		is, _ := os.Stat(path) // nil: it does not exist
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
		time.Since(is.ModTime()).Abs() < 2*every
}
