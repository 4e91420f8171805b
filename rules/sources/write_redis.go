package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/rules"
)

// get returns a document, or its beginning if it is too large. It is empty if there is none.
func get(ctx context.Context, c redis.Cmdable, key string) ([]byte, error) {
	return c.GetRange(ctx, key, 0, rules.MaxSize).Bytes()
}

// beside returns the name of a key beside that of the document, in a Cluster in its slot.
func (r *Redis) beside(end string) string {
	if _, cluster := r.redis().(*redis.ClusterClient); cluster && !strings.Contains(r.key, "{") {
		return "{" + r.key + "}:" + end
	}
	return r.key + ":" + end
}

// Past implements [rules.Writer].
func (r *Redis) Past(ctx context.Context) (past rules.Past, err error) {
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

// Replace implements [rules.Writer]. It also notifies all instances, all of it atomically.
//
// It is a transaction rather than a script: Lua takes a millisecond for each string of 1 MiB
// that it touches, GETRANGE and SET take 25 µs.
func (r *Redis) Replace(ctx context.Context, text []byte, change rules.Change, may func(old []byte) bool) error {
	return r.call(ctx, func(c redis.UniversalClient) error {
		err := c.Watch(ctx, func(tx *redis.Tx) error {
			old, err := get(ctx, tx, r.key)
			if err != nil {
				return err
			}
			if !may(old) {
				return rules.ErrChanged
			}
			changes, err := get(ctx, tx, r.beside(besideChanges))
			if err == nil {
				changes, err = record(changes, change)
			}
			if err != nil {
				return err
			}
			return transact(ctx, tx, []any{"SET", r.key, text}, []any{"SET", r.beside(besidePrevious), cmp.Or(string(old), rules.NoDocument)},
				[]any{"SET", r.beside(besideChanges), changes}, []any{"PUBLISH", r.key, ""})
		}, r.key)
		if errors.Is(err, redis.Nil) { // of EXEC: the key has changed since WATCH
			return rules.ErrChanged
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
