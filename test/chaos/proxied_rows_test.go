package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// scriptRefused has a proxy refuse SCRIPT, so that each server has to be told the script with a call.
func scriptRefused(t *testing.T, out *result) {
	srv := redistest.Start(t)
	g := redistest.StartGateway(t, srv)
	g.Meet(func(command []string, _ int) string {
		if strings.EqualFold(command[0], "script") {
			return "-ERR unsupported command"
		}
		return ""
	})
	s, client, stop := begin(t, fmt.Sprintf("%s {\n\t\t\ttimeout %v\n\t\t}", g.Addr, patient)), srv.Client(), make(chan struct{})
	before := s.errors()
	r := s.play(play{
		calm: 500 * time.Millisecond, fault: 4 * time.Second, after: 2500 * time.Millisecond,
		begin: func() {
			go flushScripts(client, stop)
		},
		end: func() { close(stop) },
	})
	s.checkAll(r, out, promise{wait: patient + 10*time.Millisecond})
	s.checkNoneAlone(r, before, out)
}

// flushScripts has a server forget all scripts every 100 ms.
func flushScripts(of *redis.Client, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
			of.ScriptFlush(context.Background())
		}
	}
}

// checkNoneAlone checks that Redis has decided everything, but for what a loaded machine has made late.
func (s *scene) checkNoneAlone(r *record, before map[string]float64, out *result) {
	s.t.Helper()
	after, local := s.errors(), 0
	for _, shot := range r.shots {
		if decidedLocally(shot) {
			local++
		}
	}
	late := after["timeout"] - before["timeout"]
	out.report("%d of %d decided locally, %.0f calls late", local, len(r.shots), late)
	for _, k := range []string{"away", "rejected", "wrong"} {
		if after[k] > before[k] {
			s.t.Errorf("%v errors %s, want none", after[k]-before[k], k)
		}
	}
	if late == 0 && local > 0 {
		s.t.Errorf("%d decided locally though no call was late", local)
	}
}

// backendDown has one of three servers behind a proxy be down, that of a busy key, while heartbeats succeed. Such a proxy is no place
// for a store, so that no bound is promised; what is promised is that it is told.
func backendDown(t *testing.T, out *result) {
	srv := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	g := redistest.StartGateway(t, srv...)
	s := begin(t, g.Addr)
	harness.Shoot(harness.Client(1), s.caddys[0].URL+"/hot")
	down := holderOf(t, srv, "hot")
	told := make(chan time.Duration, 1)
	r := s.play(play{
		calm: 500 * time.Millisecond, fault: 8 * time.Second, after: 6 * time.Second,
		begin: func() {
			begun := time.Now()
			g.Meet(func(command []string, server int) string {
				if server == down && !strings.Contains(strings.Join(command, " "), harness.Maintenance) {
					return "-ERR Connection refused"
				}
				return ""
			})
			go func() {
				for time.Since(begun) < 8*time.Second && s.anyUp() {
					time.Sleep(50 * time.Millisecond)
				}
				told <- time.Since(begun)
			}()
		},
		end: func() { g.Meet(nil) },
	})
	harness.OnlyStatuses(t, r.shots, http.StatusOK, http.StatusTooManyRequests)
	harness.OnlyStatuses(t, r.control, http.StatusOK)
	out.report("%d requests, no 5xx", len(r.shots))
	checkWaits(t, r, out, timeout+10*time.Millisecond)
	took := <-told
	out.report("told by all after %.1f s", took.Seconds())
	if took > 5*time.Second {
		out.late(t, "told after %v, want 5 s", took)
	}
	checkRecovery(t, r, out, r.ended, 5*time.Second)
	s.checkLogs(r, out)
}

// holderOf returns which server has a key of a zone.
func holderOf(t *testing.T, all []*redistest.Server, zone string) int {
	t.Helper()
	for i, srv := range all {
		if len(srv.Client().Keys(context.Background(), "*:"+zone+":*").Val()) > 0 {
			return i
		}
	}
	t.Fatalf("no server has a key of zone %s", zone)
	return 0
}

// anyUp says whether any instance uses Redis.
func (s *scene) anyUp() bool {
	return !s.all(func(c *harness.Caddy) bool {
		is, ok := c.Metric(s.t, "caddy_rate_limit_store_up")
		return ok && is == 0
	})
}

