package redis

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

var errReadOnly = errors.New("READONLY You can't write against a read only replica.") //nolint:revive,staticcheck // as Redis says it

// TestFailoverRetiresTheOld has Sentinels name another master while connections to the old one are open and
// being opened, and calls to it under way. Only what leads to the new one is used again, and stays.
func TestFailoverRetiresTheOld(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, held := newTestConn(ConnOptions{Addresses: []string{l.Addr().String()}, Timeout: time.Second, Lazy: true}), make(chan chan struct{}, 1)
	defer func() { _ = c.client.Close() }()
	tracker := c.nodes.first.tracker
	hook := masterHook{most: 9, opener: opener{
		tracker: func() *connTracker { return tracker },
		greet:   func(context.Context, connection, bool) (Login, error) { return Login{}, nil },
	}}
	opens := naming(func(context.Context, string, string) (net.Conn, error) {
		if len(held) > 0 {
			wait := <-held
			wait <- struct{}{}
			<-wait
		}
		return net.Dial("tcp", l.Addr().String())
	})
	open := func(master string) connection {
		dial := hook.DialHook(func(ctx context.Context, network, _ string) (net.Conn, error) { return opens(ctx, network, master) })
		k, err := dial(context.Background(), "tcp", "FailoverClient") // as go-redis calls it
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	usable := func(k connection) bool {
		tracked, ok := k.(*trackedConn)
		return ok && !tracked.retired.Load()
	}

	old, sent := []connection{open("old"), open("old")}, time.Now()
	wait := make(chan struct{})
	held <- wait
	late := make(chan connection)
	go func() { late <- open("old") }()
	<-wait // it is being opened
	first := open("new")
	close(wait)
	if usable(old[0]) || usable(old[1]) {
		t.Error("a connection to the old master is used again")
	}
	if k := <-late; usable(k) {
		t.Error("a connection to the old master that was being opened is used")
	} else if _, err := k.Write([]byte("x")); !errors.Is(err, errReplaced) {
		t.Errorf("that connection fails with %v", err)
	}
	second := open("new")
	for range 2 * failuresToOpen { // calls that the old master had not answered
		_ = c.failed(&c.nodes.first.server, errReadOnly, sent)
	}
	if !usable(first) || !usable(second) {
		t.Error("connections to the new master are replaced after calls to the old one failed")
	}
	_ = c.failed(&c.nodes.first.server, errReadOnly, time.Now())
	if usable(first) || usable(second) {
		t.Error("connections to the new master are used again after a call to it failed")
	}
}
