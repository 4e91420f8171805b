//go:build unix

// Package store adds a store to Diana in one file, as an example for others: the Caddys of one
// machine count together in the files of a directory. docs/internals/new-store.md explains it and how to
// build Caddy with it.
package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/records"
)

func init() { caddy.RegisterModule(new(Directory)) }

// Directory is a store in the files of a directory, which several Caddys of one machine share.
type Directory struct {
	// The name by which zones refer to the store. Default: "directory".
	Name string `json:"name,omitempty"`

	// The path of the directory, which is created. Required.
	Path string `json:"path"`

	// What happens to requests while the directory cannot be used: "allow" admits every
	// request, "deny" responds with status 503. Default: "allow".
	OnFailure string `json:"on_failure,omitempty"`

	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*Directory) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.stores.directory", New: func() caddy.Module { return new(Directory) }}
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler:
//
//	store directory <path> {
//		name       <name>
//		on_failure allow|deny
//	}
func (d *Directory) UnmarshalCaddyfile(t *caddyfile.Dispenser) error {
	t.Next() // the store's name
	if !t.AllArgs(&d.Path) {
		return t.Errf("store directory: want the path of a directory, such as store directory /run/limits")
	}
	options := map[string]*string{"name": &d.Name, "on_failure": &d.OnFailure}
	for t.NextBlock(0) {
		name := t.Val()
		if options[name] == nil {
			return t.Errf("unknown option %q: want name or on_failure", name)
		}
		if !t.AllArgs(options[name]) {
			return t.Errf("%s: want one value", name)
		}
	}
	return nil
}

// Provision implements caddy.Provisioner.
func (d *Directory) Provision(ctx caddy.Context) error {
	d.logger = ctx.Logger()
	return nil
}

// Open implements [stores.Module].
func (d *Directory) Open(keep func(identity string, open func() stores.Shared) stores.Shared) (stores.Shared, error) {
	f := &files{path: d.Path, logger: d.logger, instance: rand.Text(), status: stores.Status{
		Name: cmp.Or(d.Name, "directory"), Place: "directory " + d.Path, Up: true, Since: time.Now(), OnFailure: stores.FailAllow,
	}}
	switch {
	case d.Path == "":
		return nil, errors.New("path: want the path of a directory")
	case d.OnFailure == "deny":
		f.status.OnFailure = stores.FailDeny
	case d.OnFailure != "" && d.OnFailure != "allow":
		return nil, fmt.Errorf("on_failure %q: want allow or deny", d.OnFailure)
	}
	return keep(fmt.Sprintf("%q %q %q", d.Path, d.Name, d.OnFailure), func() stores.Shared { return f }), nil
}

// files is an open store.
type files struct {
	path     string
	instance string // the name of this one among those that share the directory
	logger   *zap.Logger

	mu     sync.Mutex
	own    *os.File // locked while this instance is alive; nil: it has decided nothing yet
	status stores.Status
}

const (
	slots    = 4096            // files, over which the keys are distributed
	slotKeys = 64              // in a file at most: others of a zone are counted together
	waitsFor = 3 * time.Second // a lock at most: another Caddy has stopped with it
	tryEvery = 100 * time.Microsecond

	folderMode, fileMode = 0o700, 0o600
)

// Decide implements [stores.Store].
func (f *files) Decide(ctx context.Context, check *stores.Check) {
	err := f.transact(ctx, func(s *transaction) error {
		var of []*records.Record
		overflowed := make([]bool, len(check.Zones))
		for i := range check.Zones {
			z := &check.Zones[i]
			r, full := s.record(z.Counter, z.Key, false)
			of, overflowed[i] = append(of, r), full
		}
		records.Decide(check, of, s.now, f.instance)
		for i := range check.Zones {
			check.Zones[i].Overflowed = overflowed[i]
		}
		return nil
	}, slotsOf(check.Zones)...)
	if err != nil {
		check.Skip(f.status.OnFailure.Mode(), time.Now().UnixMicro())
	}
}

// Finish implements [stores.Store].
func (f *files) Finish(ctx context.Context, z *stores.ZoneCheck, charge int64) {
	if !z.Permit.Taken && charge == 0 {
		return
	}
	left := z.Permit
	err := f.transact(context.WithoutCancel(ctx), func(s *transaction) error { // the client may have left
		r, _ := s.record(z.Counter, z.Key, z.Overflowed)
		left = records.Finish(z, r, charge, s.now, f.instance)
		return nil
	}, slotOf(z.Key))
	if err == nil {
		z.Permit = left
	}
}

// Reset implements [stores.Shared].
func (f *files) Reset(ctx context.Context, zone string, _ []*stores.Counter, k stores.Key) error {
	return f.transact(ctx, func(s *transaction) error {
		if r := s.slots[slotOf(k)][recordName(zone, k)]; r != nil {
			r.Reset()
		}
		return nil
	}, slotOf(k))
}

// Status implements [stores.Shared].
func (f *files) Status() stores.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Destruct implements caddy.Destructor.
func (f *files) Destruct() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own == nil {
		return nil
	}
	return errors.Join(os.Remove(f.own.Name()), f.own.Close())
}

