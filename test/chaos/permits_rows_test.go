package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// permitsKilled kills Redis twice while all permits are taken. It comes back empty.
func permitsKilled(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := besiege(t, 2*capacity, srv.Addr)
	for range 2 {
		srv.Kill()
		waitStores(t, s.caddys, false)
		s.stage("alone")
		srv.Run()
		waitStores(t, s.caddys, true)
		s.stage("back")
	}
	s.end(out, wholeAgain)
	srv.CheckTTLs()
}

// permitsStalled stops Redis until no permit in it was renewed in time.
func permitsStalled(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := besiege(t, 2*capacity, srv.Addr)
	srv.Stall()
	stalled := time.Now()
	waitStores(t, s.caddys, false)
	s.stage("alone")
	time.Sleep(time.Until(stalled.Add(permitLapse + 3*time.Second)))
	srv.Resume()
	waitStores(t, s.caddys, true)
	s.stage("back")
	s.end(out, wholeAgain)
	srv.CheckTTLs()
}

func permitsFailedOver(t *testing.T, out *result) {
	w := redistest.StartSentinel(t)
	s := besiege(t, 2*capacity, strings.Join(w.Addrs(), " "), "sentinel "+redistest.SentinelMaster)
	cutReplication(t, w)
	w.Master.Kill()
	waitStores(t, s.caddys, false)
	s.stage("alone")
	waitStores(t, s.caddys, true)
	s.stage("back")
	s.end(out, wholeAgain)
}

// permitsReloaded reloads one instance after the other, first with another option of
// the store, then with another window of the rules. Nothing fails, so the capacity is
// never exceeded, except that a limit whose window changes is counted anew.
func permitsReloaded(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := besiege(t, capacity, srv.Addr, "pool_size 12")
	s.bounds["/local"] = capacity
	for i := range instances {
		key := fmt.Sprintf("/local %d", i)
		for range capacity {
			if !s.open(i, key) {
				t.Fatal("a local permit was denied")
			}
		}
		s.attack(key, i)
	}
	for _, c := range s.caddys {
		s.reload(c, `"pool_size":12`, `"pool_size":13`)
	}
	waitStores(t, s.caddys, true)
	s.stage("other pool_size")
	s.bounds["/count_status"] = 2 * capacity
	for _, c := range s.caddys {
		s.reload(c, `"window":3600000000000`, `"window":7200000000000`)
	}
	s.stage("other window")
	s.end(out, wholeAgain)
	srv.CheckTTLs()
}

func (s *siege) reload(c *harness.Caddy, old, changed string) {
	s.t.Helper()
	config := c.Running(s.t)
	if !strings.Contains(config, old) {
		s.t.Fatalf("no %s in %s", old, config)
	}
	if a := c.Load(s.t, strings.ReplaceAll(config, old, changed)); a.Status != http.StatusOK {
		s.t.Fatalf("reload: %d %s", a.Status, a.Body)
	}
}

// permitsOfKilledCaddy kills the instance that holds all permits of one key and some of
// another. They are free again when they have expired, and none is before.
func permitsOfKilledCaddy(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := besiege(t, capacity, srv.Addr)
	s.mu.Lock()
	s.killed[0] = true
	s.mu.Unlock()
	killed := time.Now()
	s.caddys[0].Kill()
	s.stage("one killed")
	for _, key := range s.keys {
		harness.Until(t, harness.Patience, key+": the permits of the killed instance are free", func() bool {
			return s.up.holding(key) >= capacity
		})
	}
	took := time.Since(killed)
	out.report("permits free %.0f s after kill -9 of a Caddy", took.Seconds())
	if took > permitLapse+wholeAgain {
		t.Errorf("the permits of the killed instance were free after %v, want %v", took, permitLapse)
	}
	s.stage("all taken again")
	s.end(out, wholeAgain)
	srv.CheckTTLs()
}
