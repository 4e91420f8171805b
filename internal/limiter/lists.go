package limiter

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/filewatch"
	"github.com/dianalimiter/diana/internal/option"
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

// NewLists returns no lists.
func NewLists() *Lists { return &Lists{files: make(map[string]*keyList)} }

// read reads a file that is not read yet.
func (l *Lists) read(file string) error {
	l.mu.Lock()
	known := l.files[file] != nil
	l.mu.Unlock()
	if known {
		return nil
	}
	path, err := option.Resolve("keys_file", file)
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
	f.text = string(text)
	f.List = List{File: file, Keys: config.CountKeys(f.text), Since: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[file] = f
	return nil
}

// text returns the text of a file that has been read.
func (l *Lists) text(file string) string {
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
