package redis

import (
	"context"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// nodeHook runs calls of the script at one node, wherever they come from: the first
// node, or one that redirects them. If the node does not know the script, it is
// given it and runs it in one more round trip: the first call charged nothing.
type nodeHook struct {
	nodes  *nodes
	client *goredis.Client
}

// enter makes the node the one that runs a call.
func (h *nodeHook) enter(o *once) error {
	if n := &h.nodes.called(h.client).server; n != o.node {
		o.node = n
		n.breaker.sent(time.Now())
	}
	if !o.beat && o.node.breaker.open.Load() {
		o.SetErr(errOpen)
		return errOpen
	}
	return nil
}

// DialHook implements redis.Hook.
func (*nodeHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h *nodeHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		o, ok := cmd.(*once)
		if !ok {
			return next(ctx, cmd)
		}
		if err := h.enter(o); err != nil {
			return err
		}
		if err := next(ctx, cmd); !isUnknown(err) {
			return err
		}
		return o.teach(ctx, func(first goredis.Cmder) error {
			if first == nil {
				return next(ctx, o)
			}
			return h.behind(ctx, first, o)
		})
	}
}

// behind runs a call at the node behind another command, in one round trip.
func (h *nodeHook) behind(ctx context.Context, first goredis.Cmder, o *once) error {
	o.loading = true
	defer func() { o.loading = false }()
	pipe := h.client.Pipeline()
	_ = pipe.Process(ctx, first)
	_ = pipe.Process(ctx, o)
	_, err := pipe.Exec(ctx)
	return err
}

// ProcessPipelineHook implements redis.Hook. A Cluster's client sends a call that a
// node redirects for a moving slot behind ASKING.
func (h *nodeHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		o, ok := cmds[len(cmds)-1].(*once)
		if !ok || o.loading {
			return next(ctx, cmds)
		}
		if err := h.enter(o); err != nil {
			return err
		}
		if err := next(ctx, cmds); !isUnknown(o.Err()) {
			return err
		}
		return o.teach(ctx, func(first goredis.Cmder) error {
			if first == nil {
				return next(ctx, cmds)
			}
			return next(ctx, slices.Insert(slices.Clone(cmds), 0, first))
		})
	}
}
