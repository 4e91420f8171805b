package main

import (
	"fmt"
	"net/http"
	"strings"
)

// server is one Caddy, or several equal instances that share their load. All its
// variants run in it at once, on different ports, so that they differ in nothing else:
// a process with a larger heap, for example, collects garbage less often, and its
// requests are cheaper.
type server struct {
	name      string
	peer      bool   // the Caddy without Diana
	store     string // options of Diana's store, if any
	instances int    // 0: one
	every     int    // measured only in every n-th round, n times as long; 0: in each
	variants  []variant
	selected  bool // whether any variant is
}

// variant is a site of a server. The first one of each server is bare; the others are
// compared with it in the same round.
type variant struct {
	name        string
	site        string // directives before respond
	redis       bool   // uses Redis
	hot         bool   // all requests from one client
	denied      bool   // all requests but the first are denied
	latency     bool   // latency with one connection is measured, too
	latencyOnly bool   // only latency is measured
}

// Rules that admit every request, and one that admits only the first.
const (
	ruleGCRA    = "rule 1000000/1s gcra"
	ruleSliding = "rule 1000000/1m sliding_window"
	ruleOnce    = "rule 1/10h gcra"
)

// redisAddress is a placeholder in a configuration for the address of Redis.
const redisAddress = "REDIS_ADDRESS"

var servers = []server{
	{name: "local", variants: []variant{
		{name: "bare", latency: true},
		{name: "bare-again"}, // shows the error of the measurement
		{name: "local", site: diana("local", "off", ruleGCRA), latency: true},
		{name: "local-draft", site: diana("local-draft", "draft", ruleGCRA)},
		// The cost of a denial in Caddy itself, and with Diana.
		{name: "bare-denied", site: "error 429", hot: true, denied: true},
		{name: "local-denied", site: diana("local-denied", "off", ruleOnce), hot: true, denied: true},
	}},
	// A load peak on the machine must not exceed the timeout.
	{name: "redis", store: "timeout 2s", every: 4, variants: []variant{
		{name: "bare-redis", latency: true},
		{name: "redis-gcra", site: diana("redis-gcra", "off", ruleGCRA), redis: true, latency: true},
		{name: "redis-sliding_window", site: diana("redis-sliding_window", "off", ruleSliding), redis: true},
		{name: "redis-denied", site: diana("redis-denied", "off", ruleOnce), redis: true, hot: true, denied: true},
	}},
	// One admitted client of three instances. Leases grow with use.
	{name: "three", store: "timeout 2s\n lease 50ms", instances: 3, every: 10, variants: []variant{
		{name: "bare-three"},
		{name: "redis-leased", site: diana("redis-leased", "off", ruleGCRA), redis: true, hot: true},
	}},
	{name: "mholt", peer: true, variants: []variant{
		{name: "bare-mholt"},
		{name: "mholt", site: "rate_limit {\n zone bench {\n key {header.X-Key}\n events 100\n window 1s\n }\n }"},
	}},
	{name: "peers", peer: true, every: 4, variants: []variant{
		{name: "bare-peers", latency: true},
		{name: "redis_rate", site: "redis_rate " + redisAddress + " {header.X-Key} 1000000", redis: true, latency: true},
		{name: "redis_rate-autopipeline", site: "redis_rate " + redisAddress + " {header.X-Key} 1000000 autopipeline", redis: true, latency: true},
		{name: "redis_rate-full_duplex", site: "redis_rate " + redisAddress + " {header.X-Key} 1000000 full_duplex", redis: true, latency: true},
		{name: "floor-nothing", site: "floor nothing"},
		{name: "floor-error", site: "floor error", hot: true, denied: true},
		{name: "floor-shared", site: "floor shared " + redisAddress, redis: true},
		{name: "floor-ping", site: "floor ping " + redisAddress, redis: true, latencyOnly: true},
		{name: "floor-script", site: "floor script " + redisAddress, redis: true, latencyOnly: true},
	}},
}

// diana returns the directive with one zone.
func diana(zone, headers, rule string) string {
	return fmt.Sprintf("rate_limit {\n headers %s\n zone %s {\n key {header.X-Key}\n %s\n }\n }", headers, zone, rule)
}

// caddyfile returns the server's configuration, with a port for each variant.
func (s *server) caddyfile(ports []int, redisAddr string) string {
	var b strings.Builder
	b.WriteString("{\n admin off\n auto_https off\n persist_config off\n")
	if s.store != "" {
		fmt.Fprintf(&b, " rate_limit {\n store redis %s {\n key_prefix %s\n %s\n }\n }\n", redisAddr, s.name, s.store)
	}
	b.WriteString("}\n")
	for i, v := range s.variants {
		fmt.Fprintf(&b, "http://:%d {\n bind 127.0.0.1\n %s\n respond hello\n}\n", ports[i], strings.ReplaceAll(v.site, redisAddress, redisAddr))
	}
	return b.String()
}

// want returns the expected status of every response.
func (v *variant) want() int {
	if v.denied {
		return http.StatusTooManyRequests
	}
	return http.StatusOK
}
