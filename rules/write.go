package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Errors of writing a document.
var (
	// ErrChanged is returned if the document is not the one to be replaced.
	ErrChanged = errors.New("another document was written meanwhile: read it again")

	// ErrWrongType is returned if the key has a value that is no string.
	ErrWrongType = errors.New("WRONGTYPE: the key holds another type: want a string")
)

// Read returns the document, or [ErrEmpty]. Unlike Fetch it may be called concurrently.
func (r *Redis) Read(ctx context.Context) (text []byte, err error) {
	err = r.call(ctx, func(c redis.UniversalClient) (err error) {
		text, err = r.get(ctx, c)
		switch {
		case err == nil && len(text) == 0:
			return ErrEmpty
		case err == nil && len(text) > MaxSize:
			return ErrTooLarge
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return text, nil
}

// get returns the document, or its beginning if it is too large. It is empty if there is
// none.
func (r *Redis) get(ctx context.Context, c redis.Cmdable) ([]byte, error) {
	return c.GetRange(ctx, r.key, 0, MaxSize).Bytes()
}

// Replace replaces the document if may returns true for it, and notifies all instances,
// atomically. Otherwise it returns [ErrChanged]. may is called with an empty text if there is
// no document, and with the beginning of one that is too large. Replace may be called
// concurrently.
//
// It is a transaction rather than a script: Lua takes a millisecond for each string of 1 MiB
// that it touches, GETRANGE and SET take 25 µs.
func (r *Redis) Replace(ctx context.Context, text []byte, may func(old []byte) bool) error {
	return r.call(ctx, func(c redis.UniversalClient) error {
		err := c.Watch(ctx, func(tx *redis.Tx) error {
			old, err := r.get(ctx, tx)
			if err != nil {
				return err
			}
			if !may(old) {
				return ErrChanged
			}
			return transact(ctx, tx, []any{"SET", r.key, text}, []any{"PUBLISH", r.key, ""})
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
