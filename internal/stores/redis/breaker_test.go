package redis

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestLateHeartbeatDoesNotCloseBreaker handles the reply to a heartbeat after
// requests have opened the breaker: the reply is older than their failures.
func TestLateHeartbeatDoesNotCloseBreaker(t *testing.T) {
	changes := 0
	b := newBreaker(time.Second, func() {}, func(bool, error) { changes++ })
	sent := b.opened.Load()
	for range failuresToOpen {
		b.failure(stores.FailAway, errors.New("refused"), time.Now())
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

// TestTimeoutIsFollowedByHeartbeat has a rare call meet a short stall: the node is asked at once,
// so that its reply, and not the next rare call, says whether it is silent.
func TestTimeoutIsFollowedByHeartbeat(t *testing.T) {
	c := newTestConn(ConnOptions{Lazy: true})
	n := c.nodes.first
	n.breaker.sent(time.Now())
	if err := c.failed(&n.server, timeoutError{errors.New("i/o timeout")}, time.Now()); !errors.As(err, new(reported)) || len(n.doubted) != 1 {
		t.Errorf("%v, %d heartbeats, want one after a timeout", err, len(n.doubted))
	}
	<-n.doubted
	if _ = c.failed(&n.server, syscall.ECONNREFUSED, time.Now()); len(n.doubted) != 0 {
		t.Error("a heartbeat after a failure that is no timeout")
	}
	n.breaker.trip(errors.New("silent"))
	if _ = c.failed(&n.server, timeoutError{errors.New("i/o timeout")}, time.Now()); len(n.doubted) != 0 {
		t.Error("a heartbeat at once to a node that is known to be silent: probes ask it")
	}
}

// TestChangesAreToldInOrder opens and closes the breaker of a node by several goroutines at the
// same time: each change is told once and in order, before the next is made.
func TestChangesAreToldInOrder(t *testing.T) {
	var told []bool
	closing := 0
	ns := newNodes(&ConnOptions{}, func() int64 { return 0 }, func(n *node, up bool, _ error) {
		runtime.Gosched()
		if n.breaker.open.Load() == up {
			t.Errorf("told that it is up: %v, after another change", up)
		}
		told = append(told, up)
	})
	b := ns.first.breaker
	b.closing = func() {
		if closing++; !b.open.Load() {
			t.Error("closed before the ramp began")
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				b.trip(errors.New("away"))
				b.close(b.opened.Load())
			}
		})
	}
	all.Wait()
	b.trip(errors.New("away"))
	b.trip(errors.New("the same change"))
	for i, up := range told {
		if up != (i%2 == 1) {
			t.Fatalf("change %d told up: %v, want each once and in order", i, up)
		}
	}
	if downs := b.opened.Load(); len(told) < 3 || uint64(closing) != downs-1 || uint64(len(told)) != 2*downs-1 {
		t.Errorf("%d changes told; %d times down, %d ramps", len(told), downs, closing)
	}
}

// TestPermitsAreLockedWhenNodeIsBack tells of a node while permits are locked, which look up nodes
// then: what they report is lost, and nothing waits.
func TestPermitsAreLockedWhenNodeIsBack(t *testing.T) {
	s := New(Options{Name: "away", Clock: func() int64 { return storekit.Hour }}, silent{})
	s.permits.mu.Lock()
	defer s.permits.mu.Unlock()
	b := s.conn.nodes.first.breaker
	b.trip(errors.New("away"))
	b.close(b.opened.Load())
	if lost := s.permits.lost.Load(); lost != storekit.Hour || len(s.permits.wake) != 1 {
		t.Errorf("what was reported until %d is lost, %d signals; want until now, and one", lost, len(s.permits.wake))
	}
}

