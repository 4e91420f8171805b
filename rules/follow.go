package rules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/logs"
)

// Target is what documents are applied to: a configuration that runs.
type Target interface {
	// Apply puts a document in force, whole or not at all.
	Apply(d *Document) error

	// Unknown returns the zones of a document that the configuration does not have.
	Unknown(d *Document) []string
}

// Follower follows a source for whichever configuration runs, and keeps the last
// document that was put in force, also in Caddy's storage.
type Follower struct {
	source  Source
	failed  func()
	storage certmagic.Storage
	logger  *zap.Logger
	key     string // in the storage

	mu      sync.Mutex
	target  Target // that runs; nil: none
	latest  []byte // what the source holds; nil: never read
	invalid error  // what is wrong with latest
	good    *Document
	text    []byte // of good
	status  Status
	logged  time.Time // when the last error was logged

	start sync.Once
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// Status is how things stand with a source.
type Status struct {
	Applied   time.Time // when the document in force was applied; zero: there is none
	Confirmed time.Time // when the source was last seen to hold it
	Err       error     // what is wrong; nil: nothing
	Failed    time.Time // since when
}

const (
	storageTimeout = 2 * time.Second
	repeatLogAfter = time.Minute // an error that stays is logged again after this time
)

// NewFollower returns a follower that has read nothing from the source yet, with the
// document that an earlier process kept. Each error is reported to failed.
func NewFollower(s Source, storage certmagic.Storage, logger *zap.Logger, failed func()) *Follower {
	f := &Follower{source: s, failed: failed, storage: storage, logger: logger, key: "rate_limit/rules/" + Fingerprint(s.Identity()) + ".json"}
	ctx, cancel := context.WithTimeout(context.Background(), storageTimeout)
	defer cancel()
	text, err := storage.Load(ctx, f.key)
	if err != nil {
		return f
	}
	if f.good, err = Parse(text); err != nil {
		logger.Error("the rules kept in the storage cannot be read", zap.String("key", f.key), logs.Error(err))
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

// Name returns the name of the source: redis, http, file or another module's.
func (f *Follower) Name() string {
	id := string(f.source.CaddyModule().ID)
	return id[strings.LastIndexByte(id, '.')+1:]
}

// Good returns the document that was last in force; nil if there was none.
func (f *Follower) Good() *Document {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.good
}

// Status returns how things stand with the source.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Lead has documents applied to a target, which runs, beginning with the one that
// the source holds.
func (f *Follower) Lead(t Target, storage certmagic.Storage, logger *zap.Logger) {
	f.mu.Lock()
	f.target, f.storage, f.logger = t, storage, logger
	if text := f.latest; text != nil {
		f.apply(text)
	} else if f.text != nil {
		f.apply(f.text)
	}
	f.mu.Unlock()
	f.start.Do(func() {
		ctx, stop := context.WithCancel(context.Background())
		f.stop = stop
		f.done.Go(func() { Watch(ctx, f.source, f) })
	})
}

// Leave drops a target that has stopped.
func (f *Follower) Leave(t Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.target == t {
		f.target = nil
	}
}

// Destruct implements caddy.Destructor.
func (f *Follower) Destruct() error {
	f.start.Do(func() {})
	if f.stop != nil {
		f.stop()
		f.done.Wait()
	}
	return nil
}

// apply puts a document in force if it is valid, and reports whether it is a new
// one. f.mu is held.
func (f *Follower) apply(text []byte) (changed bool) {
	if f.target == nil {
		return false
	}
	d, err := Parse(text)
	if err == nil {
		err = f.target.Apply(d)
	}
	if f.invalid = err; err != nil {
		f.fail("the rules from outside are refused: those before them stay in force", err)
		return false
	}
	now := time.Now()
	changed = string(text) != string(f.text)
	if changed || f.status.Applied.IsZero() {
		f.status.Applied = now
		f.logger.Info("rules from outside are in force", zap.String("source", f.Name()), zap.Int("zones", len(d.Zones)))
	}
	f.good, f.text = d, text
	if f.latest != nil {
		f.status.Confirmed, f.status.Err = now, nil
	}
	if names := f.target.Unknown(d); changed && len(names) > 0 {
		f.logger.Warn("rules from outside name zones that this configuration does not have", zap.Strings("zones", FirstNames(names)), zap.Int("unknown", len(names)))
	}
	return changed
}

// FirstNames returns the first of the names in a document, cut to what is shown.
func FirstNames(names []string) []string {
	few := make([]string, 0, 10)
	for _, n := range names[:min(len(names), cap(few))] {
		few = append(few, n[:min(len(n), 64)])
	}
	return few
}

// fail notes that something is wrong. f.mu is held.
func (f *Follower) fail(what string, err error) {
	now := time.Now()
	f.failed()
	same := f.status.Err != nil && f.status.Err.Error() == err.Error()
	if f.status.Err == nil {
		f.status.Failed = now
	}
	f.status.Err = err
	if same && now.Sub(f.logged) < repeatLogAfter {
		return
	}
	f.logged = now
	f.logger.Error(what, zap.String("source", f.Name()), logs.Error(err))
}

// Fingerprint returns a short name for a text that must not be shown.
func Fingerprint(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// Document implements Sink.
func (f *Follower) Document(text []byte) {
	f.mu.Lock()
	f.latest = text
	changed := f.apply(text)
	storage := f.storage
	f.mu.Unlock()
	if !changed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storageTimeout)
	defer cancel()
	if err := storage.Store(ctx, f.key, text); err != nil {
		f.logger.Error("keeping the rules from outside", zap.String("key", f.key), zap.Error(err))
	}
}

// Unchanged implements Sink.
func (f *Follower) Unchanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.Err = f.invalid; f.invalid == nil {
		f.status.Confirmed = time.Now()
	}
}

// Failed implements Sink.
func (f *Follower) Failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail("the source of rules cannot be read", err)
}
