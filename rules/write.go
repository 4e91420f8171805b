package rules

import (
	"context"
	"errors"
	"time"
)

// Errors of writing a document.
var (
	// ErrChanged is returned if the document is not the one to be replaced.
	ErrChanged = errors.New("another document was written meanwhile: read it again")

	// ErrWrongType is returned if the key has a value that is no string.
	ErrWrongType = errors.New("WRONGTYPE: the key holds another type: want a string")
)

// Writer is a [Source] whose document can be written. Its methods may be called concurrently.
type Writer interface {
	Source

	// Past returns the record of the changes so far.
	Past(ctx context.Context) (Past, error)

	// Replace replaces the document if may returns true for it, and records the change and
	// the document before it. Otherwise it returns [ErrChanged]. may is called with an empty
	// text if there is no document, and with the beginning of a document that is too large.
	Replace(ctx context.Context, text []byte, c Change, may func(old []byte) bool) error
}

// Remote is a [Source] in a server that may be away.
type Remote interface {
	// Answered reports whether the server has answered a call that failed.
	Answered(err error) bool
}

// Change is a change of a document, as its author says.
type Change struct {
	At   time.Time `json:"at"`             // when it was written
	Who  string    `json:"who,omitempty"`  // a claim: nobody proves it
	Why  string    `json:"why,omitempty"`  // the reason
	What string    `json:"what,omitempty"` // such as the commands that made it
}

// Past is the record of the changes of a document.
type Past struct {
	Changes  []Change // the newest first, at most 50
	Previous []byte   // the document before the last change; nil: none is recorded
}

// NoDocument means the same as no document: what was before the first.
const NoDocument = `{"zones": {}}`
