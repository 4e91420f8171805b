//go:build unix

package sources

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dianalimiter/diana/rules"
)

// TestReplaceFileKeepsItsOwner checks that a file is replaced with its owner, group and mode, through
// two links, and that what is beside it has the same. As another user than root, the owner is its own.
func TestReplaceFileKeepsItsOwner(t *testing.T) {
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 12345, 54321
	}
	dir := t.TempDir()
	file, first, link := filepath.Join(dir, "real", "rules.json"), filepath.Join(dir, "first"), filepath.Join(dir, "rules.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("one"), 0o600), os.Chmod(file, 0o664), os.Chown(file, uid, gid),
		os.Symlink(file, first), os.Symlink("first", link)); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := fileAt(t, link).Replace(t.Context(), []byte("two"), rules.Change{}, func(old []byte) bool { return string(old) == "one" }); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + "." + besideChanges, file + "." + besidePrevious} {
		after, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		was, is := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
		if after.Mode() != before.Mode() || is.Uid != was.Uid || is.Gid != was.Gid || is.Ino == was.Ino {
			t.Errorf("%s: %v of %d:%d, want a new file with %v of %d:%d", path, after.Mode(), is.Uid, is.Gid, before.Mode(), was.Uid, was.Gid)
		}
	}
	if to, err := os.Readlink(link); err != nil || to != "first" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}
