package rules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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

	// Past returns what is recorded of the changes so far.
	Past(ctx context.Context) (Past, error)

	// Replace replaces the document if may returns true for it, and records the change and
	// the document before it. Otherwise it returns [ErrChanged]. may is called with an empty
	// text if there is no document, and with the beginning of one that is too large.
	Replace(ctx context.Context, text []byte, c Change, may func(old []byte) bool) error
}

// Change is a change of a document, as its author says.
type Change struct {
	At   time.Time `json:"at"`             // when it was written
	Who  string    `json:"who,omitempty"`  // a claim: nobody proves it
	Why  string    `json:"why,omitempty"`  // the reason
	What string    `json:"what,omitempty"` // such as the commands that made it
}

// Past is what is recorded of the changes of a document.
type Past struct {
	Changes  []Change // the newest first, at most 50
	Previous []byte   // the document before the last change; nil: none is recorded
}

// maxChanges is the number of changes that are recorded.
const maxChanges = 50

// The ends of the names of what is kept beside a document, behind a colon or, of files, a dot.
const (
	besideChanges  = "changes"
	besidePrevious = "previous"
)

// NoDocument means the same as no document: what was before the first.
const NoDocument = `{"zones": {}}`

// parseChanges returns the recorded changes. A text that is none counts as no change.
func parseChanges(text []byte) (list []Change) {
	if json.Unmarshal(text, &list) != nil {
		return nil
	}
	return list
}

// record adds a change to the text of the recorded ones.
func record(text []byte, c Change) ([]byte, error) {
	list := append([]Change{c}, parseChanges(text)...)
	return json.MarshalIndent(list[:min(len(list), maxChanges)], "", "  ")
}

// get returns a document, or its beginning if it is too large. It is empty if there is none.
func get(ctx context.Context, c redis.Cmdable, key string) ([]byte, error) {
	return c.GetRange(ctx, key, 0, MaxSize).Bytes()
}

// beside returns the name of a key beside that of the document, in a Cluster in its slot.
func (r *Redis) beside(end string) string {
	if _, cluster := r.redis().(*redis.ClusterClient); cluster && !strings.Contains(r.key, "{") {
		return "{" + r.key + "}:" + end
	}
	return r.key + ":" + end
}

// Past implements [Writer].
func (r *Redis) Past(ctx context.Context) (past Past, err error) {
	err = r.call(ctx, func(c redis.UniversalClient) error {
		changes, err := get(ctx, c, r.beside(besideChanges))
		if err == nil {
			past.Changes = parseChanges(changes)
			past.Previous, err = get(ctx, c, r.beside(besidePrevious))
		}
		return err
	})
	if len(past.Previous) == 0 {
		past.Previous = nil
	}
	return past, err
}

// Replace implements [Writer]. It also notifies all instances, all of it atomically.
//
// It is a transaction rather than a script: Lua takes a millisecond for each string of 1 MiB
// that it touches, GETRANGE and SET take 25 µs.
func (r *Redis) Replace(ctx context.Context, text []byte, change Change, may func(old []byte) bool) error {
	return r.call(ctx, func(c redis.UniversalClient) error {
		err := c.Watch(ctx, func(tx *redis.Tx) error {
			old, err := get(ctx, tx, r.key)
			if err != nil {
				return err
			}
			if !may(old) {
				return ErrChanged
			}
			changes, err := get(ctx, tx, r.beside(besideChanges))
			if err == nil {
				changes, err = record(changes, change)
			}
			if err != nil {
				return err
			}
			return transact(ctx, tx, []any{"SET", r.key, text}, []any{"SET", r.beside(besidePrevious), cmp.Or(string(old), NoDocument)},
				[]any{"SET", r.beside(besideChanges), changes}, []any{"PUBLISH", r.key, ""})
		}, r.key)
		if errors.Is(err, redis.Nil) { // of EXEC: the key has changed since WATCH
			return ErrChanged
		}
		if redis.IsPermissionError(err) {
			return fmt.Errorf("%w (writing rules needs +watch +unwatch +multi +exec besides the rights in Diana's docs/redis.md)", err)
		}
		return err
	})
}

// transact executes commands in a transaction. It waits for the reply to each: in a pipeline
// they would be executed without one if MULTI is not permitted. After an error of a command,
// EXEC discards the transaction.
func transact(ctx context.Context, tx *redis.Tx, commands ...[]any) error {
	multi := redis.NewStatusCmd(ctx, "MULTI")
	if err := tx.Process(ctx, multi); err != nil {
		return err
	}
	var failed error
	for _, args := range commands {
		if err := tx.Process(ctx, redis.NewStatusCmd(ctx, args...)); err != nil && failed == nil {
			failed = err
		}
	}
	exec := redis.NewSliceCmd(ctx, "EXEC")
	if err := tx.Process(ctx, exec); err != nil {
		return cmp.Or(failed, err)
	}
	for _, result := range exec.Val() {
		if err, is := result.(error); is {
			return err
		}
	}
	return failed
}
