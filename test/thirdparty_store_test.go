package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/records"
)

func init() { caddy.RegisterModule(new(ledger)) }

// ledger is a store of another module, in the memory of the tests. It has nothing but what a store
// must have, and an observer.
type ledger struct {
	Name string `json:"name,omitempty"`
}

func (*ledger) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.stores.test_ledger", New: func() caddy.Module { return new(ledger) }}
}

func (l *ledger) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	d.Args(&l.Name)
	return nil
}

func (l *ledger) Open(keep func(identity string, open func() stores.Shared) stores.Shared) (stores.Shared, error) {
	if l.Name == "wrong" {
		return nil, errors.New("the ledger is wrong: want another")
	}
	return keep(l.Name, func() stores.Shared {
		lastLedger = &openLedger{name: l.Name, records: make(map[string]*records.Record)}
		return lastLedger
	}), nil
}

// lastLedger is the store that was opened last.
var lastLedger *openLedger

type openLedger struct {
	name string

	mu       sync.Mutex
	records  map[string]*records.Record
	away     bool
	observer stores.Observer
}

func (l *openLedger) of(zone string, k stores.Key) *records.Record {
	id := fmt.Sprint(zone, k)
	if l.records[id] == nil {
		l.records[id] = new(records.Record)
	}
	return l.records[id]
}

func (l *openLedger) Decide(_ context.Context, check *stores.Check) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		check.Skip(stores.ModeDeny, time.Now().UnixMicro())
		return
	}
	var of []*records.Record
	for i := range check.Zones {
		of = append(of, l.of(check.Zones[i].Counter.Zone, check.Zones[i].Key))
	}
	records.Decide(check, of, time.Now().UnixMicro(), l.name)
}

func (l *openLedger) Finish(_ context.Context, z *stores.ZoneCheck, charge int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	z.Permit = records.Finish(z, l.of(z.Counter.Zone, z.Key), charge, time.Now().UnixMicro(), l.name)
}

func (l *openLedger) Status() stores.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return stores.Status{Name: l.name, Up: !l.away, OnFailure: stores.FailDeny, Instances: 1, Readers: 1}
}

func (l *openLedger) Reset(_ context.Context, zone string, _ []*stores.Counter, k stores.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return stores.ErrUnavailable
	}
	l.of(zone, k).Reset()
	return nil
}

func (l *openLedger) Observe(to stores.Observer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observer = to
}

func (l *openLedger) Instances() int64 { return 1 }

// set makes the store unavailable, or available again.
func (l *openLedger) set(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away = away; away {
		l.observer.StoreDown(l.name, "", stores.FailAway, errors.New("the ledger was burnt"))
		return
	}
	l.observer.StoreUp(l.name, "")
}

// TestThirdPartyStore counts in a store of another module: over a reload, in metrics and the admin
// API, and while it is unavailable, which the log tells without speaking of Redis.
func TestThirdPartyStore(t *testing.T) {
	c := setup{app: "store test_ledger books", site: `
		rate_limit {
			zone one {
				rule 3/1h
			}
			zone held {
				match path /held
				rule 10/1h
				in_flight 1
			}
			zone here {
				match path /both
				rule 10/1h
				store local
			}
		}
		respond ok`}
	s := serve(t, c)
	s.want(req{}, 200, 200)
	s.reload(c)
	s.want(req{path: "/held"}, 200, 429)
	s.want(req{path: "/both"}, 429)
	if all := s.zones(); len(all.Stores) != 1 || all.Stores[0].Name != "books" || all.Stores[0].Mode != "shared" || !all.Stores[0].Up {
		t.Errorf("%+v, want the store by its name", all.Stores)
	}
	lastLedger.set(true)
	s.want(req{}, 503)
	if k := s.key("DELETE", "one", "127.0.0.1"); k.Reset != "in this instance" || k.Error != "the store is unavailable" {
		t.Errorf("reset %q: %q, want it told that the store is unavailable", k.Reset, k.Error)
	}
	lastLedger.set(false)
	s.want(req{}, 429)
	for _, line := range []string{
		"the store is unavailable: on_failure applies", "a key was reset in this instance only: reset it again when the store is back",
		"the store is back: limits are shared again",
	} {
		until(t, line, func() bool { return len(s.log.lines(t, line)) == 1 })
	}
}

// TestThirdPartyStoreErrors tells what is wrong with a store, whose module does so itself.
func TestThirdPartyStoreErrors(t *testing.T) {
	for stores, want := range map[string]string{
		`[{"store": "test_ledger", "name": "wrong"}]`: "store wrong: the ledger is wrong: want another",
		`[{"store": "test_ledger", "colour": "red"}]`: `unknown field "colour"`,
		`[{"store": "test_book"}]`:                    `store 1: store "test_book": want redis or test_ledger`,
		`[{"store": 1}]`:                              "store 1: store: json: cannot unmarshal number",
		`["redis://user:secret@localhost"]`:           "store 1: want an object with addresses",
		`[{"store": "test_ledger", "name": "a"}, {"store": "test_ledger", "name": "a"}]`: "store a: the name is given twice",
		`[{"store": "test_ledger", "name": "local"}]`:                                    "store local: the name is given twice",
		`[{"store": "test_ledger", "name": "no name"}]`:                                  `name "no name"`,
	} {
		if err := validate(t, `"stores": `+stores, handlerOf(zoneA)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", stores, err, want)
		}
	}
}
