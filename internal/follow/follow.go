// Package follow watches sources of rules, and applies their documents to the configuration that runs.
package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/lib/background"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/rules"
)

// Target is a running configuration to which documents are applied.
type Target interface {
	// Apply puts a document in force. A document with any error is rejected as a
	// whole. It is called with a lock held, so that it returns what it has to log or to
	// tell others as a function, which is called without; nil: nothing.
	Apply(d *config.Document) (report func(), err error)

	// Unknown returns the zones of a document that the configuration does not have.
	Unknown(d *config.Document) []string
}

// Follower watches a source and applies its documents to the running configuration. It
// keeps the last valid document, also in Caddy's storage.
type Follower struct {
	source  rules.Source
	failed  func()
	storage certmagic.Storage
	logger  *zap.Logger
	key     string // in the storage

	saver *background.Queue // of the document

	// mu is held while a document is applied, but not while anything is reported.
	mu      sync.Mutex
	target  Target // nil: no configuration runs
	latest  []byte // the last document read; nil: none
	invalid error  // the error of latest; nil: valid
	good    *config.Document
	text    []byte // the text of good
	unsaved bool   // whether text came from the previous follower, which this storage may not have
	had     bool   // whether a document was ever in force, also in an earlier process
	status  Status
	reports []func() // log lines and reports of the target, for when mu is not held any more

	away, lost, rejected failureLine
	told                 time.Time // when a line said that no document can be read; zero: one has said since that it can

	start sync.Once
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// Status is the status of a source.
type Status struct {
	State     State     // whether the source has a valid document
	Applied   time.Time // when the document in force was applied; zero: none
	Confirmed time.Time // when the source last confirmed that document
	Err       error     // the current error; nil: none
	Failed    time.Time // when the errors began
}

// State says whether a source has a valid document.
type State string

// States of a source.
const (
	StateEmpty    State = "empty"    // it never had a document
	StateOK       State = "ok"       // its document is in force
	StateRejected State = "rejected" // its document is invalid
	StateAway     State = "away"     // it cannot be read, was not read yet, or has lost its document
)

// New returns a follower with the document that an earlier process stored. It
// does not read the source before Lead. failed is called on every error.
func New(s rules.Source, storage certmagic.Storage, logger *zap.Logger, failed func()) *Follower {
	f := &Follower{
		source: s, failed: failed, storage: storage, logger: logger, key: "rate_limit/rules/" + rules.Fingerprint(placeOf(s)) + ".json",
		saver: background.NewQueue(logger, 0, ""), status: Status{State: StateAway},
	}
	ctx, cancel := context.WithTimeout(context.Background(), background.SaveTimeout)
	defer cancel()
	text, err := storage.Load(ctx, f.key)
	if err != nil {
		return f
	}
	f.had = true
	if f.good, err = rules.Parse(text); err != nil {
		logger.Error("the rules in Caddy's storage are invalid: the configured rules are in force until the source is read", zap.String("key", f.key), loglimit.Error(err))
		return f
	}
	f.text = text
	if info, err := storage.Stat(ctx, f.key); err == nil {
		f.status.Applied = info.Modified
	} else {
		f.status.Applied = time.Now()
	}
	f.status.Confirmed = f.status.Applied
	return f
}

// Inherit takes over the document in force from the follower before, if that follows the same
// document in another way, such as with another password: the storage may not have it, and the
// source may be away.
func (f *Follower) Inherit(before *Follower) {
	if before == f || placeOf(before.source) != placeOf(f.source) {
		return
	}
	before.mu.Lock()
	good, text, had, status := before.good, before.text, before.had, before.status
	before.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.had = f.had || had
	if text == nil || f.latest != nil {
		return
	}
	f.unsaved = f.unsaved || string(text) != string(f.text)
	f.good, f.text = good, text
	f.status.Applied, f.status.Confirmed = status.Applied, status.Confirmed
}

// Name returns the name of the source: redis, http, file or another module's.
func (f *Follower) Name() string {
	return f.source.CaddyModule().ID.Name()
}

// Source returns the source that is followed.
func (f *Follower) Source() rules.Source { return f.source }

// Good returns the document that was last in force; nil if there was none.
func (f *Follower) Good() *config.Document {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.good
}

// Text returns the text of the document that was last in force; nil if there was none.
func (f *Follower) Text() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text
}

// Status returns the status of the source.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Lead sets the target to which documents are applied, and applies the latest document to
// it. The first call starts watching the source.
func (f *Follower) Lead(t Target, storage certmagic.Storage, logger *zap.Logger) {
	f.mu.Lock()
	f.target, f.storage, f.logger = t, storage, logger
	if f.latest != nil {
		f.apply(f.latest, false) // it may be valid for this configuration only
		if f.invalid != nil && f.text != nil {
			_, _ = f.try(f.text) // which may be later than what t began with
		}
	} else if f.text != nil {
		f.apply(f.text, false)
	}
	if f.unsaved {
		f.unsaved = false
		f.save()
	}
	f.unlock()
	f.start.Do(func() {
		ctx, stop := context.WithCancel(context.Background())
		f.stop = stop
		f.done.Go(func() { Watch(ctx, f.source, f) })
	})
}

// unlock unlocks f.mu and reports what was added meanwhile.
func (f *Follower) unlock() {
	reports := f.reports
	f.reports = nil
	f.mu.Unlock()
	for _, report := range reports {
		report()
	}
}

// log adds a log line. f.mu is held.
func (f *Follower) log(level zapcore.Level, what string, fields ...zap.Field) {
	logger := f.logger
	f.reports = append(f.reports, func() { logger.Log(level, what, fields...) })
}

