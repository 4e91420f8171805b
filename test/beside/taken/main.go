// Command taken is a Caddy with Diana and a plugin that is initialized earlier.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/dianalimiter/beside/first"

	_ "github.com/dianalimiter/diana"
)

func main() { caddycmd.Main() }
