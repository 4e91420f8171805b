// Package benchtest sends the same requests to any Caddy handler, prepared as Caddy's
// server prepares them, so that two benchmarks differ only in the handlers.
package benchtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	// The storage for Caddy's apps.
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
)

// Clients is the number of clients of a benchmark with more than one.
const Clients = 10_000

// Keys returns the keys of n clients in a fixed random order, which does not depend on
// their position in a store.
func Keys(n int) []string {
	keys := make([]string, n)
	for i, j := range rand.New(rand.NewPCG(1, 2)).Perm(n) { //nolint:gosec // reproducible
		keys[i] = fmt.Sprintf("client-%08d", j)
	}
	return keys
}

// Handler provisions the HTTP handler name with the JSON config, in a configuration
// with the given apps. All is released at the end of tb.
func Handler(tb testing.TB, name, config string, apps map[string]string) caddyhttp.MiddlewareHandler {
	tb.Helper()
	c := &caddy.Config{
		// Log lines about denied requests would distort the results.
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
	ctx, cancel := caddy.NewContext(root) // a context that can be canceled
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

// site returns the configuration of an HTTP app with only that handler. It is
// provisioned but never started.
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
