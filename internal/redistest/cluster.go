package redistest

import (
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// StartCluster runs a Redis Cluster of masters without replicas and waits until
// it serves all slots. args are further arguments of each redis-server.
func StartCluster(tb testing.TB, masters int, args ...string) []*Server {
	tb.Helper()
	return startCluster(tb, masters, 0, args...)
}

// StartReplicatedCluster is like StartCluster, with a replica for each master that is
// promoted about two seconds after its master is down. The masters come first.
func StartReplicatedCluster(tb testing.TB, masters int) []*Server {
	tb.Helper()
	nodes := startCluster(tb, masters, 1)
	until(tb, "the replicas are in step", func() bool {
		for _, n := range nodes[masters:] {
			if !strings.Contains(n.cli("info", "replication"), "master_link_status:up") {
				return false
			}
		}
		return true
	})
	return nodes
}

func startCluster(tb testing.TB, masters, replicas int, args ...string) []*Server {
	tb.Helper()
	var nodes []*Server
	create := []string{"--cluster", "create"}
	for i := range masters * (1 + replicas) {
		n := startOn(tb, clusterPort(tb), append([]string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes-" + strconv.Itoa(i) + ".conf",
			"--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0",
		}, args...)...)
		nodes = append(nodes, n)
		create = append(create, n.Addr)
	}
	create = append(create, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")
	out, err := exec.Command("redis-cli", create...).CombinedOutput()
	if err != nil {
		tb.Fatalf("redis-cli --cluster create: %v\n%s", err, out)
	}
	until(tb, "the cluster is ready", func() bool {
		for _, n := range nodes {
			if !strings.Contains(n.cli("cluster", "info"), "cluster_state:ok") {
				return false
			}
		}
		return true
	})
	return nodes
}

// clusterPort returns a free port whose cluster bus port, 10000 above, is valid and
// also free.
func clusterPort(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		port := FreePort(tb)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+10_000))); err == nil {
			_ = l.Close()
			if reserve(port + 10_000) {
				return port
			}
		}
	}
	tb.Fatal("no free port for a cluster node")
	return 0
}
