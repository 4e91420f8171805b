package redis

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// warnedEvents records what is told of a server beside its outages.
type warnedEvents struct {
	noObserver
	mu       sync.Mutex
	warnings []string
}

func (e *warnedEvents) StoreWarning(_, what, advice string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.warnings = append(e.warnings, what+"; "+advice)
}

func (e *warnedEvents) list() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.warnings, "\n")
}

// TestOldServersAreTold has a store meet the server that is installed. One before 6.2 is told as too old. .ci/servers has
// it meet Redis 6.0.
func TestOldServersAreTold(t *testing.T) {
	srv, events := redistest.Start(t), new(warnedEvents)
	info := readInfo(srv.Client().Info(context.Background()).Val())
	old := strings.HasPrefix(info.version, "6.0.") || strings.HasPrefix(info.version, "5.")
	s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
		Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
	}}, events)
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	c := counterOfManyKeys(t)
	waitFor(t, "Redis decides", func() bool { return s.mode(t, c, newKey()) == stores.ModeShared })
	waitFor(t, "it is inspected", func() bool { return !old || events.list() != "" })
	if want := "this Redis is too old: " + info.version + "; " + needed; old != strings.Contains(events.list(), want) {
		t.Errorf("Redis %s: %q", info.version, events.list())
	}
}
