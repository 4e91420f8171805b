package redis

import (
	"context"
	"encoding"
	"fmt"
	"net"
	"syscall"

	goredis "github.com/redis/go-redis/v9"
)

// faultHook makes the commands of one instance fail.
type faultHook struct{ fault fault }

type fault int

const (
	noFault      fault = iota
	faultRefused       // the connection is refused
	faultTimeout       // the command is lost on its way, and times out
	faultReply         // the command is executed, and its reply lost
	faultOOM           // Redis replies with an error
	faultMoving        // the slot is moved: the node has one key of a call, and not the others
)

func (h *faultHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h *faultHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if h.fault == faultReply && cmd.Name() != "evalsha" { // the greeting of a new connection
			return next(ctx, cmd)
		}
		if h.fault == faultMoving && (cmd.Name() != "evalsha" || fmt.Sprint(cmd.Args()[2]) == "1") {
			return next(ctx, cmd)
		}
		if h.fault == faultTimeout {
			write(cmd)
		}
		err := h.apply(func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

func (h *faultHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if h.fault == faultReply || h.fault == faultMoving { // as above
			return next(ctx, cmds)
		}
		return h.apply(func() error { return next(ctx, cmds) })
	}
}

// write writes the arguments of a command that is lost on its way.
func write(cmd goredis.Cmder) {
	for _, a := range cmd.Args() {
		if m, ok := a.(encoding.BinaryMarshaler); ok {
			_, _ = m.MarshalBinary()
		}
	}
}

// refusal is an error reply of Redis.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

func (h *faultHook) apply(do func() error) error {
	switch h.fault {
	case noFault:
		return do()
	case faultReply:
		_ = do()
		return context.DeadlineExceeded
	case faultTimeout:
		return context.DeadlineExceeded
	case faultOOM:
		return refusal("OOM command not allowed when used memory > 'maxmemory'.")
	case faultMoving:
		return refusal("TRYAGAIN Multiple keys request during rehashing of slot")
	}
	return dialError{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
}
