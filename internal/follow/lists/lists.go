// Package lists reads the files of keys of overrides, and follows their changes.
package lists

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/external"
	"github.com/dianalimiter/diana/internal/lib/filewatch"
)

// Lists are the files of keys of the overrides of a configuration.
type Lists struct {
	mu    sync.Mutex
	files map[string]*keyList // by keys_file as configured
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// keyList is the file of keys of an override.
type keyList struct {
	path string // absolute
	text string // in force
	List
}

// List is the status of a file of keys of overrides.
type List struct {
	File       string     `json:"file"`                  // path, as configured
	Keys       int        `json:"keys"`                  // number of keys in force
	Since      time.Time  `json:"since"`                 // when they came into force
	Error      string     `json:"error,omitempty"`       // why the present content is not in force
	ErrorSince *time.Time `json:"error_since,omitempty"` // time of the first of these errors
}

// maxList is the size of the largest file of keys, in bytes.
const maxList = 64 << 20

// listEvery is the interval at which a file of keys is read even if its modification time
// and size do not change.
const listEvery = 30 * time.Second

var errListTooLarge = fmt.Errorf("over %d bytes: want a smaller list", maxList)

// New returns no lists.
func New() *Lists { return &Lists{files: make(map[string]*keyList)} }

// Read implements limiter.Lists: it reads a file that is not read yet.
func (l *Lists) Read(file string) error {
	l.mu.Lock()
	known := l.files[file] != nil
	l.mu.Unlock()
	if known {
		return nil
	}
	path, err := external.Resolve("keys_file", file)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	f := &keyList{path: path}
	text, err := f.Fetch(context.Background())
	if err != nil {
		return err
	}
	f.File = file
	l.set(f, string(text))
	return nil
}

// set notes that a text of a file is in force.
func (l *Lists) set(f *keyList, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.text, f.Keys, f.Since = text, config.CountKeys(text), time.Now()
	l.files[f.File] = f
}

// Text implements limiter.Lists: it returns the text of a file that has been read.
func (l *Lists) Text(file string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.files[file].text
}

// Status returns the status of all files, ordered by path.
func (l *Lists) Status() (all []List) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		all = append(all, f.List)
	}
	slices.SortFunc(all, func(a, b List) int { return strings.Compare(a.File, b.File) })
	return all
}

// Fetch implements rules.Watched.
func (f *keyList) Fetch(context.Context) ([]byte, error) {
	text, err := filewatch.Read(f.path, maxList+1)
	if len(text) > maxList {
		return nil, errListTooLarge
	}
	return text, err
}

// Notify implements rules.Watched.
func (f *keyList) Notify(ctx context.Context, changed func(), _ func(error)) {
	filewatch.Watch(ctx, f.path, changed)
}

// Every implements rules.Watched.
func (f *keyList) Every() time.Duration { return listEvery }

// Stop ends Follow.
func (l *Lists) Stop() {
	l.mu.Lock()
	stop := l.stop
	l.stop = nil
	l.mu.Unlock()
	if stop != nil {
		stop()
		l.done.Wait()
	}
}
