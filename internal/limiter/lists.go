package limiter

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/filewatch"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/loglimit"
	"github.com/dianalimiter/diana/internal/option"
	"github.com/dianalimiter/diana/rules"
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
	ListStatus
}

// ListStatus is the status of a file of keys.
type ListStatus struct {
	File    string    // the path as configured
	Keys    int       // number of keys in force, including duplicates
	Applied time.Time // when they came into force
	Err     error     // why the file is not in force; nil: it is
	Failed  time.Time // when the errors began
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
	f.ListStatus = ListStatus{File: file, Keys: config.CountKeys(f.text), Applied: time.Now()}
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
func (l *Lists) Status() (all []ListStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		all = append(all, f.ListStatus)
	}
	slices.SortFunc(all, func(a, b ListStatus) int { return strings.Compare(a.File, b.File) })
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

// Follow applies the files to the limiters of a registry whenever they change, until Stop.
// It may be called again.
func (l *Lists) Follow(r *Registry, logger *zap.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for _, f := range slices.Collect(maps.Values(l.files)) {
		l.done.Go(func() {
			rules.Watch(ctx, f, &listFollower{lists: l, list: f, registry: r, logger: logger})
		})
	}
}

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

// listFollower applies one file. Its methods are not called concurrently.
type listFollower struct {
	lists    *Lists
	list     *keyList
	registry *Registry
	logger   *zap.Logger
	invalid  error // of the text read last; nil: valid
	logged   time.Time
}

// repeatListLog is the interval at which a persistent error is logged again.
const repeatListLog = time.Minute

// Document implements rules.Sink.
func (s *listFollower) Document(text []byte) {
	if s.lists.text(s.list.File) == string(text) {
		s.invalid = nil
		s.Unchanged()
		return
	}
	narrow, err := s.registry.applyList(s.lists, s.list, string(text))
	if s.invalid = err; err != nil {
		s.fail("a list of keys is refused: the keys before it stay in force", err)
		return
	}
	s.Unchanged()
	s.logger.Info("a list of keys has changed", zap.String("file", s.list.File), zap.Int("keys", config.CountKeys(string(text))))
	for _, n := range narrow {
		n.Warn(s.logger)
	}
}

// Unchanged implements rules.Sink.
func (s *listFollower) Unchanged() {
	s.lists.mu.Lock()
	defer s.lists.mu.Unlock()
	if s.list.Err = s.invalid; s.invalid == nil {
		s.list.Failed = time.Time{}
	}
}

// Failed implements rules.Sink.
func (s *listFollower) Failed(err error) {
	s.fail("a list of keys cannot be read: the keys before it stay in force", err)
}

func (s *listFollower) fail(what string, err error) {
	now := time.Now()
	s.lists.mu.Lock()
	same := s.list.Err != nil && s.list.Err.Error() == err.Error()
	if s.list.Err == nil {
		s.list.Failed = now
	}
	s.list.Err = err
	s.lists.mu.Unlock()
	if !same || now.Sub(s.logged) >= repeatListLog {
		s.logged = now
		s.logger.Error(what, zap.String("file", s.list.File), loglimit.Error(err))
	}
}

// applyList puts a list in force in all zones that use it or, if it is invalid for one, in
// none. It returns which keys are now narrower than the prefix of their zone, and were not
// before.
func (r *Registry) applyList(l *Lists, f *keyList, text string) (narrow []Narrow, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	type swap struct {
		z    *Zone
		next *activeRules
	}
	var swaps []swap
	read := func(file string) string {
		if file == f.File {
			return text
		}
		return l.text(file)
	}
	for _, limiter := range r.limiters {
		for _, z := range limiter.zones {
			a := z.active.Load()
			if !a.reads(f.File) {
				if err := checkList(z.Config, f.File, text); err != nil {
					return nil, err
				}
				continue
			}
			next := *a
			if err := next.index(z, read); err != nil {
				return nil, err
			}
			if a.narrow.Keys == 0 && next.narrow.Keys > 0 {
				narrow = append(narrow, next.narrow)
			}
			swaps = append(swaps, swap{z, &next})
		}
	}
	for _, s := range swaps {
		s.z.active.Store(s.next)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.text, f.Keys, f.Applied = text, config.CountKeys(text), time.Now()
	return narrow, nil
}

// checkList checks a list for the overrides of a zone's configuration: while those of a
// document replace them, no index is built of it.
func checkList(c *config.Checked, file, text string) error {
	for _, o := range c.Overrides {
		if o.KeysFile != file {
			continue
		}
		for _, err := range o.PatternsOf(text) {
			if err != nil {
				return &config.Error{At: o.Override, Err: fmt.Errorf("%s, %w", file, err)}
			}
		}
	}
	return nil
}

// reads reports whether an override has its keys in a file.
func (a *activeRules) reads(file string) bool {
	return slices.ContainsFunc(a.overrides, func(o *override) bool { return o.checked.KeysFile == file })
}

// Narrow is the keys of overrides that are narrower than the prefix of their zone.
type Narrow struct {
	Zone    string   // name of the zone
	Keys    int      // their number
	Example []string // the first of them
}

// Warn logs that these keys match more than they say, if there are any.
func (n Narrow) Warn(logger *zap.Logger) {
	if n.Keys > 0 {
		logger.Warn("keys of overrides are narrower than the zone's prefix: they match the whole network of that prefix",
			zap.String("zone", n.Zone), zap.Int("keys", n.Keys), zap.Strings("first", n.Example))
	}
}

// index builds the index of the overrides. text returns the text of a file. A key of the
// configuration precedes the same one in a file, and otherwise the first override wins.
func (a *activeRules) index(z *Zone, text func(file string) string) error {
	var x key.Index[*override]
	n := Narrow{Zone: z.Name}
	add := func(o *override, p *key.Pattern) (*override, bool) {
		if p.Narrow {
			if n.Keys++; n.Keys == 1 {
				n.Example = p.Words()
			}
		}
		return x.Add(p, z.store.Hasher, o)
	}
	for _, o := range a.overrides {
		for p, err := range o.checked.Patterns() {
			if err != nil {
				return &config.Error{At: o.checked.Override, Err: err}
			}
			if first, twice := add(o, p); twice && (first != o || !o.checked.Many()) {
				return &config.Error{At: o.checked.Override, Err: fmt.Errorf("override %q stands twice", p.Words())}
			}
		}
	}
	for _, o := range a.overrides {
		if o.checked.KeysFile == "" {
			continue
		}
		for p, err := range o.checked.PatternsOf(text(o.checked.KeysFile)) {
			if err != nil {
				return &config.Error{At: o.checked.Override, Err: fmt.Errorf("%s, %w", o.checked.KeysFile, err)}
			}
			add(o, p)
		}
	}
	a.keys, a.narrow = x, n
	return nil
}
