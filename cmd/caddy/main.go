// Command caddy is a whole Caddy with Diana in it.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/dianalimiter/diana"
)

func main() { caddycmd.Main() }
