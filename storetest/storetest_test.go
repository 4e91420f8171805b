package storetest

import (
	"context"
	"encoding/json"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/records"
)

func now() int64 { return time.Now().UnixMicro() }

// TestLocal tests the store in this process.
func TestLocal(t *testing.T) {
	s := &memory.Store{Clock: now}
	Run(t, Config{New: func(testing.TB) stores.Store { return s }})
}

// TestRedis tests the store in Redis.
func TestRedis(t *testing.T) {
	server := redistest.Start(t)
	Run(t, Config{New: func(t testing.TB) stores.Store {
		s := redis.New(redis.Options{Name: "redis", Clock: now, ConnOptions: redis.ConnOptions{
			Addresses: []string{server.Addr}, Prefix: "diana", Timeout: 20 * time.Second, DialTimeout: 20 * time.Second,
		}}, nil)
		t.Cleanup(func() { _ = s.Destruct() })
		s.Start(1)
		for deadline := time.Now().Add(20 * time.Second); !s.Status().Up && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		return s
	}})
}

// fake is a store in a map, which all its instances have.
type fake struct {
	shared *sharedMap
	name   string
	fault  fault
}

// fault is what a faulty store does wrong. The zero value is nothing.
type fault struct {
	decide    func(*stores.Check)     // with a check before it decides
	finish    func(*stores.ZoneCheck) // with a zone before it finishes it
	after     func(*stores.Check)     // with a check after it has decided
	alone     bool                    // it shares nothing
	reset     func(r *records.Record) // in place of a reset
	keeps     bool                    // the permit, though it has ended
	conflicts bool                    // every first write is lost, which is no fault if it is repeated
	torn      bool                    // of a check with two keys, only one is written
	clustered bool                    // it says so, which is no fault if it has a store for each slot
}

type sharedMap struct {
	mu      sync.Mutex
	records map[name]*records.Record
}

type name struct {
	zone string
	key  stores.Key
}

// transact changes the records of zones. If its first write conflicts, it reads and changes them
// once more, as what compares versions does.
func (f *fake) transact(change func(of ...*records.Record), zones ...stores.ZoneCheck) {
	for try := range 2 {
		var of []*records.Record
		read := make(map[name]*records.Record)
		for i := range zones {
			n := name{zones[i].Counter.Zone, zones[i].Key}
			if read[n] == nil {
				read[n] = f.shared.copyOf(n)
			}
			of = append(of, read[n])
		}
		if change(of...); f.fault.torn && len(read) > 1 {
			delete(read, name{zones[0].Counter.Zone, zones[0].Key})
		}
		if try > 0 || !f.fault.conflicts {
			maps.Copy(f.shared.records, read)
			return
		}
	}
}

// copyOf returns a copy of a record, a new one if there is none.
func (m *sharedMap) copyOf(n name) *records.Record {
	r := new(records.Record)
	if m.records[n] != nil {
		text, err := json.Marshal(m.records[n])
		if err == nil {
			err = json.Unmarshal(text, r)
		}
		if err != nil {
			panic(err)
		}
	}
	return r
}

func (f *fake) Decide(_ context.Context, check *stores.Check) {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	if f.fault.decide != nil {
		f.fault.decide(check)
	}
	f.transact(func(of ...*records.Record) { records.Decide(check, of, now(), f.name) }, check.Zones...)
	if f.fault.after != nil {
		f.fault.after(check)
	}
}

func (f *fake) Finish(_ context.Context, z *stores.ZoneCheck, charge int64) {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	if f.fault.finish != nil {
		f.fault.finish(z)
	}
	var left stores.Permit
	f.transact(func(of ...*records.Record) { left = records.Finish(z, of[0], charge, now(), f.name) }, *z)
	if !f.fault.keeps {
		z.Permit = left
	}
}

func (f *fake) Status() stores.Status {
	return stores.Status{Name: "fake", Up: true, Clustered: f.fault.clustered}
}

// At implements [stores.Slotted].
func (f *fake) At(tag stores.Key) stores.Store { return slot{f, tag} }

// slot is a fake that decides the keys of one tag.
type slot struct {
	*fake
	tag stores.Key
}

