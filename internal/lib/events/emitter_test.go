package events

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/lib/background"
)

// received collects the names of events.
type received struct{ names []string }

func (r *received) Handle(_ context.Context, e caddy.Event) error {
	r.names = append(r.names, e.Name())
	return nil
}

// TestEventsWaitForTheirHandlers emits an event before Caddy's app for events has subscribed its
// handlers, as a store does that is away when Caddy starts. The handlers receive it afterwards.
func TestEventsWaitForTheirHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		defer cancel()
		var got received
		app := &caddyevents.App{Subscriptions: []*caddyevents.Subscription{{Events: []string{"away"}, Handlers: []caddyevents.Handler{&got}}}}
		if err := app.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		queue := background.NewQueue(zap.NewNop(), 8, "")
		defer queue.Close()
		e, err := NewEmitter(ctx, app, queue)
		if err != nil {
			t.Fatal(err)
		}
		e.Emit("away", nil)
		synctest.Wait()
		if err := app.Start(); err != nil {
			t.Fatal(err)
		}
		app.Emit(ctx, "started", nil)
		synctest.Wait()
		if len(got.names) != 1 {
			t.Errorf("received %q, want one", got.names)
		}
	})
}
