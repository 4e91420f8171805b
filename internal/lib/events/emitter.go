// Package events emits Caddy events in the background.
package events

import (
	"context"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"

	"github.com/dianalimiter/diana/internal/lib/background"
)

// Emitter emits Caddy events. Caddy's app for events subscribes the handlers when it starts,
// without a lock, while a store may already report that Redis is away: events wait until all
// apps have started.
type Emitter struct {
	ctx     caddy.Context
	app     *caddyevents.App
	queue   *background.Queue
	started chan struct{} // closed when all apps have started
	start   func()        // closes started, once
}

// NewEmitter returns an emitter through a queue.
func NewEmitter(ctx caddy.Context, app *caddyevents.App, queue *background.Queue) (Emitter, error) {
	started := make(chan struct{})
	e := Emitter{ctx, app, queue, started, sync.OnceFunc(func() { close(started) })}
	return e, app.On("started", e)
}

// Handle implements caddyevents.Handler, for the event that all apps have started.
func (e Emitter) Handle(context.Context, caddy.Event) error {
	e.start()
	return nil
}

// Listens reports whether an event may have subscribers.
func (e Emitter) Listens(event string) bool {
	select {
	case <-e.started:
		return e.app.ShouldEmit(event)
	default:
		return true
	}
}

// Emit emits an event in the background if it has subscribers.
func (e Emitter) Emit(event string, data map[string]any) {
	if !e.Listens(event) {
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
