// Package source adds a source of rules to Diana in one file, as an example for others.
// docs/internals/new-rule-source.md explains it and how to build Caddy with it.
package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/rules"
)

func init() { caddy.RegisterModule(new(Directory)) }

// Directory reads rules from the files *.json of a directory, each of which is a document
// with zones of its own, such as one for each team. A zone may be in one of them only.
type Directory struct {
	// The path of the directory. Required.
	Path string `json:"path"`
}

// checkEvery is the interval at which the directory is read.
const checkEvery = time.Second

// CaddyModule returns the Caddy module information.
func (*Directory) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.rule_sources.directory", New: func() caddy.Module { return new(Directory) }}
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler:
//
//	rules directory <path>
func (d *Directory) UnmarshalCaddyfile(t *caddyfile.Dispenser) error {
	t.Next() // the source's name
	if !t.AllArgs(&d.Path) {
		return t.Errf("want the path of a directory, such as rules directory /etc/diana/rules.d")
	}
	for t.NextBlock(0) {
		return t.Errf("unknown option %q: none is wanted here", t.Val())
	}
	return nil
}

// Provision implements caddy.Provisioner.
func (d *Directory) Provision(caddy.Context) error {
	if d.Path == "" {
		return errors.New("path: want the path of a directory")
	}
	return nil
}

// Fetch implements [rules.Source]. A directory without documents is one that never had any,
// or has none any more: the follower knows which.
func (d *Directory) Fetch(ctx context.Context) ([]byte, error) {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", d.Path, rules.ErrEmpty)
	}
	if err != nil {
		return nil, err
	}
	zones := make(map[string]json.RawMessage)
	size, documents := int64(0), 0
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		// Nothing is read of documents that are too large together, and nothing after
		// the follower has lost its patience.
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if size += info.Size(); size > rules.MaxSize {
			return nil, fmt.Errorf("%s: %w", d.Path, rules.ErrTooLarge)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := d.add(zones, e); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		documents++
	}
	if documents == 0 {
		return nil, fmt.Errorf("%s: %w", d.Path, rules.ErrEmpty)
	}
	return json.Marshal(map[string]any{"zones": zones})
}

// add adds the zones of one file.
func (d *Directory) add(zones map[string]json.RawMessage, e fs.DirEntry) error {
	if !e.Type().IsRegular() {
		return errors.New("want a regular file")
	}
	text, err := os.ReadFile(filepath.Join(d.Path, e.Name()))
	if err != nil {
		return err
	}
	if _, err := rules.Parse(text); err != nil { // with the place in this file
		return err
	}
	var document struct {
		Zones map[string]json.RawMessage `json:"zones"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return err
	}
	for name, zone := range document.Zones {
		if zones[name] != nil {
			return fmt.Errorf("zone %q is in another file, too: want it once", name)
		}
		zones[name] = zone
	}
	return nil
}

// Notify implements [rules.Source]. There are no notifications: the directory is read every
// second, which costs less than watching it.
func (*Directory) Notify(context.Context, func(), func(error)) {}

// Every implements [rules.Source].
func (*Directory) Every() time.Duration { return checkEvery }

// Identity implements [rules.Source].
func (d *Directory) Identity() string { return "directory " + d.Path }

// Interface guards
var (
	_ rules.Source          = (*Directory)(nil)
	_ caddy.Provisioner     = (*Directory)(nil)
	_ caddyfile.Unmarshaler = (*Directory)(nil)
)
