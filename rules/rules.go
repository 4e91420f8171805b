// Package rules provides rules that replace those of the configuration at run time: a
// [Source] holds a document, and [Parse] parses it.
//
// Sources are Caddy modules in the namespace http.rate_limit.rule_sources.
package rules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Namespace is the Caddy module namespace of the sources.
const Namespace = "http.rate_limit.rule_sources"

// MaxSize is the size of the largest document, in bytes.
const MaxSize = 1 << 20

// FetchTimeout is the longest that one reading of a source may take.
const FetchTimeout = 10 * time.Second

// Source is a rule source: a module in http.rate_limit.rule_sources.
type Source interface {
	caddy.Module
	Watched

	// Identity returns a text that is equal only for sources with the same document.
	// It is hashed before use.
	Identity() string
}

// Placed is a [Source] that can be reached in other ways, such as with another password. The
// last good document is kept for its place, so that it holds over such a change.
type Placed interface {
	Source

	// Place returns a text that is equal only for sources with the same document, however
	// they are reached. It is hashed before use.
	Place() string
}

// Watched is a text that may change: the document of a source, or another.
type Watched interface {
	// Fetch returns the document, of at most [MaxSize] bytes, [ErrEmpty] if there is
	// none, or [ErrUnchanged] if the document is known to be the one returned last and
	// there was one ever since. Errors may wrap these. They are shown to operators, and must
	// contain no secret. It is not called concurrently.
	Fetch(ctx context.Context) ([]byte, error)

	// Notify calls changed whenever the document may have changed, and failed when
	// changes cannot be watched, until ctx ends. Then it releases its resources. A
	// source without notifications returns at once.
	Notify(ctx context.Context, changed func(), failed func(error))

	// Every returns the interval at which the document is read regardless of
	// notifications.
	Every() time.Duration
}

// ErrUnchanged is returned by a source whose document is the one it returned last.
var ErrUnchanged = errors.New("unchanged")

// ErrEmpty is returned by a source that has no document: it is not there, rather than
// unreadable.
var ErrEmpty = errors.New("no document")

// ErrTooLarge is returned for a document larger than [MaxSize].
var ErrTooLarge = fmt.Errorf("over %d bytes: want a smaller document", MaxSize)

// Fingerprint returns a hash that identifies a text without revealing it.
func Fingerprint(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
