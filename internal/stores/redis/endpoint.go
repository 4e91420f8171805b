package redis

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// endpointHook is of the client of a node of a Cluster. A Cluster that does not know by which address it is
// reached (cluster-preferred-endpoint-type) tells the ports of its nodes alone: null, "?" or nothing in place of
// a host means that of the node that was asked. go-redis takes that for an error, or for this host.
type endpointHook struct{ host string }

// newEndpointHook returns the hook of a client of a node at an address.
func newEndpointHook(addr string) endpointHook {
	host, _, _ := net.SplitHostPort(addr)
	return endpointHook{host}
}

// known returns a host, or that of the node if it is not told.
func (h endpointHook) known(host string) string {
	if host == "" || host == "?" {
		return h.host
	}
	return host
}

// DialHook implements [goredis.Hook].
func (endpointHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements [goredis.Hook].
func (h endpointHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if slots, is := cmd.(*goredis.ClusterSlotsCmd); is {
			return h.slots(ctx, next, slots)
		}
		return h.redirect(cmd, next(ctx, cmd))
	}
}

// ProcessPipelineHook implements [goredis.Hook].
func (h endpointHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if before := cmd.Err(); h.redirect(cmd, before) != before && err == before { //nolint:errorlint // the very same
				err = cmd.Err()
			}
		}
		return err
	}
}

// redirection is a MOVED or ASK of a Cluster.
type redirection string

// Error implements error.
func (e redirection) Error() string { return string(e) }

// RedisError implements goredis.Error.
func (redirection) RedisError() {}

// redirect returns the error of a command, in which it completes the address to which a node redirects.
func (h endpointHook) redirect(cmd goredis.Cmder, err error) error {
	if err == nil || !goredis.HasErrorPrefix(err, "MOVED ") && !goredis.HasErrorPrefix(err, "ASK ") {
		return err
	}
	words := strings.Fields(err.Error())
	at := strings.LastIndexByte(words[len(words)-1], ':')
	if len(words) != 3 || at < 0 {
		return err
	}
	host := words[2][:at]
	if h.known(host) == host {
		return err
	}
	words[2] = net.JoinHostPort(h.host, words[2][at+1:])
	err = redirection(strings.Join(words, " "))
	cmd.SetErr(err)
	return err
}

// slots asks a node for the slots, whose reply may have hosts that are null.
func (h endpointHook) slots(ctx context.Context, next goredis.ProcessHook, cmd *goredis.ClusterSlotsCmd) error {
	raw := goredis.NewSliceCmd(ctx, cmd.Args()...)
	err := next(ctx, raw)
	if err == nil {
		var all []goredis.ClusterSlot
		if all, err = h.parse(raw.Val()); err == nil {
			cmd.SetVal(all)
			return nil
		}
	}
	cmd.SetErr(err)
	return err
}

// parse parses a reply to CLUSTER SLOTS.
func (h endpointHook) parse(reply []any) (all []goredis.ClusterSlot, err error) {
	for _, entry := range reply {
		words, _ := entry.([]any)
		if len(words) < 3 {
			return nil, fmt.Errorf("redis: invalid reply to CLUSTER SLOTS: %d words of a range", len(words))
		}
		from, first := words[0].(int64)
		to, last := words[1].(int64)
		slot := goredis.ClusterSlot{Start: int(from), End: int(to)}
		for _, w := range words[2:] {
			node, _ := w.([]any)
			if len(node) < 2 || !first || !last {
				return nil, fmt.Errorf("redis: invalid reply to CLUSTER SLOTS: range %v", words[:2])
			}
			host, _ := node[0].(string) // or null
			port, _ := node[1].(int64)
			n := goredis.ClusterNode{Addr: net.JoinHostPort(h.known(host), strconv.FormatInt(port, 10))}
			if len(node) > 2 {
				n.ID, _ = node[2].(string)
			}
			slot.Nodes = append(slot.Nodes, n)
		}
		all = append(all, slot)
	}
	return all, nil
}

var _ goredis.Hook = endpointHook{}
