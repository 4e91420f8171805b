package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestQueueRunsInOrder adds functions while one blocks: they run in order, as many as fit
// into the queue, and the others are counted in one log line.
func TestQueueRunsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.WarnLevel)
		q := NewQueue(zap.New(core), 3, "full")
		release, ran := make(chan struct{}), []int(nil)
		q.Add(func() { <-release })
		synctest.Wait() // the first function has begun
		for i := range 10 {
			q.Add(func() { ran = append(ran, i) })
		}
		close(release)
		q.Flush(time.Hour)
		if !slices.Equal(ran, []int{0, 1, 2}) {
			t.Errorf("ran %v, want 0, 1 and 2", ran)
		}
		if all := lines.TakeAll(); len(all) != 1 || all[0].Message != "full" || all[0].ContextMap()["dropped"] != uint64(7) {
			t.Errorf("log %v, want one line about 7 dropped functions", all)
		}
		q.Close()
		q.Add(func() { t.Error("a function of a closed queue ran") })
		q.Close()
		q.Flush(time.Hour)
		synctest.Wait()
	})
}

// TestQueueClose closes a queue whose function blocks: nothing waits for it, and what has
// not begun is counted and does not run.
func TestQueueClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.WarnLevel)
		q := NewQueue(zap.New(core), 3, "full")
		release := make(chan struct{})
		q.Add(func() { <-release })
		synctest.Wait()
		q.Add(func() { t.Error("a function that had not begun ran") })
		begun := time.Now()
		q.Flush(time.Second)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("Flush took %v, want 1s", took)
		}
		q.Close()
		if took := time.Since(begun); took != time.Second {
			t.Errorf("Close waited until %v", took)
		}
		if all := lines.TakeAll(); len(all) != 1 || all[0].ContextMap()["dropped"] != uint64(2) { // Flush's is one of them
			t.Errorf("log %v", all)
		}
		close(release)
		synctest.Wait() // the goroutine must have ended when the bubble does
	})
}

// TestQueueSurvivesPanics runs a function that panics, and one after it.
func TestQueueSurvivesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.WarnLevel)
		q := NewQueue(zap.New(core), 3, "full")
		ran := false
		q.Add(func() { panic("oops") })
		q.Add(func() { ran = true })
		q.Flush(time.Hour)
		if !ran || lines.Len() != 1 || lines.All()[0].ContextMap()["error"] != "oops" {
			t.Errorf("ran %v, log %v", ran, lines.All())
		}
		q.Close()
	})
}

// TestQueueIsFull flushes a full queue, and one that has also a value to store: neither counts.
func TestQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.WarnLevel)
		q := NewQueue(zap.New(core), 1, "full")
		release, ran := make(chan struct{}), 0
		q.Add(func() { <-release })
		synctest.Wait()
		q.Add(func() { ran++ })
		m := &memory{turn: make(chan error, 1)}
		m.turn <- nil
		q.Save(m, "a", []byte("1"), func(err error) { t.Error(err) })
		time.AfterFunc(time.Minute, func() { close(release) })
		q.Flush(time.Hour)
		if ran != 1 || len(m.stored) != 1 || lines.Len() > 0 {
			t.Errorf("ran %d, stored %v, log %v", ran, m.stored, lines.All())
		}
		q.Close()
		q.Save(m, "a", []byte("2"), func(err error) { t.Error(err) })
		synctest.Wait()
		if len(m.stored) != 1 {
			t.Errorf("a closed queue stored %v", m.stored)
		}
	})
}

// memory is a storage that waits for a value from turn before it stores one.
type memory struct {
	certmagic.Storage
	turn   chan error
	mu     sync.Mutex
	stored []string
}

func (m *memory) Store(ctx context.Context, key string, value []byte) error {
	select {
	case err := <-m.turn:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stored = append(m.stored, fmt.Sprintf("%s=%s", key, value))
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestQueueStoresTheLastValue saves values while the storage blocks: of each key the last
// is stored, in the order in which the keys were first saved.
func TestQueueStoresTheLastValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{turn: make(chan error)}
		s := NewQueue(zap.NewNop(), 0, "")
		var failed []error
		save := func(key, value string) {
			s.Save(m, key, []byte(value), func(err error) { failed = append(failed, err) })
		}
		s.Flush(time.Hour) // nothing waits
		save("a", "1")
		synctest.Wait()
		save("b", "1")
		save("a", "2")
		save("b", "2")
		save("a", "3")
		oops := errors.New("oops")
		go func() { m.turn <- nil; m.turn <- oops; m.turn <- nil }()
		s.Flush(time.Hour)
		if want := []string{"a=1", "b=2", "a=3"}; !slices.Equal(m.stored, want) {
			t.Errorf("stored %v, want %v", m.stored, want)
		}
		if len(failed) != 1 || !errors.Is(failed[0], oops) {
			t.Errorf("failed %v", failed)
		}
		begun := time.Now()
		save("c", "1")
		s.Flush(time.Second)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("Flush took %v, want 1s", took)
		}
		s.Flush(time.Hour)
		if took := time.Since(begun); took != SaveTimeout || len(failed) != 2 {
			t.Errorf("the storage was given up after %v, failed %v", took, failed)
		}
	})
}
