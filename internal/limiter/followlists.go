package limiter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/loglimit"
	"github.com/dianalimiter/diana/rules"
)

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
	for _, f := range l.files {
		l.done.Go(func() {
			rules.Watch(ctx, f, &listFollower{lists: l, list: f, registry: r, logger: logger})
		})
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
		s.fail("a list of keys is rejected: the previous keys stay in force", err)
		return
	}
	s.Unchanged()
	s.logger.Info("a list of keys has changed", zap.String("file", s.list.File), zap.Int("keys", config.CountKeys(string(text))))
	for _, n := range narrow {
		n.Warn(s.logger.Warn)
	}
}

// Unchanged implements rules.Sink.
func (s *listFollower) Unchanged() {
	s.lists.mu.Lock()
	defer s.lists.mu.Unlock()
	if s.invalid == nil {
		s.list.Error, s.list.ErrorSince = "", nil
	} else {
		s.list.Error = loglimit.Short(s.invalid)
	}
}

// Failed implements rules.Sink.
func (s *listFollower) Failed(err error) {
	s.fail("a list of keys cannot be read: the keys before it stay in force", err)
}

func (s *listFollower) fail(what string, err error) {
	now, text := time.Now(), loglimit.Short(err)
	s.lists.mu.Lock()
	same := s.list.Error == text
	if s.list.Error == "" {
		s.list.ErrorSince = &now
	}
	s.list.Error = text
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
	swaps := make(map[*Zone]*activeRules)
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
					return nil, config.InZone(z.Name, err)
				}
				continue
			}
			next := *a
			if err := next.index(z, read); err != nil {
				return nil, config.InZone(z.Name, err)
			}
			if a.narrow.Keys == 0 && next.narrow.Keys > 0 {
				narrow = append(narrow, next.narrow)
			}
			swaps[z] = &next
		}
	}
	for z, next := range swaps {
		z.active.Store(next)
	}
	for _, limiter := range r.limiters {
		tellWaiting(limiter.zones)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.text, f.Keys, f.Since = text, config.CountKeys(text), time.Now()
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
				return config.At(o.Pointer, fmt.Errorf("%s, %w", file, err))
			}
		}
	}
	return nil
}

// reads reports whether an override has its keys in a file.
func (a *activeRules) reads(file string) bool {
	return slices.ContainsFunc(a.overrides, func(o *override) bool { return o.checked.KeysFile == file })
}
