package stores

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dianalimiter/diana/scripts"
)

// RedisOptions say how to reach a Redis and how long to wait for it.
type RedisOptions struct {
	Addresses []string
	Network   string // "tcp" or "unix"
	Username  string
	Password  string
	DB        int

	// Cluster says that the addresses are nodes of a Redis Cluster.
	Cluster bool

	// Master is the name that Sentinels, whose addresses these are, know the
	// server by.
	Master           string
	SentinelUsername string
	SentinelPassword string

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

	// Script is what Redis runs. Default: that of scripts.Decide. Proofs run it
	// with a clock of their own.
	Script string
}

// conn speaks with a Redis: one script, loaded once, called by its hash.
type conn struct {
	client redis.UniversalClient
	prefix string
	text   string
	sha    string
	seq    atomic.Uint64
}

func newConn(o *RedisOptions) *conn {
	text := o.Script
	if text == "" {
		text = scripts.Decide().Text
	}
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return &conn{client: newClient(o), prefix: o.Prefix, text: text, sha: hex.EncodeToString(sum[:])}
}

// NewClient returns a client for other uses of the same Redis.
func NewClient(o *RedisOptions) redis.UniversalClient { return newClient(o) }

// newClient returns a client that never repeats a command, because a decision
// that is made twice is charged twice, and that keeps the deadline of a context.
func newClient(o *RedisOptions) redis.UniversalClient {
	size := o.PoolSize
	if size == 0 {
		size = 10 * runtime.GOMAXPROCS(0)
	}
	u := &redis.UniversalOptions{
		Addrs: o.Addresses, MasterName: o.Master, IsClusterMode: o.Cluster,
		Username: o.Username, Password: o.Password, DB: o.DB,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: o.DialTimeout, PoolTimeout: o.Timeout,
		PipelinePoolSize: -1, // loading the script takes no connections beside these
		PoolSize:         size, MinIdleConns: min(2, size), MaxActiveConns: size,
		TLSConfig:                o.TLS,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch {
	case o.Cluster:
		c := u.Cluster()
		c.DisableRoutingPolicies = true // they would ask for COMMAND
		c.ClusterStateReloadInterval = time.Second
		c.NewClient = func(node *redis.Options) *redis.Client {
			node.Dialer = boundedDialer(redis.NewDialer(node), size)
			return redis.NewClient(node)
		}
		return redis.NewClusterClient(c)
	case o.Master != "":
		return redis.NewFailoverClient(u.Failover())
	}
	simple := u.Simple()
	simple.Network = o.Network
	simple.Dialer = boundedDialer(redis.NewDialer(simple), size)
	return redis.NewClient(simple)
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// boundedDialer keeps no more than n connections open: the pool's own bound
// lets a few more through while it dials.
func boundedDialer(dial dialer, n int) dialer {
	open := make(chan struct{}, n)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case open <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		c, err := dial(ctx, network, addr)
		if err != nil {
			<-open
			return nil, err
		}
		b := boundedConn{Conn: c, closed: sync.OnceFunc(func() { <-open })}
		if raw, ok := c.(syscall.Conn); ok {
			return &boundedRawConn{b, raw}, nil
		}
		return &b, nil
	}
}

// boundedConn gives back its place when it is closed.
type boundedConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// boundedRawConn lets the pool see, too, whether the server has closed the
// connection. One with TLS must not, or its own records would be taken for
// replies.
type boundedRawConn struct {
	boundedConn
	raw syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (c *boundedRawConn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

// call runs the script over the asks, and returns its answer behind the header
// and Redis' time in microseconds. A reply is taken only if it names this call.
func (c *conn) call(ctx context.Context, keys []string, asks ...[]byte) (reply, int64, error) {
	seq := int64(c.seq.Add(1) & (1<<52 - 1))
	args := make([]any, 0, 4+len(keys)+len(asks))
	args = append(args, "evalsha", c.sha, len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	args = append(args, appendNumber(nil, seq))
	for _, a := range asks {
		args = append(args, a)
	}
	text, err := c.eval(ctx, args)
	if err != nil {
		return reply{}, 0, err
	}
	r := reply{b: text}
	if got, now := r.number(), r.number(); r.err == nil && got == seq {
		return r, now, r.failed()
	}
	return reply{}, 0, errReply
}

// eval calls the script. If Redis does not know it, it is loaded and called
// again in one more round trip: nothing was charged by the first call.
func (c *conn) eval(ctx context.Context, args []any) (string, error) {
	cmd := newOnce(ctx, args)
	err := c.client.Process(ctx, cmd)
	if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return textOf(cmd, err)
	}
	again := newOnce(ctx, args)
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
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
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

func newOnce(ctx context.Context, args []any) once {
	cmd := redis.NewCmd(ctx, args...)
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

// Failure is a class of what can go wrong with Redis.
type Failure string

// The classes of failures, which are label values of a metric.
const (
	FailTimeout Failure = "timeout" // no answer in time
	FailAway    Failure = "away"    // nobody there, or not ready
	FailRefused Failure = "refused" // there, and refusing: rights, memory, disk
	FailWrong   Failure = "wrong"   // an answer that should not be: another tenant's key, a bug
)

var refusals = []string{"OOM", "MISCONF", "NOAUTH", "WRONGPASS", "NOPERM", "NOREPLICAS", "BUSY"}

var absences = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"}

// classify says what kind of failure an error is.
func classify(err error) Failure {
	if errors.Is(err, errReply) || errors.Is(err, errDisagree) {
		return FailWrong
	}
	if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		return FailTimeout
	}
	var answered redis.Error
	if !errors.As(err, &answered) || errors.Is(err, redis.ErrClosed) {
		return FailAway
	}
	text := answered.Error()
	for _, p := range refusals {
		if strings.HasPrefix(text, p) || strings.Contains(text, "-"+p+" ") {
			return FailRefused
		}
	}
	for _, p := range absences {
		if strings.HasPrefix(text, p) {
			return FailAway
		}
	}
	for _, p := range []string{"can't run this command", "executing script can't", "No permissions", "max number of clients"} {
		if strings.Contains(text, p) {
			return FailRefused
		}
	}
	return FailWrong
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, redis.ErrPoolTimeout)
}

// Advice says what an operator can do about a failure.
func Advice(f Failure) string {
	switch f {
	case FailTimeout:
		return "Redis did not answer within the store's timeout: look at its load and at the network, or raise timeout"
	case FailAway:
		return "Redis cannot be reached or is not ready: see that it runs and that the address is right"
	case FailRefused:
		return "Redis refuses: look at the error, and at the user's rights, maxmemory and persistence"
	}
	return "Redis gave an answer that Diana did not expect: see that no other program writes keys under key_prefix"
}
