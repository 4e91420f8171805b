package redistest

import (
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// StartCluster runs a Redis Cluster of masters without replicas and waits until
// it serves all slots.
func StartCluster(tb testing.TB, masters int) []*Server {
	tb.Helper()
	var nodes []*Server
	create := []string{"--cluster", "create"}
	for i := range masters {
		port := clusterPort(tb)
		n := startOn(tb, port, "--cluster-enabled", "yes", "--cluster-config-file", "nodes-"+strconv.Itoa(i)+".conf",
			"--cluster-node-timeout", "1000")
		nodes = append(nodes, n)
		create = append(create, n.Addr)
	}
	out, err := exec.Command("redis-cli", append(create, "--cluster-yes")...).CombinedOutput() //nolint:gosec // a test's own arguments
	if err != nil {
		tb.Fatalf("redis-cli --cluster create: %v\n%s", err, out)
	}
	deadline := time.Now().Add(20 * time.Second)
	for _, n := range nodes {
		for !clusterReady(n) {
			if time.Now().After(deadline) {
				tb.Fatalf("the cluster is not ready on %s", n.Addr)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nodes
}

func clusterReady(n *Server) bool {
	out, err := exec.Command("redis-cli", "-p", strconv.Itoa(n.Port), "cluster", "info").Output() //nolint:gosec // a test's own arguments
	return err == nil && strings.Contains(string(out), "cluster_state:ok")
}

// clusterPort is a free port whose cluster bus port, 10000 above, exists and is
// free too.
func clusterPort(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		port := freePort(tb)
		if port >= 55_000 {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+10_000))); err == nil {
			_ = l.Close()
			return port
		}
	}
	tb.Fatal("no free port for a cluster node")
	return 0
}