// TestStallIsNoOutage leads breakers through timelines of calls, replies and failures, in
// milliseconds. With a timeout of 25 ms a node may be silent for 100 ms, with one of 300 ms for 300.
func TestStallIsNoOutage(t *testing.T) {
	const (
		sent = iota
		reply
		timeout
		away
		rejected
	)
	type event struct{ at, what, late int } // how late a timeout is noticed
	for _, c := range []struct {
		name    string
		timeout int
		events  []event
		open    bool // after the last event, and before it not
	}{
		{"silent for 100 ms", 25, []event{{0, sent, 0}, {25, timeout, 0}, {25, sent, 0}, {50, timeout, 0}, {50, sent, 0}, {75, timeout, 0}, {75, sent, 0}, {100, timeout, 0}}, true},
		{"silent for 99 ms", 25, []event{{0, sent, 0}, {24, timeout, 0}, {24, sent, 0}, {49, timeout, 0}, {74, sent, 0}, {99, timeout, 0}}, false},
		{"three timeouts of one stall", 25, []event{{0, sent, 0}, {1, sent, 0}, {2, sent, 0}, {25, timeout, 0}, {26, timeout, 0}, {27, timeout, 0}, {40, reply, 0}, {1000, sent, 0}, {1025, timeout, 0}}, false},
		{"a reply begins anew", 25, []event{{0, sent, 0}, {25, timeout, 0}, {25, sent, 0}, {60, reply, 0}, {90, sent, 0}, {115, timeout, 0}, {120, sent, 0}, {145, timeout, 0}}, false},
		{"a reply to a call that was sent later", 25, []event{{0, sent, 0}, {10, sent, 0}, {20, reply, 0}, {125, timeout, 0}, {126, timeout, 0}}, false},
		{"one lost packet", 300, []event{{0, sent, 0}, {300, timeout, 0}, {300, sent, 0}, {310, reply, 0}}, false},
		{"a longer timeout", 300, []event{{0, sent, 0}, {0, sent, 0}, {300, timeout, 0}, {300, timeout, 0}}, true},
		{"rare calls", 25, []event{{0, sent, 0}, {25, timeout, 0}, {5000, sent, 0}, {5025, timeout, 0}}, true},
		{"the process stood still", 25, []event{{0, sent, 0}, {1, sent, 0}, {2, sent, 0}, {400, timeout, 375}, {400, timeout, 374}, {401, timeout, 374}}, false},
		{"the process stood still again and again", 25, []event{
			{0, sent, 0}, {300, timeout, 275}, {300, sent, 0}, {300, sent, 0}, {600, timeout, 275}, {601, timeout, 276}, {601, sent, 0}, {901, timeout, 275},
		}, false},
		{"the process stood still during an outage", 25, []event{
			{0, sent, 0}, {25, timeout, 0}, {25, sent, 0}, {26, sent, 0}, {400, timeout, 350}, {400, timeout, 349}, {400, sent, 0}, {425, timeout, 0}, {425, sent, 0}, {450, timeout, 0},
		}, true},
		{"an outage of a machine on which every timer is late", 25, []event{
			{0, sent, 0},
			{0, sent, 0},
			{75, timeout, 50},
			{75, timeout, 50},
			{75, sent, 0},
			{75, sent, 0},
			{150, timeout, 50},
			{150, timeout, 50},
			{150, sent, 0},
			{225, timeout, 50},
			{225, sent, 0},
			{300, timeout, 50},
		}, true},
		{"nothing is there", 25, []event{{0, sent, 0}, {0, away, 0}, {1, sent, 0}, {1, away, 0}, {2, sent, 0}, {2, away, 0}}, true},
		{"nothing was there twice", 25, []event{{0, sent, 0}, {0, away, 0}, {1, sent, 0}, {1, away, 0}}, false},
		{"rejected", 25, []event{{0, sent, 0}, {0, rejected, 0}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBreaker(time.Duration(c.timeout)*time.Millisecond, func() {}, func(bool, error) {})
			slow := timeoutError{errors.New("i/o timeout")}
			for i, e := range c.events {
				now := b.begun.Add(time.Hour + time.Duration(e.at)*time.Millisecond)
				switch e.what {
				case sent:
					b.sent(now)
				case reply:
					b.answered()
					b.success()
				case timeout:
					late := time.Duration(e.late) * time.Millisecond
					b.failure(stores.FailTimeout, reported{whetherLate(slow, now.Add(-late), now)}, now)
				case away:
					b.failure(stores.FailAway, errors.New("connection refused"), now)
				case rejected:
					b.failure(stores.FailRejected, errors.New("OOM"), now)
				}
				if want := c.open && i == len(c.events)-1; b.open.Load() != want {
					t.Fatalf("at %d ms, after event %d: open %v, want %v", e.at, i, !want, want)
				}
			}
		})
	}
}

// TestLateTimers tells timeouts that were noticed late from others.
func TestLateTimers(t *testing.T) {
	end := time.Now()
	slow := timeoutError{errors.New("i/o timeout")}
	for _, c := range []struct {
		err  error
		end  time.Time
		late time.Duration
		want bool
	}{
		{slow, end, punctual, false},
		{slow, end, punctual + 1, true},
		{slow, time.Time{}, punctual + 1, false},
		{context.DeadlineExceeded, end, time.Second, true},
		{errors.New("connection refused"), end, time.Second, false},
		{errReply, end, time.Second, false},
	} {
		err := whetherLate(c.err, c.end, end.Add(c.late))
		if got := errors.As(err, new(stoodStill)); got != c.want || !errors.Is(err, c.err) || classify(err) != classify(c.err) {
			t.Errorf("%v, %v late: %v", c.err, c.late, err)
		}
	}
}