// slotOf returns the number of the file of a key.
func slotOf(k stores.Key) int { return int(k.Lo % slots) }

// slotsOf returns the numbers of the files of a check's keys, in the order in which they are locked.
func slotsOf(zones []stores.ZoneCheck) (list []int) {
	for i := range zones {
		list = append(list, slotOf(zones[i].Key))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// transaction is what is done with some of the files, while nobody else does anything with them.
type transaction struct {
	now   int64
	slots map[int]map[string]*records.Record
}

// recordName returns the name of a key's record in its file.
func recordName(zone string, k stores.Key) string { return zone + " " + k.String() }

// record returns the record of a key, or that of all keys of its zone that the file has no room for.
// A key that shares none, such as the fingerprint of a request, has one that is not kept: it is not
// counted.
func (t *transaction) record(c *stores.Counter, k stores.Key, overflowed bool) (r *records.Record, full bool) {
	slot, name := t.slots[slotOf(k)], recordName(c.Zone, k)
	if overflowed || slot[name] == nil && len(slot) >= slotKeys {
		if c.OwnSlots {
			return new(records.Record), true
		}
		name, full = c.Zone, true
	}
	if slot[name] == nil {
		slot[name] = new(records.Record)
	}
	return slot[name], full
}

// transact locks and reads files, has them changed, and writes them.
func (f *files) transact(ctx context.Context, change func(*transaction) error, numbers ...int) (err error) {
	defer func() { f.used(err) }()
	if err := f.begin(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, waitsFor)
	defer cancel()
	t := &transaction{slots: make(map[int]map[string]*records.Record)}
	var open []*os.File
	var texts [][]byte
	defer func() {
		for _, file := range open {
			_ = file.Close() // and unlocked
		}
	}()
	for _, n := range numbers {
		file, err := os.OpenFile(filepath.Join(f.path, fmt.Sprintf("%03x.json", n)), os.O_RDWR|os.O_CREATE, fileMode)
		if err != nil {
			return err
		}
		open = append(open, file)
		if err := lock(ctx, file); err != nil {
			return err
		}
		text, err := io.ReadAll(file)
		if err != nil {
			return err
		}
		texts, t.now = append(texts, text), time.Now().UnixMicro()
		t.slots[n] = f.read(text, t.now)
	}
	if err := change(t); err != nil {
		return err
	}
	for i, n := range numbers {
		text, err := json.Marshal(t.slots[n])
		if err != nil {
			return err
		}
		if bytes.Equal(text, texts[i]) {
			continue
		}
		// Who dies between the two leaves a valid value, and something behind it.
		if _, err := open[i].WriteAt(text, 0); err != nil {
			return err
		}
		if err := open[i].Truncate(int64(len(text))); err != nil {
			return err
		}
	}
	return nil
}

// read returns the records of a file that are still used.
func (f *files) read(text []byte, now int64) map[string]*records.Record {
	slot := make(map[string]*records.Record)
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&slot); err != nil {
		return make(map[string]*records.Record) // new, or not ours
	}
	for name, r := range slot {
		if r == nil || r.Drop(now, f.alive) <= now {
			delete(slot, name)
		}
	}
	return slot
}

// lock locks a file until it is closed.
func lock(ctx context.Context, file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is locked: %w", file.Name(), ctx.Err())
		case <-time.After(tryEvery):
		}
	}
}

// begin creates the directory, and locks the file that says that this instance is alive.
func (f *files) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own != nil {
		return nil
	}
	name := f.file(f.instance)
	if err := os.MkdirAll(filepath.Dir(name), folderMode); err != nil {
		return err
	}
	own, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode) //nolint:gosec // in the operator's directory
	if err != nil {
		return err
	}
	if err := lock(context.Background(), own); err != nil {
		return errors.Join(err, own.Close())
	}
	f.own = own
	return nil
}

// file returns the path of the file of an instance.
func (f *files) file(instance string) string { return filepath.Join(f.path, "instances", instance) }

// alive reports whether an instance is alive: what the requests of another one hold is given back.
func (f *files) alive(instance string) bool {
	file, err := os.Open(f.file(instance))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	if errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return true
	}
	_ = os.Remove(file.Name())
	return false
}

// used records whether the directory could be used, and logs when that changes.
func (f *files) used(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.Up == (err == nil) {
		return
	}
	f.status.Up, f.status.Since = err == nil, time.Now()
	if err != nil {
		f.logger.Error("the directory cannot be used: on_failure applies", zap.String("store", f.status.Name), zap.Error(err))
		return
	}
	f.logger.Info("the directory can be used again", zap.String("store", f.status.Name))
}

// Interface guards
var (
	_ caddy.Destructor      = (*files)(nil)
	_ caddy.Provisioner     = (*Directory)(nil)
	_ caddyfile.Unmarshaler = (*Directory)(nil)
	_ stores.Module         = (*Directory)(nil)
	_ stores.Shared         = (*files)(nil)
)
