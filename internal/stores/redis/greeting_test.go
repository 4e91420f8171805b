package redis

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestGreetingEndsWithItsContext cancels the greeting of a server that does not answer: who closes a
// subscription waits for the connection that it opens.
func TestGreetingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _ = far.Close() }()
		go func() {
			for b := make([]byte, 512); ; {
				if _, err := far.Read(b); err != nil {
					return
				}
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		greet := (&ConnOptions{DialTimeout: time.Minute}).greeting()
		if _, err := greet(ctx, near, false); err == nil {
			t.Error("greeted a server that does not answer")
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("took %v, want as long as its context", took)
		}
	})
}
