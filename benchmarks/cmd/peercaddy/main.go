// Command peercaddy is a Caddy with what Diana is measured against. Diana is
// not in it: it and mholt/caddy-ratelimit claim the same name.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/mholt/caddy-ratelimit"

	_ "github.com/dianalimiter/diana/benchmarks/floor"
	_ "github.com/dianalimiter/diana/benchmarks/redisrate"
)

func main() { caddycmd.Main() }
