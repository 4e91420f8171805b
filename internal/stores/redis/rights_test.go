package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// toldErrors collects all that a store tells of what its server refused.
type toldErrors struct {
	noObserver
	mu  sync.Mutex
	all []error
}

func (e *toldErrors) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, err)
}

func (e *toldErrors) StoreDown(_, _ string, _ stores.Failure, err error) { e.add(err) }
func (e *toldErrors) StoreError(_ string, _ stores.Failure, err error)   { e.add(err) }
func (e *toldErrors) Unsubscribed(_ string, err error)                   { e.add(err) }
func (e *toldErrors) Reset(string, string, stores.Key)                   {}

func (e *toldErrors) list() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// TestEachRightRefused takes one right after the other from the user of docs/redis.md. Whatever then fails is told as a
// permission that lacks.
func TestEachRightRefused(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client()
	spec := resetSpecs()["sliding_log"] // whose script has all commands
	for right := range strings.FieldsSeq(clusterRights) {
		if !strings.HasPrefix(right, "+") || right == "+asking" || right == "+cluster|slots" { // of a Cluster
			continue
		}
		t.Run(right, func(t *testing.T) {
			command := strings.TrimPrefix(right, "+")
			user := strings.NewReplacer("|", "").Replace(command)
			args := []any{"setuser", user, "on", ">secret"}
			for r := range strings.FieldsSeq(clusterRights) {
				if r != right {
					args = append(args, r)
				}
			}
			acl(t, srv, args...)
			if err := admin.ScriptFlush(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
			told := new(toldErrors)
			s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
				Addresses: []string{srv.Addr}, Prefix: "diana", Username: user, Password: "secret", DB: 1, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
			}}, told)
			s.Start(1)
			t.Cleanup(func() { _ = s.Destruct() })
			c := kit.NewTestCounter(t, "z", 0, false, nil, spec)
			waitFor(t, "what is refused is told", func() bool {
				k := newKey()
				for range 3 {
					s.mode(t, c, k)
				}
				if command == "ping" { // which a subscription without messages sends
					return len(told.list()) > 0
				}
				if err := s.Reset(context.Background(), "z", []*stores.Counter{c}, testKey(k)); err != nil && stores.Advice(err) != "" {
					told.add(err)
				}
				return len(told.list()) > 0
			})
			for _, err := range told.list() {
				if stores.Advice(err) != missingRight {
					t.Errorf("%v: advice %q, want that of a permission that lacks", err, stores.Advice(err))
				}
			}
		})
	}
}

// TestResetWhileRedisRefuses resets a key where the server refuses it, before and after the store is away because of
// that, and where no server is. The error says what refused, and the advice what to do.
func TestResetWhileRedisRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse       func(srv *redistest.Server)
		is           error
		says, advice string
	}{
		"a right":     {func(srv *redistest.Server) { acl(t, srv, "setuser", "default", "-evalsha") }, stores.ErrUnavailable, "NOPERM", missingRight},
		"the channel": {func(srv *redistest.Server) { acl(t, srv, "setuser", "default", "-publish") }, stores.ErrUnannounced, "NOPERM", missingRight},
		"no server":   {func(srv *redistest.Server) { srv.Kill() }, stores.ErrUnavailable, "connection refused", "nothing listens"},
	} {
		srv := redistest.Start(t)
		s, counter, k := startStore(t, ConnOptions{Addresses: []string{srv.Addr}}), counterOfManyKeys(t), newKey()
		waitFor(t, "Redis decides", func() bool { return s.mode(t, counter, k) == stores.ModeShared })
		reset := func() error { return s.Reset(context.Background(), "z", []*stores.Counter{counter}, testKey(k)) }
		c.refuse(srv)
		first := reset()
		if !errors.Is(c.is, stores.ErrUnannounced) {
			waitFor(t, "the store is away", func() bool { s.mode(t, counter, newKey()); return s.isDown() })
		}
		for _, err := range []error{first, reset()} {
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(stores.Advice(err), c.advice) {
				t.Errorf("%s: %v, advice %q; want %q and %q", name, err, stores.Advice(err), c.says, c.advice)
			}
		}
	}
}
