package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// TestEachCommandMissing has a server lack one command of a store after the other, as services and configurations
// with rename-command do. Whatever then fails is told with the advice on that, and what is not needed is not missed.
func TestEachCommandMissing(t *testing.T) {
	t.Parallel()
	spec := resetSpecs()["sliding_log"] // whose script has all commands
	for missing, want := range map[string]string{
		"HELLO": "", "INFO": "", "CLIENT": "", "EVAL": "", "SCRIPT": "",
		"AUTH":       "", // HELLO logs in
		"HELLO AUTH": "do not rename those", "SELECT": "do not rename those", "EVALSHA": lacksScript, "EVAL SCRIPT": lacksScript,
		"PUBLISH": "do not rename those", "SUBSCRIBE": "do not rename those", "PING": "do not rename those",
		"GET": lacksCommand, "SET": lacksCommand, "DEL": lacksCommand, "PEXPIRE": lacksCommand, "GETRANGE": lacksCommand, "SETRANGE": lacksCommand, "TIME": lacksCommand,
	} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			args := []string{"--requirepass", "secret"}
			for c := range strings.FieldsSeq(missing) {
				args = append(args, "--rename-command", c, "")
			}
			srv := redistest.Start(t, args...)
			told := new(toldErrors)
			s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
				Addresses: []string{srv.Addr}, Prefix: "diana", Password: "secret", DB: 1, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
			}}, told)
			s.Start(1)
			t.Cleanup(func() { _ = s.Destruct() })
			c := kit.NewTestCounter(t, "z", 0, false, nil, spec)
			use := func() (all bool) {
				k := newKey()
				first, second := s.mode(t, c, k), s.mode(t, c, k)
				all = first == stores.ModeShared && second == stores.ModeShared
				if missing == "PING" { // which a subscription without messages sends
					return all
				}
				err := s.Reset(context.Background(), "z", []*stores.Counter{c}, testKey(k))
				if err != nil && stores.Advice(err) != "" {
					told.add(err)
				}
				return all && err == nil
			}
			if want == "" {
				waitFor(t, "all is done in Redis", use)
			} else {
				waitFor(t, "what is missing is told", func() bool { use(); return len(told.list()) > 0 })
			}
			for _, err := range told.list() {
				if got := stores.Advice(err); want == "" || !strings.Contains(got, want) {
					t.Errorf("%v: advice %q, want %q", err, got, want)
				}
				if missing == "EVAL SCRIPT" && !strings.Contains(err.Error(), "'script'") { // which the documentation names
					t.Errorf("%v, want the refusal of SCRIPT", err)
				}
			}
		})
	}
}

// TestProxyWithoutGreeting has a store meet a proxy that closes the connection at commands that it does not have, as
// twemproxy does at HELLO and SCRIPT.
func TestProxyWithoutGreeting(t *testing.T) {
	g := redistest.StartGateway(t, redistest.Start(t))
	g.Meet(func(command []string, _ int) string {
		if name := strings.ToLower(command[0]); strings.HasPrefix(name, "eval") || name == "get" {
			return ""
		}
		return redistest.Cut
	})
	events := new(downEvents)
	s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
		Addresses: []string{g.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
	}}, events)
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	waitFor(t, "it is told", func() bool { _, downs, _, _ := events.advice(); return downs > 0 })
	if got, _, _, cause := events.advice(); !strings.Contains(got, "twemproxy (give the address of Redis)") {
		t.Errorf("%v: advice %q", cause, got)
	}
}
