package lists

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
)

// Target has the overrides of a running configuration.
type Target interface {
	// ApplyList puts the text of a file in force in all zones that use it or, if it is invalid for one, in
	// none. It calls inForce before anything else asks for the text. What it has to log it returns as a
	// function, which is called afterwards.
	ApplyList(file, text string, inForce func()) (report func(), err error)
}

// Follow applies the files to a running configuration whenever they change, until Stop.
// It may be called again.
func (l *Lists) Follow(to Target, logger *zap.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for _, f := range l.files {
		l.done.Go(func() {
			follow.Watch(ctx, f, &listFollower{lists: l, list: f, target: to, logger: logger})
		})
	}
}

// listFollower applies one file. Its methods are not called concurrently.
type listFollower struct {
	lists   *Lists
	list    *keyList
	target  Target
	logger  *zap.Logger
	invalid error // of the text read last; nil: valid
	logged  time.Time
}

// repeatListLog is the interval at which a persistent error is logged again.
const repeatListLog = time.Minute

// Document implements follow.Sink.
func (s *listFollower) Document(text []byte) {
	if s.lists.Text(s.list.File) == string(text) {
		s.invalid = nil
		s.Unchanged()
		return
	}
	report, err := s.target.ApplyList(s.list.File, string(text), func() { s.lists.set(s.list, string(text)) })
	if s.invalid = err; err != nil {
		s.fail("a list of keys is rejected: the previous keys stay in force", err)
		return
	}
	s.Unchanged()
	s.logger.Info("a list of keys has changed", zap.String("file", s.list.File), zap.Int("keys", config.CountKeys(string(text))))
	report()
}

// Unchanged implements follow.Sink.
func (s *listFollower) Unchanged() {
	s.lists.mu.Lock()
	defer s.lists.mu.Unlock()
	if s.invalid == nil {
		s.list.Error, s.list.ErrorSince = "", nil
	} else {
		s.list.Error = loglimit.Short(s.invalid)
	}
}

// Failed implements follow.Sink.
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
