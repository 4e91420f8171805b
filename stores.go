package diana

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/clock"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/option"
	"github.com/dianalimiter/diana/internal/pool"
	"github.com/dianalimiter/diana/internal/process"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/stores/redisconfig"
	"github.com/dianalimiter/diana/stores"
)

const localStore = metrics.LocalStore

// sharedStores are the shared stores in use, by identity. A store connects when its
// configuration runs, because a configuration that is only validated must not connect.
var sharedStores pool.Pool[*redis.Store] = "stores"

// held is what requests hold of the shared stores, by [redis.Options.Place]: a store that
// another replaces still has requests, which count without Redis.
var held pool.Pool[*memory.Permits] = "permits"

// seen are the live instances that the shared stores last saw, by [redis.Options.Place]: a store that
// has another name, or other options, is at the same place.
var seen pool.Pool[*redis.Seen] = "instances"

// counts is the local store, one for all configurations: permits outlive a reload.
var counts = process.Var[memory.Store]{New: func() *memory.Store { return &memory.Store{Clock: clock.Now} }}

// processKey is the key of a value in a pool that a process has by an identity.
type processKey struct {
	process *process.Process
	id      string
}

// localHasher hashes keys that are not shared with other instances.
var localHasher = key.NewHasher(strconv.FormatInt(time.Now().UnixNano(), 36))

// redisStores are the stores of a configuration.
type redisStores struct {
	process *process.Process
	events  *storeEvents
	list    []*redis.Store
	byName  map[string]*limiter.Store // all of them, and the local one
}

// add adds a store, taken from the pool, and returns its name.
func (s *redisStores) add(c *redisconfig.Store, refs *pool.References) (name string, err error) {
	if s.process.Clock != nil {
		return s.addOffline(c), nil
	}
	o, h, err := c.Options()
	if err != nil {
		return "", err
	}
	if s.byName[o.Name] != nil {
		return "", errors.New("the name is given twice: want a name for each store")
	}
	id, err := c.Identity()
	if err != nil {
		return "", err
	}
	o.Clock, o.Process, o.Dial = clock.Now, s.process.ID, s.process.Dial
	o.Held = held.Take(refs, processKey{s.process, o.Place()}, func() *memory.Permits { return new(memory.Permits) })
	o.Seen = seen.Take(refs, processKey{s.process, o.Place()}, func() *redis.Seen { return new(redis.Seen) })
	goredis.SetLogger(redisLog{})
	shared := sharedStores.Take(refs, processKey{s.process, id}, func() *redis.Store { return redis.New(o, s.events) })
	s.list = append(s.list, shared)
	store := &limiter.Store{Store: shared, Name: o.Name, Place: o.Place(), Hasher: h, Lease: shared.Status().Lease, Shared: shared}
	if shared.Status().Clustered {
		store.At = shared.At
	}
	s.byName[o.Name] = store
	return o.Name, nil
}

// addOffline adds a store whose zones are counted by this process.
func (s *redisStores) addOffline(c *redisconfig.Store) string {
	name := cmp.Or(c.Name, redisconfig.DefaultName)
	if resolved, err := option.Resolve("name", name); err == nil { // else the environment is another
		name = resolved
	}
	s.byName[name] = s.byName[localStore]
	return name
}

// get returns the store of a zone by its name; empty: the default store.
func (s *redisStores) get(name string) (*limiter.Store, error) {
	if name == "" {
		name = localStore
		if len(s.list) > 0 {
			name = s.list[0].Name()
		}
	}
	if store := s.byName[name]; store != nil {
		return store, nil
	}
	return nil, errNoStore(name)
}

func errNoStore(name string) error {
	return fmt.Errorf("store %q: want local, or the name of a store in the global option rate_limit", name)
}

// find returns a shared store by its name.
func (s *redisStores) find(name string) (*redis.Store, *limiter.Store) {
	for _, c := range s.list {
		if c.Name() == name {
			return c, s.byName[name]
		}
	}
	return nil, nil
}

// shared returns the stores.
func (s *redisStores) shared() []stores.Shared {
	list := make([]stores.Shared, len(s.list))
	for i, c := range s.list {
		list[i] = c
	}
	return list
}

// start connects the stores. Until they count the live instances, the number is the one last seen by
// this process, or else the one last stored.
func (s *redisStores) start() {
	for _, c := range s.list {
		live := 0
		if c.Instances() == 0 {
			live = s.events.lastLive(c.Place())
		}
		c.Start(live)
	}
}

// lead makes the stores report their events to this configuration.
func (s *redisStores) lead() {
	for _, c := range s.list {
		c.Observe(s.events)
	}
}

// mute ends the reports of the stores that the configuration after this one does not use:
// another store may have their names. They are still used by the requests under way. A new
// store begins in the mode that was reported under its name, so that each change of it is
// reported once, and with what one at its place knows, whatever its name.
func (s *redisStores) mute(next *redisStores) {
	for _, c := range s.list {
		if !slices.Contains(next.list, c) {
			c.Observe(nil)
		}
	}
	for _, after := range next.list {
		if slices.Contains(s.list, after) {
			continue
		}
		before, _ := s.find(after.Name())
		if before != nil {
			after.Begin(before)
		}
		if same := s.at(after); same != nil {
			before = same
		}
		if before != nil {
			after.BeginAs(before)
		}
	}
}

// passOn transfers what these stores owe to the running configuration's stores in the same Redis.
func (s *redisStores) passOn(next *redisStores) {
	for _, c := range s.list {
		if after := next.at(c); after != nil && after != c {
			c.PassOn(after)
		}
	}
}

// at returns the store at the place of another, nil if there is none: that of the same name, if
// there are several.
func (s *redisStores) at(other *redis.Store) *redis.Store {
	if slices.Contains(s.list, other) {
		return other
	}
	if same, _ := s.find(other.Name()); same != nil && same.Place() == other.Place() {
		return same
	}
	i := slices.IndexFunc(s.list, func(c *redis.Store) bool { return c.Place() == other.Place() })
	if i < 0 {
		return nil
	}
	return s.list[i]
}

// redisLog passes the log lines of the Redis client to Caddy's log. By default the client
// writes them to standard error.
type redisLog struct{}

// Printf implements go-redis' logger.
func (redisLog) Printf(_ context.Context, format string, v ...any) {
	caddy.Log().Named("rate_limit.redis").Debug(fmt.Sprintf(format, v...))
}
