// Package benchtest puts the same requests to any Caddy handler, prepared as
// Caddy's server prepares them, so that the handlers alone make the difference
// between two benchmarks.
package benchtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	// The storage that Caddy's apps are given.
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
)

// Clients is how many different clients a benchmark has, unless it has one.
const Clients = 10_000

// Keys returns n different keys of clients in an order that is the same every
// time and has nothing to do with where a store put them.
func Keys(n int) []string {
	keys := make([]string, n)
	for i, j := range rand.New(rand.NewPCG(1, 2)).Perm(n) { //nolint:gosec // the same every time
		keys[i] = fmt.Sprintf("client-%08d", j)
	}
	return keys
}

// Handler provisions the HTTP handler of that name with its JSON, in a
// configuration with these apps, and lets it all go when tb ends.
func Handler(tb testing.TB, name, config string, apps map[string]string) caddyhttp.MiddlewareHandler {
	tb.Helper()
	c := &caddy.Config{
		// Log lines about denied requests would come between the figures.
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{
			caddy.DefaultLoggerName: {BaseLog: caddy.BaseLog{Level: "ERROR"}},
		}},
		StorageRaw: json.RawMessage(fmt.Sprintf(`{"module":"file_system","root":%q}`, tb.TempDir())),
	}
	root, err := caddy.ProvisionContext(c)
	if err != nil {
		tb.Fatal(err)
	}
	c.AppsRaw = make(caddy.ModuleMap)
	for app, text := range apps {
		c.AppsRaw[app] = json.RawMessage(text)
	}
	c.AppsRaw["http"] = site(tb, name, config)
	ctx, cancel := caddy.NewContext(root) // this one can be cancelled
	tb.Cleanup(cancel)
	v, err := ctx.App("http")
	if err != nil {
		tb.Fatal(err)
	}
	for app := range apps {
		start(tb, ctx, app)
	}
	return v.(*caddyhttp.App).Servers["bench"].Routes[0].Handlers[0]
}

// site is the configuration of an HTTP app with that handler alone. It is
// provisioned, and never started.
func site(tb testing.TB, name, config string) json.RawMessage {
	tb.Helper()
	handler := map[string]any{}
	if err := json.Unmarshal([]byte(config), &handler); err != nil {
		tb.Fatal(err)
	}
	handler["handler"] = name
	text, err := json.Marshal(map[string]any{"servers": map[string]any{"bench": map[string]any{
		"listen": []string{"127.0.0.1:0"}, "automatic_https": map[string]bool{"disable": true},
		"routes": []any{map[string]any{"handle": []any{handler}}},
	}}})
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func start(tb testing.TB, ctx caddy.Context, name string) {
	tb.Helper()
	v, err := ctx.App(name)
	if err != nil {
		tb.Fatal(err)
	}
	app := v.(caddy.App)
	if err := app.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = app.Stop() })
}
