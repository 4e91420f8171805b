package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"crypto/tls"
	"encoding/hex"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/scripts"
)

// ConnOptions say how to reach a Redis and how long to wait for it.
type ConnOptions struct {
	Addresses []string // host:port, or the path of a socket
	Network   string   // "tcp" or "unix"
	Username  string   // empty: the default user
	Password  string   // empty: none is sent
	DB        int      // its number; 0 in a Cluster

	// Cluster says that the addresses are nodes of a Redis Cluster.
	Cluster bool

	// Master is the name that Sentinels, whose addresses these are, know the
	// server by.
	Master           string
	SentinelUsername string // for the Sentinels themselves
	SentinelPassword string // likewise

	// TLS is nil for a connection in the clear.
	TLS *tls.Config

	// Prefix begins the name of every key.
	Prefix string

	// Timeout is the longest that one decision waits for Redis.
	Timeout time.Duration

	// DialTimeout is the longest that a connection may take. No request waits
	// for it longer than Timeout.
	DialTimeout time.Duration

	// PoolSize is how many connections are open at most. Default: 10 a core.
	PoolSize int

	// Lazy opens no connection before one is needed.
	Lazy bool

	// Script is what Redis runs. Default: that of scripts.Decide. Proofs run it
	// with a clock of their own.
	Script string
}

// conn speaks with a Redis: one script, loaded once, called by its hash.
type conn struct {
	client   goredis.UniversalClient
	tracker  *connTracker
	prefix   string
	text     string
	name     any // of the script: its hash
	seq      atomic.Uint64
	batchers []batcher
	time     *clock

	// What the store keeps of failures: whether Redis is left alone for now, and
	// who is told of a call that failed.
	stopped func() bool
	report  func(error)
}

func newConn(o *ConnOptions, l *clock) *conn {
	text := o.Script
	if text == "" {
		text = scripts.Decide().Text
	}
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	client, links := newClient(o)
	return &conn{
		client: client, tracker: links, prefix: o.Prefix, text: text, name: hex.EncodeToString(sum[:]),
		batchers: newBatchers(o.Cluster), time: l,
	}
}

// call runs the script over asks that share their call with no others. It
// returns the answer behind the header.
func (c *conn) call(ctx context.Context, keys []string, asks ...[]byte) (reply, error) {
	args := make([]any, 0, 4+len(keys)+len(asks))
	args = append(args, "evalsha", c.name, len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	head := new(argument)
	args = append(args, head)
	var before *argument
	for _, a := range asks {
		args, before = appendAsk(args, before, &argument{b: a})
	}
	r, _, err := c.eval(ctx, args, head)
	if err != nil {
		return reply{}, err
	}
	return r, r.failed()
}

// number is that of the next call.
func (c *conn) number() int64 { return int64(c.seq.Add(1) & (1<<52 - 1)) }

// eval calls the script. Its reply is taken only if it names this call. head is
// the argument that does, and that says until when the call is worth carrying
// out: one that Redis takes up later changes nothing.
func (c *conn) eval(ctx context.Context, args []any, head *argument) (reply, int64, error) {
	end, limited := ctx.Deadline()
	for range 2 {
		seq, last := c.number(), int64(noEnd)
		if limited {
			last = c.time.at(end)
		}
		head.b = appendNumber(appendNumber(head.b[:0], seq), last)
		text, err := c.evalsha(ctx, args)
		if err != nil {
			return reply{}, 0, err
		}
		r := reply{b: text}
		got, _, now := r.number(), r.number(), r.number()
		if r.err != nil || got != seq {
			return reply{}, 0, errReply
		}
		if now >= 0 {
			c.time.learn(now)
			return r, now, nil
		}
		c.time.learn(-now) // its clock is further ahead than it was
	}
	return reply{}, 0, errLate
}

// evalsha calls the script. If Redis does not know it, it is loaded and called
// again in one more round trip: nothing was charged by the first call.
func (c *conn) evalsha(ctx context.Context, args []any) (string, error) {
	cmd := newOnce(ctx, args)
	err := c.client.Process(ctx, cmd)
	if err == nil || !goredis.HasErrorPrefix(err, "NOSCRIPT") {
		return textOf(cmd, err)
	}
	again := newOnce(ctx, args)
	if cluster, ok := c.client.(*goredis.ClusterClient); ok {
		if err := cluster.ScriptLoad(ctx, c.text).Err(); err != nil {
			return "", err
		}
		return textOf(again, cluster.Process(ctx, again))
	}
	pipe := c.client.Pipeline()
	load := pipe.ScriptLoad(ctx, c.text)
	_ = pipe.Process(ctx, again)
	_, err = pipe.Exec(ctx)
	if load.Err() != nil {
		return "", load.Err()
	}
	return textOf(again, err)
}

// once is a command that is never repeated after a network error, after which
// nobody knows whether it ran. A cluster's redirections are followed: the node
// that redirects has not run it.
type once struct{ *goredis.Cmd }

// NoRetry implements goredis.Cmder.
func (once) NoRetry() bool { return true }

func newOnce(ctx context.Context, args []any) once {
	cmd := goredis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return once{cmd}
}

func textOf(cmd once, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text, err := cmd.Text()
	if err != nil {
		return "", errReply
	}
	return text, nil
}
