// Package listen hears what is published on a channel in Redis, over any number
// of lost connections.
package listen

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ears are told what happens on a channel, one thing at a time.
type Ears struct {
	// Subscribed is called when the channel begins to be heard, also after the
	// connection was lost: messages may have been missed before.
	Subscribed func()

	// Message is called with each message.
	Message func(payload string)

	// Failed is called when the channel is no longer heard, or cannot be.
	Failed func(err error)
}

const (
	pingAfter  = 3 * time.Second // of silence, to see whether the connection lives
	tryAgain   = 250 * time.Millisecond
	maxTryGap  = 5 * time.Second
	subscribes = 5 * time.Second // the most that subscribing takes
)

// Listen listens to a channel until ctx ends.
func Listen(ctx context.Context, client redis.UniversalClient, channel string, to Ears) {
	for gap := tryAgain; ; {
		begun := time.Now()
		err := hear(ctx, client, channel, to)
		if ctx.Err() != nil {
			return
		}
		to.Failed(err)
		if time.Since(begun) > 2*maxTryGap {
			gap = tryAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
		}
		gap = min(2*gap, maxTryGap)
	}
}

// hear listens over one connection until it fails.
func hear(ctx context.Context, client redis.UniversalClient, channel string, to Ears) error {
	sub := client.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // Receive looks at no context
	defer stop()
	if _, err := sub.ReceiveTimeout(ctx, subscribes); err != nil {
		return err
	}
	to.Subscribed()
	for asked := false; ; {
		got, err := sub.ReceiveTimeout(ctx, pingAfter)
		switch {
		case err == nil:
			asked = false
			switch m := got.(type) {
			case *redis.Message:
				to.Message(m.Payload)
			case *redis.Subscription:
				to.Subscribed()
			}
		case isTimeout(err) && !asked:
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			asked = true
		default:
			return err
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
