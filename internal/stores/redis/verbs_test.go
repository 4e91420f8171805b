package redis

import (
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/observers"
	"github.com/dianalimiter/diana/stores"
)

// What tests do to a store beside its exported methods, and see of it, is here, so that a change
// inside the package changes these few lines and not the tests.

// silent observes nothing.
type silent struct{ noObserver }

// Constants of the store, in the units that tests use.
const (
	rampLasts   = int64(ramp / 1000)          // from the end of an outage until Redis decides all keys, in microseconds
	holdLasts   = int64(shortestPause / 1000) // from the end of an outage until Redis decides the first key, in microseconds
	deniedLasts = saidLasts                   // for how long what Redis said denies further checks, in microseconds
)

// setTime sets what the script takes for the time of the next call, see virtualScript.
func (s *Store) setTime(now int64) { s.conn.seq.Store(uint64(now) - 1) }

// stepClock moves the store's estimate of the clock of a tag's node.
func (s *Store) stepClock(tag stores.Key, by int64) { s.conn.at(tag).clock.kept.Add(by) }

// lastCall returns the number of the last call.
func (s *Store) lastCall() uint64 { return s.conn.seq.Load() }

// connectOnly connects the store, and starts nothing in the background.
func (s *Store) connectOnly() { s.start.Do(s.conn.connect) }

// hook adds a hook to the client, and to what is sent over its connections from now on.
func (s *Store) hook(h goredis.Hook) {
	s.conn.client.AddHook(h)
	for _, n := range s.conn.nodes.all() {
		n.tracker.changes.Add(1)
	}
}

// closeClient closes the connections, whatever still uses them.
func (s *Store) closeClient() { _ = s.conn.client.Close() }

// isClosed says whether the connections are closed.
func (s *Store) isClosed() bool {
	return errors.Is(s.conn.client.Ping(context.Background()).Err(), goredis.ErrClosed)
}

// markDown makes the store regard its first node as down.
func (s *Store) markDown() { s.conn.nodes.first.breaker.trip(errOpen) }

// markUp makes it regard the node as up.
func (s *Store) markUp() {
	s.conn.nodes.first.breaker.close(s.conn.nodes.first.breaker.opened.Load())
}

// failCall reports a call that failed.
func (s *Store) failCall() {
	_ = s.conn.failed(&s.conn.nodes.first.server, errors.New("gone"), time.Now())
}

// isDown says whether the store regards its first node as down.
func (s *Store) isDown() bool { return s.conn.nodes.first.breaker.open.Load() }

// opened returns how many connections to the first node were opened.
func (s *Store) opened() uint64 { return s.conn.nodes.first.tracker.opened.Load() }

// leads returns the address to which the first node's last connection was opened.
func (s *Store) leads() string {
	l := s.conn.nodes.first.tracker
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads
}

// skipRamp ends the time after an outage in which Redis does not decide all keys yet.
func (s *Store) skipRamp() { s.conn.nodes.first.back.Store(0) }

// reconnect makes the store forget what it learned over its connections, as a new one does.
func (s *Store) reconnect() { s.conn.nodes.first.tracker.opened.Add(1) }

// payDebts hands over what is owed and put back, in one round.
func (s *Store) payDebts(ctx context.Context) { s.fallback.Hands.Pay(ctx) }

// owes says whether any key of a counter's table owes a debt.
func owes(c *stores.Counter) bool {
	keys, _ := memory.TableOf(c).Snapshots().Debtors(make([]stores.Key, 0, 1), memory.Cursor{})
	return len(keys) > 0
}

// loseKey has all snapshots put back, at most once a minute, as a reply does that misses a key.
func (s *Store) loseKey() { s.fallback.Hands.LostKey() }

// loseMemory has all snapshots put back at once, as after a node has lost its memory.
func (s *Store) loseMemory() { s.fallback.Hands.LostMemory() }

// renewPermits reports what is held, in one round.
func (s *Store) renewPermits() { s.renewals.renew(context.Background()) }

// losePermits has all reports repeated.
func (s *Store) losePermits() { s.permits.lose() }

// isForgotten follows a heartbeat to a node that does not know the instance any more.
func (s *Store) isForgotten() {
	s.losePermits()
	s.loseMemory()
}

// holdsPermits says whether requests hold permits, or Redis has to be told of their release.
func (s *Store) holdsPermits() bool { return s.permits.any() }

// noObserver ignores all events.
type noObserver = observers.None

// recall has checks denied by what Redis last said again, which newVirtualShared switches off.
func (s *Store) recall() { s.decider.recent.lasts = saidLasts }

// askAlways has Redis asked for every check.
func (s *Store) askAlways() { s.decider.recent.lasts = -1 }

// forgetSaid has Redis asked for the next check.
func (s *Store) forgetSaid() { s.decider.recent.reset(s.o.Clock()) }

// countInstances sends a heartbeat and returns how many instances there are.
func (s *Store) countInstances(ctx context.Context) (int64, error) {
	live, _, err := s.instances.count(ctx, s.conn.nodes.first, beatTag, "")
	return live, err
}

// heartbeat sends a heartbeat.
func (s *Store) heartbeat(ctx context.Context) error {
	return s.instances.beat(ctx, s.conn.nodes.first, beatTag)
}

// setInstances sets how many instances there are.
func (s *Store) setInstances(n int64) { s.instances.live.Store(n) }

// leaseLeft returns what is left of the lease of a zone's key.
func (s *Store) leaseLeft(z *stores.ZoneCheck, now int64) int64 {
	return s.leasing.leases.at(z).left(now)
}

// endAtOnce makes the store close with its last use, once its configuration is replaced.
func (s *Store) endAtOnce() { s.lingers = 0 }

// blockOf returns the name of the block of a zone's key.
func blockOf(prefix string, z *stores.ZoneCheck) string {
	return string(appendBlock(nil, prefix, z))
}

// blockValue returns what Redis has of a block by the first rule.
func blockValue(until, span int64) string {
	return string(appendNumber(appendNumber(appendNumber(nil, until), span), 0))
}
