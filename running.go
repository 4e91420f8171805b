package diana

import (
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/running"
)

// apps is the app of the running configuration. On a reload the new app starts
// before the old one is stopped; if the new configuration then fails to start, the old
// app runs again.
var apps process.Var[runningApp]

// runningApp is changed by Start and Stop only, which Caddy never calls concurrently. The
// lock is for readers, and is not held while an app takes over: that logs.
type runningApp struct {
	mu  sync.Mutex
	app *App

	before *App              // the predecessor of app until it is stopped
	kinds  map[string]string // limiter.Registry.Kinds of the last app

	replaced []weak.Pointer[limiter.Limiter] // of earlier configurations, kept by their requests under way
}

func (r *runningApp) start(a *App) {
	if r.app != nil {
		r.kinds = r.app.registry.Kinds()
	}
	for name, kinds := range a.registry.Kinds() {
		if was, ok := r.kinds[name]; ok && was != kinds {
			a.registry.LogRestart(name)
		}
	}
	running.Tools.Started(a.instance)
	r.before = r.app
	kind := history.MarkStarted
	if r.before != nil {
		kind = history.MarkReload
	}
	history.MarksOf(a.process).Add(history.Mark{At: time.Now(), Kind: kind, Text: a.hash.String()})
	if r.before != nil {
		r.before.stores.mute(&a.stores)
		a.inherit(r.before) // what came since it was provisioned
	}
	r.set(a.process, a)
	a.lead()
}

// current returns the app of the running configuration; nil if there is none.
func (r *runningApp) current() *App {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.app
}

// set makes an app the running one, nil: there is none, and shows it to the tools.
func (r *runningApp) set(p *process.Process, a *App) {
	var in *running.Instance
	if a != nil {
		in = a.instance
	}
	r.mu.Lock()
	r.app = a
	r.mu.Unlock()
	running.Of(p).Set(in)
}

func (r *runningApp) stop(a *App) {
	if r.app != a { // its successor runs
		r.before = nil
		if a.follower != nil { // another than that of the successor
			a.follower.Leave(a.registry)
		}
		return
	}
	r.kinds = a.registry.Kinds()
	r.set(a.process, r.before)
	r.before = nil
	if r.app != nil {
		r.app.lead()
		return
	}
	history.Of(a.process).Follow(nil, &metrics.Of(a.process).Requests, clock.Now())
	if a.follower != nil {
		a.follower.Leave(a.registry)
	}
}

// leave makes a limiter, and those of earlier configurations, charge the requests that are under way, if Caddy has no
// configuration any more: the process ends. They go on under a configuration without the app, and if the process ends
// then, nothing is charged for what they have not told.
func (r *runningApp) leave(l *limiter.Limiter) {
	var cut []weak.Pointer[limiter.Limiter]
	r.mu.Lock()
	ended := func(p weak.Pointer[limiter.Limiter]) bool { return p.Value() == nil }
	if r.replaced = append(slices.DeleteFunc(r.replaced, ended), weak.Make(l)); r.app == nil && caddy.ActiveContext().Context == nil {
		cut, r.replaced = r.replaced, nil
	}
	r.mu.Unlock()
	for _, p := range cut {
		if l := p.Value(); l != nil {
			l.SettleCut()
		}
	}
}

// exposed returns what the metrics show of the running configuration.
func (r *runningApp) exposed() (now metrics.Running) {
	if a := r.current(); a != nil {
		now.Zones, now.Stores = a.registry.Exposed(a.instance.Origin), a.stores.shared()
		if a.follower != nil {
			now.Confirmed = a.follower.Status().Confirmed
		}
	}
	return now
}

// lead makes stores, the rule source and the lists of keys report to this app, and applies
// its max_keys to the tables. It may be called again.
func (a *App) lead() {
	a.stores.lead()
	for _, b := range a.registry.Bounds() {
		b.SetMax()
	}
	history.Of(a.process).Follow(a.registry.Sampled(), &metrics.Of(a.process).Requests, clock.Now())
	if a.follower != nil {
		a.follower.Lead(a.registry, a.ctx.Storage(), a.logger)
	}
	a.lists.Follow(a.registry, a.logger)
}
