package sources

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dianalimiter/diana/internal/lib/filewatch"
	"github.com/dianalimiter/diana/rules"
)

// The ends of the names of files beside that of a document while it is written.
const (
	besideLock = ".lock"
	besideNew  = ".new"
)

const (
	maxLinks  = 40              // as Linux follows
	lockWait  = 5 * time.Second // for another writer
	lockEvery = 20 * time.Millisecond
)

// Past implements [rules.Writer].
func (f *File) Past(context.Context) (past rules.Past, err error) {
	path, _, err := f.target()
	if err != nil {
		return past, err
	}
	changes, err := readIfThere(path + "." + besideChanges)
	if err != nil {
		return past, err
	}
	past.Changes = parseChanges(changes)
	past.Previous, err = readIfThere(path + "." + besidePrevious)
	return past, err
}

// Replace implements [rules.Writer]. A file beside the document keeps other writers of Diana out
// meanwhile, also those of other processes, but no editor. The document is the last to be replaced:
// what is beside it may tell of a change that a crash prevented, and never lack one.
func (f *File) Replace(ctx context.Context, text []byte, change rules.Change, may func(old []byte) bool) error {
	path, like, err := f.target()
	if err != nil {
		return err
	}
	if err := lock(ctx, path+besideLock); err != nil {
		return err
	}
	defer func() { _ = os.Remove(path + besideLock) }()
	old, err := readIfThere(path)
	if err != nil {
		return err
	}
	if !may(old) {
		return rules.ErrChanged
	}
	changes, err := readIfThere(path + "." + besideChanges)
	if err == nil {
		changes, err = record(changes, change)
	}
	if err == nil {
		err = replaceFile(path+"."+besidePrevious, []byte(cmp.Or(string(old), rules.NoDocument)), like)
	}
	if err == nil {
		err = replaceFile(path+"."+besideChanges, changes, like)
	}
	if err == nil {
		err = replaceFile(path, text, like)
	}
	return err
}

// target returns the path of the file behind symbolic links, and what it is now; nil: it is not
// there.
func (f *File) target() (path string, info fs.FileInfo, err error) {
	path = f.path
	for range maxLinks {
		to, err := os.Readlink(path)
		if err != nil {
			break // no link
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	if info, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return path, nil, nil
	}
	return path, info, err
}

// readIfThere returns the content of a file, or its beginning if it is too large; nil: it is not
// there, or has only blanks.
func readIfThere(path string) ([]byte, error) {
	text, err := filewatch.Read(path, rules.MaxSize+1)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	return text, err
}

// lock creates a file that is not there, and waits for its end if it is.
func lock(ctx context.Context, path string) error {
	for end := time.Now().Add(lockWait); ; {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // beside the file that the configuration names
		switch {
		case err == nil:
			return file.Close()
		case !errors.Is(err, fs.ErrExist):
			return unwritable(err)
		case time.Now().After(end):
			return fmt.Errorf("%s: another writer has it: if none runs, one was stopped meanwhile: remove the file", path)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockEvery):
		}
	}
}

// unwritable adds to an error what it takes to write the document.
func unwritable(err error) error {
	return fmt.Errorf("the document cannot be written: %w: Caddy needs to create files in its folder, with its owner and mode", err)
}

// replaceFile replaces a file as a whole, or creates it, with the owner and mode of another; nil:
// with those of a new file.
func replaceFile(path string, text []byte, like fs.FileInfo) error {
	mode := fs.FileMode(0o644)
	if like != nil {
		mode = like.Mode().Perm()
	}
	temp := path + besideNew
	defer func() { _ = os.Remove(temp) }()
	file, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode) //nolint:gosec // beside the file that the configuration names
	if err != nil {
		return unwritable(err)
	}
	_, err = file.Write(text)
	if like != nil && err == nil {
		err = errors.Join(keepOwner(file, like), file.Chmod(mode))
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return unwritable(err)
	}
	return nil
}

var _ rules.Writer = (*File)(nil)