// Leave removes a target that has stopped.
func (f *Follower) Leave(t Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.target == t {
		f.target = nil
	}
}

// Destruct implements caddy.Destructor. It waits for the document to be stored, but not
// for a storage that does not answer.
func (f *Follower) Destruct() error {
	f.start.Do(func() {})
	if f.stop != nil {
		f.stop()
		f.done.Wait()
	}
	f.saver.Flush(background.SaveTimeout)
	return nil
}

// apply applies a document if it is valid, and has it stored if it differs from the one in
// force before. read says that the source has just provided it. f.mu is held.
func (f *Follower) apply(text []byte, read bool) {
	if f.target == nil {
		return
	}
	if read {
		f.readable()
	}
	d, err := f.try(text)
	if f.invalid = err; err != nil {
		f.status.State = StateRejected
		f.fail("the remote rules are rejected: the previous rules stay in force", err, &f.rejected, err.Error())
		return
	}
	now := time.Now()
	changed := string(text) != string(f.text)
	first := changed || f.status.Applied.IsZero()
	if first {
		f.status.Applied = now
	}
	if first || f.status.State == StateRejected {
		f.log(zap.InfoLevel, "remote rules are in force", zap.String("source", f.Name()), zap.Int("zones", len(d.Zones)))
	}
	f.good, f.text, f.had = d, text, true
	if read {
		f.status.Confirmed = now
	}
	if read || f.latest != nil && f.status.State == StateRejected { // it fits this configuration
		f.status.State, f.status.Err = StateOK, nil
	}
	if names := f.target.Unknown(d); changed && len(names) > 0 {
		f.log(zap.WarnLevel, "remote rules name zones that this configuration does not have: they are ignored", zap.Strings("zones", FirstNames(names)), zap.Int("unknown", len(names)))
	}
	if changed {
		f.save()
	}
}

// FirstNames returns the first ten names, each truncated to 64 bytes, for logs and
// answers.
func FirstNames(names []string) []string {
	few := make([]string, 0, 10)
	for _, n := range names[:min(len(names), cap(few))] {
		few = append(few, n[:min(len(n), 64)])
	}
	return few
}

// fail records an error, and logs it as a line allows: about is what the line is about, not
// the text of the error, if the errors of one outage differ, such as by the port of a
// connection. f.mu is held.
func (f *Follower) fail(what string, err error, line *failureLine, about string) {
	now := time.Now()
	f.failed()
	if f.status.Err == nil {
		f.status.Failed = now
	}
	f.status.Err = err
	suppressed, ok := line.next(about, now)
	if !ok {
		return
	}
	if line != &f.rejected && f.told.IsZero() {
		f.told = now
	}
	fields := []zap.Field{zap.String("source", f.Name()), loglimit.Error(err)}
	if suppressed > 0 {
		fields = append(fields, zap.Int("suppressed", suppressed))
	}
	f.log(zap.ErrorLevel, what, fields...)
}

// readable logs that the source can be read again, if a line has said that it cannot. f.mu is
// held.
func (f *Follower) readable() {
	if f.told.IsZero() {
		return
	}
	f.log(zap.InfoLevel, "the source of rules can be read again", zap.String("source", f.Name()), zap.Duration("after", time.Since(f.told)))
	f.told = time.Time{}
}

// try parses a document and applies it to the target. A panic rejects the document: this is no
// request, whose panic a server would recover. f.mu is held.
func (f *Follower) try(text []byte) (d *config.Document, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
			f.log(zap.ErrorLevel, "panic in the rules", zap.Any("error", v), zap.Stack("stack"))
		}
	}()
	if d, err = rules.Parse(text); err != nil {
		return nil, err
	}
	report, err := f.target.Apply(d)
	if report != nil {
		f.reports = append(f.reports, report)
	}
	return d, err
}

// Document implements Sink.
func (f *Follower) Document(text []byte) {
	f.mu.Lock()
	defer f.unlock()
	f.latest = text
	f.apply(text, true)
}

// save stores the document that is in force, in the background: a storage that is slow delays nothing.
// f.mu is held.
func (f *Follower) save() {
	logger := f.logger
	f.saver.Save(f.storage, f.key, f.text, func(err error) {
		logger.Error("the remote rules were not written to Caddy's storage: a restart without the source loses them", zap.String("key", f.key), zap.Error(err))
	})
}

// Unchanged implements Sink.
func (f *Follower) Unchanged() {
	f.mu.Lock()
	defer f.unlock()
	f.readable()
	f.status.Err, f.status.State = f.invalid, StateRejected
	if f.invalid == nil {
		f.status.State, f.status.Confirmed = StateOK, time.Now()
	}
}

// Failed implements Sink.
func (f *Follower) Failed(err error) {
	f.mu.Lock()
	defer f.unlock()
	if errors.Is(err, rules.ErrEmpty) {
		f.latest, f.invalid = nil, nil // what was rejected is gone
		if !f.had {
			f.empty()
			return
		}
		f.status.State = StateAway
		f.fail("the source of rules has lost its document: the rules in force stay", &lostError{f.Name(), err}, &f.lost, "")
		return
	}
	f.status.State = StateAway
	f.fail("the source of rules cannot be read: the rules in force stay", err, &f.away, "")
}

// empty records that the source never had a document. f.mu is held.
func (f *Follower) empty() {
	if f.status.State != StateEmpty {
		f.log(zap.InfoLevel, "the source of rules has no document yet: the zones' own rules hold", zap.String("source", f.Name()))
	}
	f.readable()
	f.status.State, f.status.Err = StateEmpty, nil
}

// placeOf returns the place of a source.
func placeOf(s rules.Source) string {
	if p, ok := s.(rules.Placed); ok {
		return p.Place()
	}
	return s.Identity()
}
