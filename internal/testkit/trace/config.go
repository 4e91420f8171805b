package trace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Place describes where to run a configuration that was written for another machine.
type Place struct {
	Storage  string         // a folder
	Log      map[string]any // a log writer; nil: discard
	Redis    string         // replaces the address of every store; empty: unchanged
	Upstream string         // replaces localhost:9000; empty: unchanged
}

// Adapt adapts a Caddyfile to JSON.
func Adapt(caddyfile string) ([]byte, error) {
	b, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
	return b, err
}

// Move changes a configuration to run in p: on free ports, over plain HTTP, without
// the admin endpoint, and with this machine as a trusted proxy unless it configures
// trusted proxies. host is the first host that it matches, if any.
func (p Place) Move(config []byte) (moved []byte, host string, err error) {
	var c map[string]any
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, "", err
	}
	c["admin"] = map[string]any{"disabled": true, "config": map[string]any{"persist": false}}
	c["storage"] = map[string]any{"module": "file_system", "root": p.Storage}
	writer := p.Log
	if writer == nil {
		writer = map[string]any{"output": "discard"}
	}
	c["logging"] = map[string]any{"logs": map[string]any{"default": map[string]any{
		"writer": writer, "encoder": map[string]any{"format": "json"},
	}}}
	apps, _ := c["apps"].(map[string]any)
	delete(apps, "tls")
	delete(apps, "pki")
	p.moveServers(apps)
	p.moveStores(apps)
	if moved, err = json.Marshal(c); err != nil {
		return nil, "", err
	}
	if p.Upstream != "" {
		moved = []byte(strings.ReplaceAll(string(moved), `"dial":"localhost:9000"`, `"dial":"`+p.Upstream+`"`))
	}
	return moved, firstHost(apps["http"]), nil
}

func (p Place) moveServers(apps map[string]any) {
	http, _ := apps["http"].(map[string]any)
	delete(http, "http_port")
	delete(http, "https_port")
	servers, _ := http["servers"].(map[string]any)
	for i, name := range slices.Sorted(maps.Keys(servers)) {
		srv, _ := servers[name].(map[string]any)
		srv["listen"] = []string{fmt.Sprintf("127.0.0.%d:0", i+1)}
		srv["automatic_https"] = map[string]any{"disable": true}
		delete(srv, "tls_connection_policies")
		if srv["trusted_proxies"] == nil {
			srv["trusted_proxies"] = map[string]any{"source": "static", "ranges": []string{"127.0.0.0/8"}}
			srv["trusted_proxies_strict"] = 1
		}
	}
}

// moveStores replaces the stores' Redis, with a timeout long enough for a loaded
// machine.
func (p Place) moveStores(apps map[string]any) {
	limit, _ := apps["rate_limit"].(map[string]any)
	stores, _ := limit["stores"].([]any)
	for _, v := range stores {
		store, _ := v.(map[string]any)
		if store == nil || p.Redis == "" {
			continue
		}
		for _, option := range []string{"username", "password", "db", "cluster", "sentinel", "tls"} {
			delete(store, option)
		}
		store["addresses"], store["timeout"] = []string{p.Redis}, "10s"
	}
}

// firstHost returns the first host of a host matcher.
func firstHost(v any) string {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if h := firstHost(e); h != "" {
				return h
			}
		}
	case map[string]any:
		if hosts, _ := v["host"].([]any); len(hosts) > 0 {
			if h, ok := hosts[0].(string); ok {
				return h
			}
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if h := firstHost(v[k]); h != "" {
				return h
			}
		}
	}
	return ""
}

// Load runs a configuration and returns the URLs of its servers, ordered by name. It
// runs until [caddy.Stop].
func Load(config []byte) (urls []string, err error) {
	if err := caddy.Load(config, true); err != nil {
		return nil, err
	}
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		return nil, err
	}
	servers := app.(*caddyhttp.App).Servers //nolint:forcetypeassert // the http app
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		urls = append(urls, "http://"+servers[name].Listeners()[0].Addr().String())
	}
	return urls, nil
}

// Comments returns the lines of a Caddyfile that begin with "#:".
func Comments(caddyfile string) string {
	var b strings.Builder
	for line := range strings.Lines(caddyfile) {
		if step, ok := strings.CutPrefix(line, "#:"); ok {
			b.WriteString(step)
		}
	}
	return b.String()
}
