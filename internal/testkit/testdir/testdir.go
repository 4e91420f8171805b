// Package testdir makes folders for tests.
package testdir

import (
	"os"
	"testing"
	"time"
)

// patience is for what still writes when a test ends.
const patience = time.Minute

// New returns an empty folder that is removed at the end of the test, in memory where Linux has a
// file system for that: what waits until its file is on the disk, as a storage of Caddy and a
// Sentinel do, stands still for seconds if others fill the disk. It is removed again while
// something still writes to it: Caddy stops without a storage that is slow.
func New(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "diana")
	if err != nil {
		dir, err = os.MkdirTemp("", "diana")
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			err := os.RemoveAll(dir)
			if err == nil {
				return
			}
			if time.Now().After(end) {
				tb.Errorf("the folder is written to for %v after the end of the test: %v", patience, err)
				return
			}
		}
	})
	return dir
}
