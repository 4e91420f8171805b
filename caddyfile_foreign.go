package diana

import (
	"encoding/json"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/internal/option"
)

// parseDistributed reads distributed and its block.
func (c *directive) parseDistributed(d *caddyfile.Dispenser) error {
	at := d.Token()
	v := new(Distributed)
	c.handler.Distributed = v
	s := &option.Set{One: map[string]option.Parse{
		"read_interval":  option.Duration(&v.ReadInterval),
		"write_interval": option.Duration(&v.WriteInterval),
		"purge_age":      option.Duration(&v.PurgeAge),
	}}
	if err := s.Block(d); err != nil {
		return err
	}
	if !c.shares() {
		return option.At(at, errNotShared)
	}
	return nil
}

// shares says whether the global options have a store.
func (c *directive) shares() bool {
	app, _ := c.Option("rate_limit").(httpcaddyfile.App)
	var stores struct {
		Stores []json.RawMessage `json:"stores"`
	}
	return json.Unmarshal(app.Value, &stores) == nil && len(stores.Stores) > 0
}

// parseStorage reads storage <module...>, whose options may hold passwords and
// are left behind. The module need not be there.
func (c *directive) parseStorage(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Errf("storage: want the name of a module")
	}
	var err error
	c.handler.Storage, err = json.Marshal(map[string]string{"module": d.Val()})
	for d.Next() { // everything to the end of its block
	}
	return err
}

// parseSize reads [<zone_size> [<reject_status>]] at the end of a line, and
// returns what else is there.
func (c *directive) parseSize(z *Zone, rate caddyfile.Token, rest []caddyfile.Token) ([]caddyfile.Token, error) {
	if !simpleRate.MatchString(rate.Text) || len(z.Key) == 0 {
		return rest, nil
	}
	if len(rest) == 0 || isNumber(rest[0].Text) {
		z.KeyMissing = missingIn(z.Key[0])
	}
	if len(rest) > 0 && isNumber(rest[0].Text) {
		if err := option.Whole(&z.MaxKeys, 0, option.Max)(valueOf("zone_size", rest[0])); err != nil {
			return nil, err
		}
		rest = rest[1:]
		if len(rest) > 0 && isNumber(rest[0].Text) {
			if err := option.Whole(&c.handler.RejectStatus, 200, 599)(valueOf("reject_status", rest[0])); err != nil {
				return nil, err
			}
			if err := checkRejectStatus(c.handler.RejectStatus); err != nil {
				return nil, option.At(rest[0], err)
			}
			rest = rest[1:]
		}
	}
	return rest, nil
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// valueOf is an option's value as if its name stood before it.
func valueOf(name string, value caddyfile.Token) *caddyfile.Dispenser {
	option := value.Clone()
	option.Text = name
	d := caddyfile.NewDispenser([]caddyfile.Token{option, value})
	d.Next()
	return d
}
