package redis

import (
	"context"
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
	loads   int   // how often the script was loaded for it
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
	o.Cmd, o.loads = *goredis.NewCmd(ctx, args...), 0
	o.SetFirstKeyPos(3)
}

// maxLoads is how often the script is loaded for one call. A node may forget it
// again before the call arrives, because others may be served in between.
const maxLoads = 3

// needsScript says whether the script has to be loaded for a call that failed. A node that has run
// heartbeats had it: it may have restarted, from what it had saved.
func needsScript(o *once, err error) bool {
	if err == nil || o.loads == maxLoads || !goredis.HasErrorPrefix(err, "NOSCRIPT") {
		return false
	}
	o.loads++
	if told := o.node.told.Load(); told != 0 && o.script.codes == "" {
		o.node.told.CompareAndSwap(told, restarted)
	}
	return true
}
