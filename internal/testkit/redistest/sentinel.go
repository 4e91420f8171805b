package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/testdir"
)

// SentinelMaster is the name of the master that StartSentinel's Sentinels monitor.
const SentinelMaster = "main"

// Watched is a master and its replica, monitored by three Sentinels that consider the
// master down after one second.
type Watched struct {
	Master, Replica *Server   // initial roles
	Sentinels       []*Server // three
}

// StartSentinel starts a master, its replica and three Sentinels, and waits until a
// failover would succeed.
func StartSentinel(tb testing.TB) *Watched {
	tb.Helper()
	w := &Watched{Master: Start(tb, "--repl-diskless-sync-delay", "0")}
	w.Replica = Start(tb, "--replicaof", "127.0.0.1 "+strconv.Itoa(w.Master.Port), "--replica-priority", "10")
	for range 3 {
		w.Sentinels = append(w.Sentinels, w.sentinel(tb))
	}
	until(tb, "the Sentinels know each other and the replica", func() bool {
		for _, s := range w.Sentinels {
			info := s.ask("info", "sentinel")
			if !strings.Contains(info, "status=ok") || !strings.Contains(info, "slaves=1,sentinels=3") {
				return false
			}
		}
		return strings.Contains(w.Replica.ask("info", "replication"), "master_link_status:up")
	})
	return w
}

func (w *Watched) sentinel(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{tb: tb}
	s.setPort(FreePort(tb))
	config := fmt.Sprintf(`port %d
bind 127.0.0.1
sentinel monitor %[2]s 127.0.0.1 %d 2
sentinel down-after-milliseconds %[2]s 1000
sentinel failover-timeout %[2]s 3000
`, s.Port, SentinelMaster, w.Master.Port)
	dir := testdir.New(tb)
	file := filepath.Join(dir, "sentinel.conf") // the Sentinel rewrites it
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.args = []string{file, "--sentinel", "--dir", dir}
	s.Run()
	tb.Cleanup(func() {
		s.Kill()
		if tb.Failed() {
			tb.Logf("the Sentinel on %s:\n%s", s.Addr, &s.output)
		}
	})
	return s
}

// Addrs returns the Sentinels' addresses.
func (w *Watched) Addrs() (all []string) {
	for _, s := range w.Sentinels {
		all = append(all, s.Addr)
	}
	return all
}

// StartSentinelOf starts a Sentinel that monitors a master, alone.
func StartSentinelOf(tb testing.TB, master *Server) *Server {
	tb.Helper()
	return (&Watched{Master: master}).sentinel(tb)
}
