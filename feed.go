package diana

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/rules"
)

// feed follows a source of rules for whichever app runs, and keeps the last
// document that was put in force, also in Caddy's storage.
type feed struct {
	source  rules.Source
	storage certmagic.Storage
	logger  *zap.Logger
	key     string // in the storage

	mu     sync.Mutex
	app    *App   // that runs
	latest []byte // what the source holds; nil: never read
	wrong  error  // with latest
	good   *rules.Document
	text   []byte // of good
	status feedStatus
	quiet  time.Time // when the last error was logged

	start sync.Once
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// feedStatus is how things stand with a source.
type feedStatus struct {
	taken     time.Time // when the document in force was put so; zero: there is none
	confirmed time.Time // when the source was last seen to hold it
	err       error     // what is wrong; nil: nothing
	failed    time.Time // since when
}

const (
	storageTime  = 2 * time.Second
	sameLogEvery = time.Minute // an error that stays is logged again after this time
)

// newFeed returns a feed that has not yet reached out, with what an earlier
// process kept.
func newFeed(s rules.Source, storage certmagic.Storage, logger *zap.Logger) *feed {
	f := &feed{source: s, storage: storage, logger: logger, key: "rate_limit/rules/" + fingerprint(s.Identity()) + ".json"}
	ctx, cancel := context.WithTimeout(context.Background(), storageTime)
	defer cancel()
	text, err := storage.Load(ctx, f.key)
	if err != nil {
		return f
	}
	if f.good, err = rules.Parse(text); err != nil {
		logger.Error("the rules kept in the storage cannot be read", zap.String("key", f.key), errField(err))
		return f
	}
	f.text = text
	if info, err := storage.Stat(ctx, f.key); err == nil {
		f.status.taken = info.Modified
	} else {
		f.status.taken = time.Now()
	}
	f.status.confirmed = f.status.taken
	return f
}

// name is the source's, as it is shown: redis, http or file.
func (f *feed) name() string {
	id := string(f.source.CaddyModule().ID)
	return id[strings.LastIndexByte(id, '.')+1:]
}

// last is the document that was last in force.
func (f *feed) last() *rules.Document {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.good
}

// take has the feed tell an app, which runs, and judges the source's document
// by its configuration.
func (f *feed) take(a *App) {
	f.mu.Lock()
	f.app, f.storage, f.logger = a, a.storage, a.logger
	if text := f.latest; text != nil {
		f.offer(text)
	} else if f.text != nil {
		f.offer(f.text)
	}
	f.mu.Unlock()
	f.start.Do(func() {
		ctx, stop := context.WithCancel(context.Background())
		f.stop = stop
		f.done.Go(func() { rules.Watch(ctx, f.source, f) })
	})
}

// leave forgets an app that has stopped.
func (f *feed) leave(a *App) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.app == a {
		f.app = nil
	}
}

// Destruct implements caddy.Destructor.
func (f *feed) Destruct() error {
	f.start.Do(func() {})
	if f.stop != nil {
		f.stop()
		f.done.Wait()
	}
	return nil
}

// offer puts a document in force if it is right. f.mu is held.
func (f *feed) offer(text []byte) (taken bool) {
	a := f.app
	if a == nil {
		return false
	}
	d, err := rules.Parse(text)
	if err == nil {
		err = a.apply(d)
	}
	if f.wrong = err; err != nil {
		f.fail("the rules from outside are refused: those before them stay in force", err)
		return false
	}
	now := time.Now()
	taken = string(text) != string(f.text)
	if taken || f.status.taken.IsZero() {
		f.status.taken = now
		a.logger.Info("rules from outside are in force", zap.String("source", f.name()), zap.Int("zones", len(d.Zones)))
	}
	f.good, f.text = d, text
	if f.latest != nil {
		f.status.confirmed, f.status.err = now, nil
	}
	if names := a.unknown(d); taken && len(names) > 0 {
		a.logger.Warn("rules from outside name zones that this configuration does not have", zap.Strings("zones", firstFew(names)), zap.Int("unknown", len(names)))
	}
	return taken
}

// firstFew are those that a log line shows.
func firstFew(names []string) []string {
	few := make([]string, 0, 10)
	for _, n := range names[:min(len(names), cap(few))] {
		few = append(few, n[:min(len(n), 64)])
	}
	return few
}

// fail notes that something is wrong. f.mu is held.
func (f *feed) fail(what string, err error) {
	now := time.Now()
	theMetrics().rulesErrors.Inc()
	same := f.status.err != nil && f.status.err.Error() == err.Error()
	if f.status.err == nil {
		f.status.failed = now
	}
	f.status.err = err
	if same && now.Sub(f.quiet) < sameLogEvery {
		return
	}
	f.quiet = now
	f.logger.Error(what, zap.String("source", f.name()), errField(err))
}

// errField is an error in a log line. A document may put anything into it, at
// any length.
func errField(err error) zap.Field { return zap.String("error", short(err)) }

// short is an error's text, cut to what a person reads.
func short(err error) string {
	const most = 500
	s := strings.ToValidUTF8(err.Error(), "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// fingerprint is a short name for a text that must not be shown.
func fingerprint(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// Document implements rules.Sink.
func (f *feed) Document(text []byte) {
	f.mu.Lock()
	f.latest = text
	taken := f.offer(text)
	storage := f.storage
	f.mu.Unlock()
	if !taken {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storageTime)
	defer cancel()
	if err := storage.Store(ctx, f.key, text); err != nil {
		f.logger.Error("keeping the rules from outside", zap.String("key", f.key), zap.Error(err))
	}
}

// Unchanged implements rules.Sink.
func (f *feed) Unchanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.err = f.wrong; f.wrong == nil {
		f.status.confirmed = time.Now()
	}
}

// Failed implements rules.Sink.
func (f *feed) Failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail("the source of rules cannot be read", err)
}
