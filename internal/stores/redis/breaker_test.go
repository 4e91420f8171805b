package redis

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// TestLateHeartbeatDoesNotCloseBreaker handles the reply to a heartbeat after
// requests have opened the breaker: the reply is older than their failures.
func TestLateHeartbeatDoesNotCloseBreaker(t *testing.T) {
	changes := 0
	b := newBreaker(func() {}, func(bool, error) { changes++ })
	sent := b.opened.Load()
	for range failuresToOpen {
		b.failure(FailAway, errors.New("refused"))
	}
	b.close(sent)
	if !b.open.Load() || changes != 1 {
		t.Errorf("open %v after %d changes, want it open after one", b.open.Load(), changes)
	}
	b.close(b.opened.Load())
	if b.open.Load() || changes != 2 {
		t.Errorf("open %v after %d changes, want it closed after two", b.open.Load(), changes)
	}
}

// TestBreakerNotifiesWithoutItsLock changes the state while the observer of an earlier
// change blocks: nobody waits for it, and it is told of each change once and in order.
func TestBreakerNotifiesWithoutItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, told, closing := make(chan struct{}), []bool(nil), 0
		var b *breaker
		b = newBreaker(func() {}, func(up bool, _ error) {
			if !b.mu.TryLock() {
				t.Error("the breaker's lock is held while it notifies")
				return
			}
			b.mu.Unlock()
			<-release
			told = append(told, up)
		})
		b.closing = func() {
			if closing++; !b.open.Load() {
				t.Error("closed before the ramp began")
			}
		}
		go b.trip(errors.New("one"))
		synctest.Wait() // its observer blocks
		b.trip(errors.New("the same change"))
		b.close(b.opened.Load())
		b.trip(errors.New("two"))
		b.close(b.opened.Load())
		if up, _ := b.state(); !up || len(told) > 0 {
			t.Errorf("up %v, told %v", up, told)
		}
		close(release)
		synctest.Wait()
		if want := []bool{false, true, false, true}; !slices.Equal(told, want) || closing != 2 {
			t.Errorf("told %v, want %v; %d ramps", told, want, closing)
		}
		b.trip(errors.New("three"))
		if len(told) != 5 {
			t.Errorf("told %v after another change", told)
		}
	})
}
