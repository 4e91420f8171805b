// Package subscribe subscribes to a channel in Redis, and again when the connection is
// lost. It also reads addresses of Redis.
package subscribe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// Callbacks are called on events of a subscription, one at a time.
type Callbacks struct {
	// Subscribed is called whenever a subscription begins. After a lost connection,
	// messages may have been missed.
	Subscribed func()

	// Message is called with each message.
	Message func(payload string)

	// Failed is called when the subscription fails or is lost.
	Failed func(err error)
}

const (
	pingAfter  = 3 * time.Second // without a message
	minRetry   = 250 * time.Millisecond
	maxRetry   = 5 * time.Second
	subscribes = 5 * time.Second // timeout of SUBSCRIBE
)

// Subscribe subscribes to a channel until ctx ends, over a new connection after age: the name in the address
// may lead to another server by then.
func Subscribe(ctx context.Context, client redis.UniversalClient, channel string, age time.Duration, to Callbacks) {
	for gap := minRetry; ; {
		begun := time.Now()
		one, cancel := context.WithTimeout(ctx, age)
		err := subscribe(one, client, channel, to)
		aged := one.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return
		}
		if aged {
			continue
		}
		to.Failed(err)
		if time.Since(begun) > 2*maxRetry {
			gap = minRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
		}
		gap = min(2*gap, maxRetry)
	}
}

// subscribe subscribes on one connection until that fails.
func subscribe(ctx context.Context, client redis.UniversalClient, channel string, to Callbacks) error {
	sub := client.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // ReceiveTimeout ignores the context
	defer stop()
	if _, err := receive(ctx, sub, subscribes); err != nil {
		return err
	}
	to.Subscribed()
	for pinged := false; ; {
		got, err := receive(ctx, sub, pingAfter)
		switch {
		case err == nil:
			pinged = false
			switch m := got.(type) {
			case *redis.Message:
				to.Message(m.Payload)
			case *redis.Subscription:
				to.Subscribed()
			}
		case errors.Is(err, os.ErrDeadlineExceeded) && !pinged:
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			pinged = true
		default:
			return err
		}
	}
}

// receive waits for a message. The client panics at a reply that has not the form of one, as of a server
// that is no Redis.
func receive(ctx context.Context, sub *redis.PubSub, wait time.Duration) (got any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("redis: invalid reply to a subscription: %v", cause)
		}
	}()
	return sub.ReceiveTimeout(ctx, wait)
}
