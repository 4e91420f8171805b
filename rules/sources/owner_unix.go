//go:build unix

package sources

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and group of another.
func keepOwner(file *os.File, like fs.FileInfo) error {
	if s, ok := like.Sys().(*syscall.Stat_t); ok {
		return file.Chown(int(s.Uid), int(s.Gid))
	}
	return nil
}
