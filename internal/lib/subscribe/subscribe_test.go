package subscribe

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// answering returns the address of a server that answers the greeting as Redis does, and whatever comes then
// with the same reply.
func answering(t *testing.T, reply string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, reply)
		}
	}()
	return l.Addr().String()
}

func serve(c net.Conn, reply string) {
	defer func() { _ = c.Close() }()
	b := make([]byte, 4<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		answer := reply
		if strings.Contains(strings.ToLower(string(b[:n])), "hello") {
			answer = "*0\r\n"
		}
		if _, err = io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// TestRepliesOfOtherServers subscribes at servers whose replies are none to a subscription. It fails, and is
// tried again.
func TestRepliesOfOtherServers(t *testing.T) {
	for _, reply := range []string{
		"*0\r\n", "~0\r\n", "*1\r\n:1\r\n", "*1\r\n$9\r\nsubscribe\r\n", "*2\r\n$7\r\nmessage\r\n:1\r\n",
		"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n$1\r\nb\r\n", "-ERR unknown\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		t.Run(reply, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{
				Addr: answering(t, reply), Protocol: 2, DisableIdentity: true, MaxRetries: -1,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			defer func() { _ = client.Close() }()
			ctx, cancel := context.WithCancel(context.Background())
			var failed []error
			Subscribe(ctx, client, "channel", time.Hour, Callbacks{
				Subscribed: func() { t.Error("subscribed") },
				Message:    func(payload string) { t.Errorf("message %q", payload) },
				Failed: func(err error) {
					if failed = append(failed, err); len(failed) == 2 {
						cancel()
					}
				},
			})
			if len(failed) != 2 {
				t.Errorf("failed with %v, want twice", failed)
			}
		})
	}
}
