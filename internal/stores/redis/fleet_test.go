package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// telling is an instance that tells others something.
type telling struct{ noObserver }

func (telling) Figures() []byte { return []byte("{}") }

// writtenAt is what an instance wrote at a time, with a text of some size.
func writtenAt(at time.Time, size int) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(at.UnixMilli()))) + strings.Repeat("x", size)
}

// startTelling returns a store that tells others something, behind a gateway.
func startTelling(t *testing.T, timeout time.Duration) (*Store, *redistest.Gateway, *goredis.Client) {
	t.Helper()
	srv := redistest.Start(t)
	g := redistest.StartGateway(t, srv)
	s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
		Addresses: []string{g.Addr}, Prefix: "diana", Timeout: timeout, DialTimeout: 5 * time.Second,
	}}, telling{})
	s.Start(0)
	t.Cleanup(func() { _ = s.Destruct() })
	waitFor(t, "Redis answers", s.conn.anyUsable)
	return s, g, srv.Client()
}

// TestFiguresAreBounded has more instances come and go than figures are kept of, while somebody says that he looks and
// reads nothing: a further one writes none. Once somebody reads, it does.
func TestFiguresAreBounded(t *testing.T) {
	t.Parallel()
	s, _, client := startTelling(t, 5*time.Second)
	ctx := context.Background()
	var ended []any
	for i := range mostFigures {
		ended = append(ended, fmt.Sprintf("%x", i+1), writtenAt(time.Now().Add(-time.Minute), 100))
	}
	if err := client.HSet(ctx, "diana:fleet", ended...).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // one that is not there yet, and is not then either
		if err := s.figures.write(ctx); err != nil {
			t.Fatal(err)
		}
		if n := client.HLen(ctx, "diana:fleet").Val(); n != mostFigures {
			t.Errorf("figures of %d instances, want %d", n, mostFigures)
		}
	}
	if all, err := s.Fleet(ctx); len(all) > 0 || err != nil {
		t.Errorf("figures of %d instances, %v, want none, for all have ended", len(all), err)
	}
	for range 2 {
		if err := s.figures.write(ctx); err != nil {
			t.Fatal(err)
		}
		if all, err := s.Fleet(ctx); len(all) != 1 || err != nil {
			t.Errorf("figures of %d instances, %v, want those of the one", len(all), err)
		}
	}
}

// TestFiguresAreReadInParts reads the figures of a large fleet: no command asks Redis for more than some of them, the
// time of a call is that of one part, and a read that fails has removed what had ended in the parts before.
func TestFiguresAreReadInParts(t *testing.T) {
	t.Parallel()
	const instances = 500
	s, g, client := startTelling(t, time.Second)
	ctx := context.Background()
	for i := range instances {
		at := time.Now()
		if i%2 == 0 {
			at = at.Add(-time.Minute)
		}
		if err := client.HSet(ctx, "diana:fleet", fmt.Sprintf("%x", i+1), writtenAt(at, 1000)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var scans atomic.Int64
	g.Meet(func(command []string, _ int) string {
		switch strings.ToLower(command[0]) {
		case "hgetall":
			t.Error("all figures are asked for at once")
		case "hscan":
			if scans.Add(1) == 3 {
				return redistest.Cut
			}
			time.Sleep(80 * time.Millisecond)
		}
		return ""
	})
	if _, err := s.Fleet(ctx); err == nil {
		t.Error("a read that was cut short did not fail")
	}
	if n := client.HLen(ctx, "diana:fleet").Val(); n >= instances || n < instances/2 {
		t.Errorf("%d figures after a read that was cut short, want fewer than %d", n, instances)
	}
	if all, err := s.Fleet(ctx); len(all) != instances/2 || err != nil {
		t.Errorf("figures of %d instances, %v, want %d", len(all), err, instances/2)
	}
	if n := client.HLen(ctx, "diana:fleet").Val(); n != instances/2 {
		t.Errorf("%d figures are kept, want those of the %d that still write", n, instances/2)
	}
}

// TestFiguresWithoutRights reads figures as a user who may not: the error says what to do.
func TestFiguresWithoutRights(t *testing.T) {
	t.Parallel()
	for right, call := range map[string]func(*Store) error{
		"hscan":   func(s *Store) error { _, err := s.Fleet(context.Background()); return err },
		"publish": func(s *Store) error { return s.Look(context.Background()) },
	} {
		s, _, client := startTelling(t, 5*time.Second)
		if err := call(s); err != nil {
			t.Errorf("with %s: %v", right, err)
		}
		if err := client.Do(context.Background(), "acl", "setuser", "default", "-"+right).Err(); err != nil {
			t.Fatal(err)
		}
		if err := call(s); stores.Advice(err) != missingRight {
			t.Errorf("without %s: %v, advice %q", right, err, stores.Advice(err))
		}
	}
}
