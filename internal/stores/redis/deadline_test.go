package redis

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// TestDeadlineEnds waits for a deadline as go-redis' pool does: it looks, and then waits.
func TestDeadlineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadline{at: time.Now().Add(time.Second)}
		defer d.release()
		begin := time.Now()
		select {
		case <-d.Done():
			t.Fatal("it has ended before its time")
		default:
		}
		if d.timer != nil {
			t.Error("a look sets a timer")
		}
		<-d.Done()
		if took := time.Since(begin); took != time.Second || !errors.Is(d.Err(), context.DeadlineExceeded) {
			t.Errorf("it ended after %v, with the error %v", took, d.Err())
		}
		late := &deadline{at: begin}
		defer late.release()
		select {
		case <-late.Done():
		default:
			t.Error("a deadline that has passed does not show at the first look")
		}
	})
}

// TestDeadlineBoundsWaits makes calls that wait for a connection of a pool: for one that another call uses,
// and for one that is being opened. Both end by the deadline, long before the pool's own limits.
func TestDeadlineBoundsWaits(t *testing.T) {
	// go-redis keeps its timers in a sync.Pool, which two collections empty. One of another test would fire by the real
	// clock, and one of this test would end the process that uses it later.
	empty := func() {
		runtime.GC()
		runtime.GC()
	}
	empty()
	defer empty()
	synctest.Test(t, func(t *testing.T) {
		opened := make(chan struct{})
		defer close(opened)
		client := goredis.NewClient(&goredis.Options{
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				<-opened
				return nil, net.ErrClosed
			},
			PoolSize: 1, PoolTimeout: time.Hour, DialTimeout: time.Minute, DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		defer func() { _ = client.Close() }()
		for _, what := range []string{"while a connection is opened", "while another call uses the only one"} {
			d, begin := &deadline{at: time.Now().Add(time.Second)}, time.Now()
			err := client.Ping(d).Err()
			if took := time.Since(begin); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %v", what, err, took)
			}
			d.release()
		}
	})
}
