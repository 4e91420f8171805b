// Command russell is a Caddy with Diana and the plugin of RussellLuo.
package main

import (
	_ "github.com/RussellLuo/caddy-ext/ratelimit"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/dianalimiter/diana"
)

func main() { caddycmd.Main() }
