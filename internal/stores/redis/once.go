package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// once is a call of the script. It is never retried after a network error, because
// it may have run. Redirections of a Cluster are followed: a node that redirects a
// command has not run it.
type once struct {
	goredis.Cmd
	node    *server // that is to run it; afterwards the last one that was called
	script  *script
	beat    bool  // whether it is sent though the node's breaker is open
	taught  bool  // whether the node had to be given the script for it
	loading bool  // whether it is sent behind the script
	now     int64 // the time in its reply
	sent    time.Time
	took    time.Duration

	end time.Time // until when the call is worth running; zero: as long as its context
}

// NoRetry implements redis.Cmder.
func (*once) NoRetry() bool { return true }

// renew replaces the command by a new one with its arguments.
func (o *once) renew(ctx context.Context, args []any) {
	o.set(ctx, args)
	o.taught = false
}

func (o *once) set(ctx context.Context, args []any) {
	o.Cmd = *goredis.NewCmd(ctx, args...)
	o.SetFirstKeyPos(3)
}

// unloaded says that a node does not know the script, and accepts it neither by itself nor with a call.
type unloaded struct{ error }

// Is and As are as those of earlyClose.
func (u unloaded) Is(target error) bool { return errors.Is(u.error, target) }
func (u unloaded) As(target any) bool   { return errors.As(u.error, target) }

// isUnknown says whether a node did not know the script of a call.
func isUnknown(err error) bool { return err != nil && goredis.HasErrorPrefix(err, "NOSCRIPT") }

// teach loads the script of a call into a node that did not know it, and repeats the call: send sends the call once
// more, behind the command first unless that is nil. Some proxies and services accept no SCRIPT, or load the script at another of
// several servers than the call meets: then the call itself has the script, which that server remembers.
func (o *once) teach(ctx context.Context, send func(first goredis.Cmder) error) error {
	o.taught = true
	if told := o.node.told.Load(); told != 0 && o.script.codes == "" { // it had run heartbeats: it may have restarted, from what it had saved
		o.node.told.CompareAndSwap(told, -max(told, -told))
	}
	load := goredis.NewStringCmd(ctx, "script", "load", o.script.text)
	_ = send(load)
	if !isUnknown(o.Err()) {
		return o.Err()
	}
	args := slices.Clone(o.Args())
	args[0], args[1] = "eval", o.script.text
	o.set(ctx, args)
	err := send(nil)
	if lacks(err) && load.Err() != nil { // the former is the way that the documentation names
		err = unloaded{load.Err()}
		o.SetErr(err)
	}
	return err
}

// lacks says whether a node rejected a command because it has none of this name, or the user no right to it.
func lacks(err error) bool {
	answered, is := errors.AsType[goredis.Error](err)
	if !is || !isUnrun(answered) {
		return false
	}
	r := findAnswer(answered.Error())
	return r != nil && (r.advice == missingRight || r.advice == lacksScript)
}