// rotation replaces a user's password as the documentation says: Redis takes both, then the file is replaced, then Redis
// forgets the older one and closes the connections.
func rotation(t *testing.T, out *result) {
	srv := redistest.Start(t)
	admin, file := srv.Client(), filepath.Join(t.TempDir(), "password")
	user := func(rule string) {
		if err := admin.Do(context.Background(), "acl", "setuser", "diana", rule).Err(); err != nil {
			t.Error(err)
		}
	}
	write := func(password string) {
		if err := os.WriteFile(file+".new", []byte(password+"\n"), 0o600); err != nil {
			t.Error(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Error(err)
		}
	}
	for _, rule := range []string{"on", "~*", "&*", "+@all", ">secret0"} {
		user(rule)
	}
	write("secret0")
	s := begin(t, fmt.Sprintf("%s {\n\t\t\tusername diana\n\t\t\tpassword {file.%s}\n\t\t\ttimeout %v\n\t\t}", srv.Addr, file, patient))
	before := s.errors()
	r := s.play(play{calm: 500 * time.Millisecond, after: 3 * time.Second, begin: func() {
		for n := range 3 {
			user(fmt.Sprintf(">secret%d", n+1))
			write(fmt.Sprintf("secret%d", n+1))
			time.Sleep(10 * time.Second)
			user(fmt.Sprintf("<secret%d", n))
			time.Sleep(2 * time.Second)
		}
	}})
	s.checkAll(r, out, promise{wait: patient + 10*time.Millisecond})
	s.checkNoneAlone(r, before, out)
	for _, c := range s.caddys {
		if strings.Contains(c.Log(), "secret") {
			t.Error("the log shows a password")
		}
	}
}

// moved has new connections lead to another server, as after a change of the name in the address, while the old server goes
// on. Each instance is at the new one when its connections have reached their greatest age.
func moved(t *testing.T, out *result) {
	old, fresh := redistest.Start(t), redistest.Start(t)
	p := startProxy(t, old.Addr)
	s := begin(t, fmt.Sprintf("%s {\n\t\t\tmax_age 10s\n\t\t\ttimeout %v\n\t\t}", p.Addr, patient))
	var took time.Duration
	r := s.play(play{calm: 500 * time.Millisecond, after: 3 * time.Second, begin: func() {
		begun := time.Now()
		p.target.Store(&fresh.Addr)
		for time.Since(begun) < 30*time.Second {
			before := scriptCalls(t, old)
			time.Sleep(2 * time.Second)
			if scriptCalls(t, old) == before {
				break
			}
			took = time.Since(begun)
		}
	}})
	out.report("no call at the old server after %.0f s", took.Seconds())
	if took > 20*time.Second {
		out.late(t, "calls at the old server for %v, want 20 s", took)
	}
	harness.OnlyStatuses(t, r.shots, http.StatusOK, http.StatusTooManyRequests)
	harness.OnlyStatuses(t, r.control, http.StatusOK)
	checkWaits(t, r, out, patient+10*time.Millisecond)
	later := *r
	later.shots = during(r.shots, r.gone.Add(took+longestWindow), r.over)
	checkBounds(t, &later, out, promise{losses: 1})
	checkTwice(t, r, out)
	s.checkLogs(r, out)
	if scriptCalls(t, fresh) == 0 {
		t.Error("no call at the new server")
	}
	fresh.CheckTTLs()
}

// longestWindow is that of the zones whose windows are not longer than a row.
const longestWindow = 2 * time.Second

// checkTwice checks that no window holds more than twice the bound: some instances count at one server, others at
// another.
func checkTwice(t *testing.T, r *record, out *result) {
	t.Helper()
	byKey, most := make(map[string][]harness.Shot), 0.0
	for _, s := range r.shots {
		if s.Status == http.StatusOK {
			byKey[pathOf(s)] = append(byKey[pathOf(s)], s)
		}
	}
	for key, passed := range byKey {
		z := zoneOf(passed[0])
		for i := range passed {
			most = max(most, check(t, key, "a window of the move", begunBy(passed[i:], z.window), 2*z.bound, z.bound))
		}
	}
	out.report("most in a window of the move %.2f of the bound", most)
}

// scriptCalls returns how often a server has run a script by its hash.
func scriptCalls(t *testing.T, srv *redistest.Server) (n int) {
	t.Helper()
	_, rest, _ := strings.Cut(srv.Client().Info(context.Background(), "commandstats").Val(), "cmdstat_evalsha:calls=")
	_, _ = fmt.Sscanf(rest, "%d", &n)
	return n
}
