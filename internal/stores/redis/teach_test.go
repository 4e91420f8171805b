package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// TestScriptIsSentWhereScriptIsRefused has two instances meet a proxy in front of three servers that loads the script at
// one of them, at none, or forgets it again and again. All keys are shared, exactly.
func TestScriptIsSentWhereScriptIsRefused(t *testing.T) {
	srv := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	for name, reply := range map[string]string{
		"at one": "", "unknown": "-ERR unknown command 'SCRIPT', with args beginning with: 'load'", "in a proxy's words": "-ERR unsupported command",
		"no right": "-NOPERM User default has no permissions to run the 'script|load' command", "taken and not loaded": "$2\r\nOK",
	} {
		for _, forgets := range []bool{false, true} {
			t.Run(fmt.Sprint(name, forgets), func(t *testing.T) {
				g := redistest.StartGateway(t, srv...)
				var all [2]*Store
				var c [2]*stores.Counter
				for i := range all {
					o := ConnOptions{Addresses: []string{g.Addr}}
					all[i], c[i] = startStore(t, o), counterOfManyKeys(t)
				}
				g.Meet(func(command []string, _ int) string {
					if command[0] == "script" {
						return reply
					}
					return ""
				})
				flush := func() {
					for _, s := range srv {
						if err := s.Client().Do(context.Background(), "script", "flush").Err(); err != nil {
							t.Fatal(err)
						}
					}
				}
				flush()
				keys := newKey()
				for i := range uint64(40) {
					for n := range 6 {
						if forgets && n%2 == 0 {
							flush()
						}
						k := testKey(keys + i)
						check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c[n%2], Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}}
						if all[n%2].At(k).Decide(context.Background(), check); check.Mode != stores.ModeShared || check.Zones[0].Results[0].Remaining != int64(9-n) {
							t.Fatalf("check %d of key %d: mode %v, %d left", n, i, check.Mode, check.Zones[0].Results[0].Remaining)
						}
					}
				}
			})
		}
	}
}

// TestNeitherScriptNorEval has a server refuse both: the advice names what is missing.
func TestNeitherScriptNorEval(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client()
	if err := admin.Do(context.Background(), "acl", "setuser", "half", "on", ">secret", "~*", "+@all", "-script", "-eval").Err(); err != nil {
		t.Fatal(err)
	}
	events := new(downEvents)
	s := New(Options{Name: "redis", Clock: func() int64 { return 1 }, ConnOptions: ConnOptions{
		Addresses: []string{srv.Addr}, Prefix: "diana", Username: "half", Password: "secret",
	}}, events)
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	waitFor(t, "the store is away", s.isDown)
	waitFor(t, "it is told", func() bool { _, downs, _, _ := events.advice(); return downs > 0 })
	advice, _, _, cause := events.advice()
	if !strings.Contains(advice, "lacks a permission") || !strings.Contains(cause.Error(), "'script|load'") || mayHaveRun(cause) {
		t.Errorf("%v (may have run: %v): advice %q", cause, mayHaveRun(cause), advice)
	}
}
