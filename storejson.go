package diana

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/stores"
)

// defaultStore is the module of a store that names none.
const defaultStore = "redis"

// storeJSON is a store in a configuration, before its module is loaded.
type storeJSON struct {
	Module  string          // its name in [stores.Namespace]
	Name    string          // by which zones refer to it, with its placeholders; empty: that of the module
	Lease   caddy.Duration  // 0: it has no leases
	options json.RawMessage // of the module
}

// parseStoreJSON parses an element of stores.
func parseStoreJSON(raw json.RawMessage) (s storeJSON, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return s, errors.New("want an object with addresses") // raw may have a password
	}
	var module string
	for name, to := range map[string]any{"store": &module, "name": &s.Name, "lease": &s.Lease} {
		if v := fields[name]; v != nil {
			if err := json.Unmarshal(v, to); err != nil {
				return s, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	s.Module = cmp.Or(module, defaultStore)
	delete(fields, "store")
	s.options, err = json.Marshal(fields)
	return s, err
}

// called returns the name by which zones refer to the store.
func (s *storeJSON) called() string { return cmp.Or(s.Name, s.Module) }

// id returns the ID of the store's module.
func (s *storeJSON) id() (string, error) {
	id := stores.Namespace + "." + s.Module
	if _, err := caddy.GetModule(id); err != nil {
		return "", fmt.Errorf("store %q: want %s", s.Module, option.Or(option.Modules(stores.Namespace)))
	}
	return id, nil
}

// decode returns the module, which is not provisioned.
func (s *storeJSON) decode() (caddy.Module, error) {
	id, err := s.id()
	if err != nil {
		return nil, err
	}
	info, err := caddy.GetModule(id)
	if err != nil {
		return nil, err
	}
	m := info.New()
	return m, option.Unmarshal(s.options, m)
}

// load returns the module.
func (s *storeJSON) load(ctx caddy.Context) (stores.Module, error) {
	id, err := s.id()
	if err == nil {
		_, err = s.decode() // which says more of what is unknown
	}
	if err != nil {
		return nil, err
	}
	v, err := ctx.LoadModuleByID(id, s.options)
	if err != nil {
		return nil, err
	}
	m, ok := v.(stores.Module)
	if !ok {
		return nil, errors.New(id + ": the module is no store")
	}
	return m, nil
}

// check checks the options of a store, which need files and variables of the machine.
func (s *storeJSON) check(ctx caddy.Context) error {
	m, err := s.load(ctx)
	if err == nil {
		_, err = m.Open(func(string, func() stores.Shared) stores.Shared { return nil })
	}
	return err
}

// public returns what may be shown of the options, or a hash of it.
func (s *storeJSON) public() any {
	var shown any
	if m, err := s.decode(); err == nil {
		if m, ok := m.(stores.Public); ok {
			shown = m.Public()
		}
	}
	if s.Module == defaultStore {
		return shown
	}
	return map[string]any{"store": s.Module, "name": s.called(), "options": shown}
}
