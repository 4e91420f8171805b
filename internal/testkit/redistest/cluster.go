package redistest

import (
	"strconv"
	"strings"
	"testing"
)

const (
	slots     = 16384  // of a Cluster
	busOffset = 10_000 // of the port of a node's bus from its port
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
	nodes := startCluster(tb, masters, masters)
	until(tb, "every replica is in step", each(nodes[masters:], func(n *Server) bool {
		return strings.Contains(n.ask("info", "replication"), "master_link_status:up")
	}))
	return nodes
}

// startCluster makes a Cluster step by step: each step has an end that is visible at the
// nodes. (redis-cli --cluster create waits for the nodes to agree, however long it takes.)
func startCluster(tb testing.TB, masters, replicas int, args ...string) []*Server {
	tb.Helper()
	nodes := make([]*Server, masters+replicas)
	for i := range nodes {
		nodes[i] = startOn(tb, FreePort(tb, busOffset), append([]string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes-" + strconv.Itoa(i) + ".conf",
			"--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0",
		}, args...)...)
	}
	for i, n := range nodes[:masters] {
		add := []any{"cluster", "addslots"}
		for slot := slots * i / masters; slot < slots*(i+1)/masters; slot++ {
			add = append(add, slot)
		}
		n.must(add...)
	}
	for i, n := range nodes {
		n.must("cluster", "set-config-epoch", i+1)
		if i > 0 {
			n.must("cluster", "meet", "127.0.0.1", nodes[0].Port)
		}
	}
	met := "cluster_known_nodes:" + strconv.Itoa(len(nodes)) + "\r"
	until(tb, "every node knows the others", each(nodes, func(n *Server) bool {
		return strings.Contains(n.ask("cluster", "info"), met) && !strings.Contains(n.ask("cluster", "nodes"), "handshake")
	}))
	for i, n := range nodes[masters:] {
		n.must("cluster", "replicate", nodes[i%masters].ask("cluster", "myid"))
	}
	until(tb, "every node says that the cluster is ok, with its replicas", each(nodes, func(n *Server) bool {
		return strings.Contains(n.ask("cluster", "info"), "cluster_state:ok") &&
			strings.Count(n.ask("cluster", "nodes"), "slave ") == replicas
	}))
	return nodes
}

// each returns a condition that is true when ok is true for all servers.
func each(servers []*Server, ok func(*Server) bool) func() bool {
	return func() bool {
		for _, s := range servers {
			if !ok(s) {
				return false
			}
		}
		return true
	}
}