func (f *fake) Reset(_ context.Context, zone string, _ []*stores.Counter, k stores.Key) error {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	switch r := f.shared.records[name{zone, k}]; {
	case r == nil:
	case f.fault.reset != nil:
		f.fault.reset(r)
	default:
		r.Reset()
	}
	return nil
}

// fakes returns the configuration of a store in a map.
func fakes(f fault) Config {
	m, n := &sharedMap{records: make(map[name]*records.Record)}, 0
	return Config{New: func(testing.TB) stores.Store {
		if n++; f.alone {
			m = &sharedMap{records: make(map[name]*records.Record)}
		}
		return &fake{m, strconv.Itoa(n), f}
	}}
}

// TestFake tests a store in a map, with the arithmetic of package records.
func TestFake(t *testing.T) { Run(t, fakes(fault{})) }

// TestConflicts tests a store whose every first write conflicts with another one, and is repeated.
func TestConflicts(t *testing.T) { Run(t, fakes(fault{conflicts: true})) }

// TestSlots tests a store that decides only the keys of one slot together.
func TestSlots(t *testing.T) { Run(t, fakes(fault{clustered: true, conflicts: true})) }

// TestFaults tests stores that do something wrong: each fails the tests of it.
func TestFaults(t *testing.T) {
	zones := func(wrong func(*stores.ZoneCheck)) func(*stores.Check) {
		return func(check *stores.Check) {
			for i := range check.Zones {
				wrong(&check.Zones[i])
			}
		}
	}
	for what, c := range map[string]struct {
		fault fault
		fails string // tests, separated by commas
	}{
		"charges peeks":   {fault{decide: func(check *stores.Check) { check.Peek = false }}, "peek,across peek,across denied,across shadow"},
		"knows no shadow": {fault{decide: func(check *stores.Check) { check.Shadows = 0 }}, "shadow,joined"},
		"knows no joined zones": {fault{decide: func(check *stores.Check) {
			for i := range check.Zones[len(check.Zones)-check.Shadows:] {
				check.Zones[i].Tag.Hi += uint64(i)
			}
		}}, "joined"},
		"reserves nothing":       {fault{decide: zones(func(z *stores.ZoneCheck) { z.Reserve = false })}, "reserve,across denied,across admitted"},
		"ends all permits":       {fault{finish: func(z *stores.ZoneCheck) { z.KeepsPermit = false }}, "lingers,reserve"},
		"releases twice":         {fault{finish: func(z *stores.ZoneCheck) { z.Permit.Taken = true }}, "in flight,reserve"},
		"keeps ended permits":    {fault{keeps: true}, "in flight,reserve"},
		"charges twice the cost": {fault{decide: zones(func(z *stores.ZoneCheck) { z.Cost *= 2 })}, "limit,all or nothing,algorithms,instances,concurrent"},
		"mixes strangers": {fault{decide: zones(func(z *stores.ZoneCheck) {
			if z.Key.Hi > 100 {
				z.Key = stores.Key{}
			}
		})}, "own slots"},
		"shares nothing":         {fault{alone: true}, "instances,concurrent,in flight,held cost"},
		"says nothing of use":    {fault{after: zones(func(z *stores.ZoneCheck) { clear(z.Results) })}, "limit,notify,blocks"},
		"ends permits by resets": {fault{reset: func(r *records.Record) { *r = records.Record{} }}, "reset"},
		"writes one of two keys": {fault{torn: true}, "several keys,concurrent keys"},
		"keeps blocks":           {fault{reset: func(r *records.Record) { r.Counts = nil }}, "reset"},
		"ignores blocks":         {fault{decide: zones(func(z *stores.ZoneCheck) { z.IgnoreBlock = true })}, "blocks,across block"},
	} {
		for _, name := range strings.Split(c.fails, ",") {
			config, failed := fakes(c.fault), &recorder{TB: t}
			var done sync.WaitGroup
			done.Go(func() { tests[name](failed, &config) })
			if done.Wait(); !failed.Load() {
				t.Errorf("a store that %s passes the test %q", what, name)
			}
		}
	}
}

// recorder records whether a test fails.
type recorder struct {
	testing.TB
	atomic.Bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.Store(true) }
func (r *recorder) Fatal(...any)          { r.Fatalf("") }
func (r *recorder) Fatalf(string, ...any) {
	r.Store(true)
	runtime.Goexit()
}
