package cli

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/logging" // the encoder console
)

// Quiet provisions a configuration that does nothing but log, as text for people, what has a level and
// is above it: Caddy would log the file that it reads, as JSON.
func Quiet(level string) (*caddy.Config, caddy.Context, error) {
	encoder := json.RawMessage(`{"format": "console", "time_key": "", "name_key": "", "level_format": "upper"}`)
	c := &caddy.Config{
		Admin:   &caddy.AdminConfig{Disabled: true},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: level, EncoderRaw: encoder}}}},
	}
	ctx, err := caddy.ProvisionContext(c)
	return c, ctx, err
}
