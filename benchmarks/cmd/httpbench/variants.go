package main

import (
	"fmt"
	"net/http"
	"strings"
)

// variant is one configuration of one Caddy.
type variant struct {
	name  string
	site  string // what the site has before its answer
	peer  bool   // it runs in the Caddy without Diana
	redis bool   // it needs Redis
	hot   bool   // all requests are of one client
	alone bool   // its latency is measured too, with one connection

	denied    bool   // all requests but the first are
	lease     string // the store's lease, if it has one
	instances int    // how many Caddys share the load; 0: one
}

// Rules that every request passes, and one that every request but the first
// fails.
const (
	ruleGCRA    = "rule 1000000/1s gcra"
	ruleSliding = "rule 1000000/1m sliding_window"
	ruleOnce    = "rule 1/10h gcra"
)

// bare is what all others are compared with, in the same round.
const bare = "bare"

// redisAddress stands in a configuration for where Redis is.
const redisAddress = "REDIS_ADDRESS"

var variants = []variant{
	{name: bare, alone: true},
	{name: "local", site: diana("off", ruleGCRA), alone: true},
	{name: "local-draft", site: diana("draft", ruleGCRA)},
	{name: "mholt", peer: true, site: "rate_limit {\n zone bench {\n key {header.X-Key}\n events 100\n window 1s\n }\n }"},
	{name: "redis-gcra", site: diana("off", ruleGCRA), redis: true, alone: true},
	{name: "redis-sliding_window", site: diana("off", ruleSliding), redis: true},
	{name: "redis_rate", peer: true, site: "redis_rate " + redisAddress + " {header.X-Key} 1000000", redis: true, alone: true},

	// What a refusal costs Caddy whoever refuses, and Diana's.
	{name: "bare-denied", site: "error 429", hot: true, denied: true},
	{name: "local-denied", site: diana("off", ruleOnce), hot: true, denied: true},
	{name: "redis-denied", site: diana("off", ruleOnce), redis: true, hot: true, denied: true},

	// One client, who may, of three instances.
	{name: "bare-three", instances: 3},
	{name: "redis-leased", site: diana("off", ruleGCRA), redis: true, hot: true, lease: "50ms", instances: 3},
}

// diana is the directive with one zone.
func diana(headers, rule string) string {
	return fmt.Sprintf("rate_limit {\n headers %s\n zone bench {\n key {header.X-Key}\n %s\n }\n }", headers, rule)
}

// caddyfile is the variant's whole configuration.
func (v *variant) caddyfile(port int, redisAddr string) string {
	global := ""
	if v.redis && !v.peer {
		// Every variant has keys of its own. A machine that is busy for a moment
		// must not look like a Redis that is away.
		lease := ""
		if v.lease != "" {
			lease = "lease " + v.lease
		}
		global = fmt.Sprintf("rate_limit {\n store redis %s {\n key_prefix %s\n timeout 2s\n %s\n }\n }", redisAddr, v.name, lease)
	}
	return fmt.Sprintf(`{
 admin off
 auto_https off
 persist_config off
 %s
}
http://:%d {
 bind 127.0.0.1
 %s
 respond hello
}
`, global, port, strings.ReplaceAll(v.site, redisAddress, redisAddr))
}

// want is the status of every answer.
func (v *variant) want() int {
	if v.denied {
		return http.StatusTooManyRequests
	}
	return http.StatusOK
}
