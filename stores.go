package diana

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/external"
	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/observers"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/stores"
)

const localStore = metrics.LocalStore

// openStores are the shared stores in use, by identity. A store connects when its
// configuration runs, because a configuration that is only validated must not connect.
var openStores pool.Pool[*openStore] = "stores"

// openStore is a store that is kept over reloads.
type openStore struct{ stores.Shared }

// Destruct implements caddy.Destructor.
func (s *openStore) Destruct() error {
	if d, ok := s.Shared.(caddy.Destructor); ok {
		return d.Destruct()
	}
	return nil
}

// counts is the local store, one for all configurations: permits outlive a reload.
var counts = process.Var[memory.Store]{New: func() *memory.Store { return &memory.Store{Clock: clock.Now} }}

// processKey is the key of a value in a pool that a process has by an identity.
type processKey struct {
	process *process.Process
	id      string
}

// localHasher hashes keys that are not shared with other instances.
var localHasher = key.NewHasher(strconv.FormatInt(time.Now().UnixNano(), 36))

// storeList are the stores of a configuration.
type storeList struct {
	process *process.Process
	events  *storeEvents
	list    []*limiter.Store          // the shared ones
	byName  map[string]*limiter.Store // all of them, and the local one
}

// add adds a store, which may be one that the running configuration has, too.
func (l *storeList) add(ctx caddy.Context, s *storeJSON, refs *pool.References) error {
	if l.process.Clock != nil {
		return l.addOffline(s)
	}
	m, err := s.load(ctx)
	if err != nil {
		return err
	}
	shared, err := m.Open(func(identity string, open func() stores.Shared) stores.Shared {
		id := processKey{l.process, rules.Fingerprint(s.Module + " " + identity)}
		return openStores.Acquire(refs, id, func() *openStore {
			opened := open()
			observe(opened, l.events) // a request may come before the configuration leads
			return &openStore{opened}
		}).Shared
	})
	if err != nil {
		return err
	}
	name, secret := cmp.Or(shared.Status().Name, s.called()), ""
	if err := config.CheckName(name); err != nil {
		return err
	}
	if l.byName[name] != nil {
		return errors.New("the name is given twice: want a name for each store")
	}
	if m, ok := m.(stores.Secret); ok {
		secret = m.Secret()
	}
	store := limiter.NewShared(shared, name, key.NewHasher(secret))
	store.Module = s.Module
	l.list, l.byName[name] = append(l.list, store), store
	return nil
}

// addOffline adds a store whose zones are counted by this process.
func (l *storeList) addOffline(s *storeJSON) error {
	if _, err := s.decode(); err != nil {
		return err
	}
	name := s.called()
	if resolved, err := external.Resolve("name", name); err == nil { // else the environment is another
		name = resolved
	}
	l.byName[name] = l.byName[localStore]
	return nil
}

// get returns the store of a zone by its name; empty: the default store.
func (l *storeList) get(name string) (*limiter.Store, error) {
	if name == "" {
		name = localStore
		if len(l.list) > 0 {
			name = l.list[0].Name
		}
	}
	if store := l.byName[name]; store != nil {
		return store, nil
	}
	return nil, errNoStore(name)
}

func errNoStore(name string) error {
	return fmt.Errorf("store %q: want local, or the name of a store in the global option %s", name, names.Usual())
}

// find returns a shared store by its name; nil: there is none.
func (l *storeList) find(name string) *limiter.Store {
	if s := l.byName[name]; s != nil && s.Shared != nil {
		return s
	}
	return nil
}

// shared returns the stores.
func (l *storeList) shared() []stores.Shared {
	list := make([]stores.Shared, len(l.list))
	for i, s := range l.list {
		list[i] = s.Shared
	}
	return list
}

// start connects the stores. Until they count the live instances, the number is the one last seen by
// this process, or else the one last stored.
func (l *storeList) start() {
	for _, s := range l.list {
		c, ok := s.Shared.(stores.Starter)
		if !ok {
			continue
		}
		live := 0
		if s.Shared.Status().Instances == 0 {
			live = l.events.lastLive(s.Place)
		}
		c.Start(live)
	}
}

// observe makes a store report its events. nil: to nobody.
func observe(s stores.Shared, to stores.Observer) {
	if s, ok := s.(stores.Observed); ok {
		s.Observe(to)
	}
}

// lead makes the stores report their events to this configuration.
func (l *storeList) lead() {
	for _, s := range l.list {
		observe(s.Shared, l.events)
	}
}

// mute stops events of the stores that the next configuration drops, except Uncharged: another store may have
// their names. Requests under way still use them. A new store begins in the mode that was last reported under its
// name, or else in that of the store at its place, so that each change is reported once. It also takes over what
// the store at its place knows, whatever its name.
func (l *storeList) mute(next *storeList) {
	for _, s := range l.list {
		if !next.has(s) {
			observe(s.Shared, observers.Ended{Observer: l.events})
		}
	}
	for _, s := range next.list {
		after, ok := s.Shared.(stores.Successor)
		if !ok || l.has(s) {
			continue
		}
		before, same := l.find(s.Name), l.at(s)
		if before == nil { // it has another name
			before = same
		}
		if before != nil {
			after.Begin(before.Shared)
			after.BeginAs(cmp.Or(same, before).Shared)
		}
	}
}

// passOn passes what these stores owe on to the stores of the running configuration at the same place.
func (l *storeList) passOn(next *storeList) {
	for _, s := range l.list {
		c, ok := s.Shared.(stores.Successor)
		if after := next.at(s); ok && after != nil && after.Shared != s.Shared {
			c.PassOn(after.Shared)
		}
	}
}

// has reports whether a store is one of the list, too.
func (l *storeList) has(s *limiter.Store) bool {
	return slices.ContainsFunc(l.list, func(other *limiter.Store) bool { return other.Shared == s.Shared })
}

// at returns the store at the place of another, nil if there is none: that of the same name, if
// there are several.
func (l *storeList) at(other *limiter.Store) *limiter.Store {
	if same := l.find(other.Name); same != nil && same.Place == other.Place {
		return same
	}
	i := slices.IndexFunc(l.list, func(s *limiter.Store) bool { return s.Place == other.Place })
	if i < 0 {
		return nil
	}
	return l.list[i]
}
