// Command peercaddy is a Caddy with the limiters that Diana is compared with. It does
// not contain Diana, because mholt/caddy-ratelimit registers the same module.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/mholt/caddy-ratelimit"

	_ "github.com/dianalimiter/diana/benchmarks/floor"
	_ "github.com/dianalimiter/diana/benchmarks/redisrate"
)

func main() { caddycmd.Main() }
