// Command both is a Caddy with Diana and the plugin of mholt, which is initialized later.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/mholt/caddy-ratelimit"

	_ "github.com/dianalimiter/diana"
)

func main() { caddycmd.Main() }
