package diana

import (
	"context"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"

	"github.com/dianalimiter/diana/internal/background"
)

// maxEvents is how many events, and how many log lines, wait for their handlers at most.
const maxEvents = 1024

// emitter emits Caddy events. Caddy's app for events subscribes the handlers when it starts,
// without a lock, while a store may already report that Redis is away: events wait until all
// apps have started.
type emitter struct {
	ctx     caddy.Context
	app     *caddyevents.App
	queue   *background.Queue
	started chan struct{} // closed when all apps have started
	start   func()        // closes started, once
}

func newEmitter(ctx caddy.Context, app *caddyevents.App, queue *background.Queue) (emitter, error) {
	started := make(chan struct{})
	e := emitter{ctx, app, queue, started, sync.OnceFunc(func() { close(started) })}
	return e, app.On("started", e)
}

// Handle implements caddyevents.Handler, for the event that all apps have started.
func (e emitter) Handle(context.Context, caddy.Event) error {
	e.start()
	return nil
}

// listens reports whether an event may have subscribers.
func (e emitter) listens(event string) bool {
	select {
	case <-e.started:
		return e.app.ShouldEmit(event)
	default:
		return true
	}
}

// emit emits an event in the background if it has subscribers.
func (e emitter) emit(event string, data map[string]any) {
	if !e.listens(event) {
		return
	}
	e.queue.Add(func() {
		select {
		case <-e.started:
			e.app.Emit(e.ctx, event, data)
		case <-e.ctx.Done():
		}
	})
}
