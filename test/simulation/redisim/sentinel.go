package redisim

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Sentinels watch a master and its replica. They do not act by themselves: Failover is
// called when they have agreed.
type Sentinels struct {
	// Lag is how far the replica is behind.
	Lag time.Duration

	name    string
	servers []*Server // the Sentinels themselves

	mu     sync.Mutex // may be locked while a server's mutex is held
	master *Server
	others []*Server // its replicas
}

// NewSentinels returns Sentinels that watch a master and its replica under a name. options
// are those of the Sentinels.
func NewSentinels(name string, master, replica *Server, lag time.Duration, options ...Options) *Sentinels {
	n := &Sentinels{name: name, Lag: lag, master: master, others: []*Server{replica}}
	for _, o := range options {
		s := New(o)
		s.sentinels = n
		n.servers = append(n.servers, s)
	}
	master.ReplicateTo(replica, lag)
	return n
}

// Servers returns the Sentinels.
func (n *Sentinels) Servers() []*Server { return slices.Clone(n.servers) }

// Master returns the master.
func (n *Sentinels) Master() *Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.master
}

// Failover makes a replica that runs the master, with what it has taken over by now, and
// publishes +switch-master. The old master becomes its replica, and its clients are
// disconnected, when it is started again if it is killed. It returns false if no replica runs.
func (n *Sentinels) Failover() bool {
	n.mu.Lock()
	i := slices.IndexFunc(n.others, (*Server).Running)
	if i < 0 {
		n.mu.Unlock()
		return false
	}
	old, replica := n.master, n.others[i]
	n.master, n.others[i] = replica, old
	n.mu.Unlock()
	replica.Promote()
	replica.ReplicateTo(old, n.Lag)
	old.disconnect()
	fromHost, fromPort := hostPort(old.o.Address)
	toHost, toPort := hostPort(replica.o.Address)
	message := strings.Join([]string{n.name, fromHost, fromPort, toHost, toPort}, " ")
	for _, s := range n.servers {
		go s.forward("+switch-master", message)
	}
	return true
}

// disconnect closes the connections of all clients.
func (s *Server) disconnect() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.clients))
	s.mu.Unlock()
	for _, c := range all {
		_ = c.conn.Close()
	}
}

var sentinelCommands = []command{
	{name: "sentinel", arity: -2, run: sentinelCommand},
}

// atSentinel are the commands that a Sentinel knows.
var atSentinel = map[string]bool{
	"sentinel": true, "ping": true, "hello": true, "auth": true, "client": true, "info": true, "subscribe": true,
	"unsubscribe": true, "publish": true, "quit": true, "command": true,
}

func sentinelCommand(x *execution, args []string) reply {
	n := x.s.sentinels
	n.mu.Lock()
	defer n.mu.Unlock()
	sub := strings.ToLower(args[1])
	known := map[string]bool{"get-master-addr-by-name": true, "master": true, "sentinels": true, "replicas": true, "slaves": true}
	switch {
	case !known[sub]:
		return fail("ERR unknown subcommand '" + args[1] + "'. Try SENTINEL HELP.")
	case len(args) != 3:
		return fail("ERR wrong number of arguments for 'sentinel|" + sub + "' command")
	case args[2] != n.name && sub == "get-master-addr-by-name":
		return reply{kind: nullArray}
	case args[2] != n.name:
		return fail("ERR No such master with that name")
	}
	all := many()
	switch sub {
	case "get-master-addr-by-name":
		return texts(hostPort(n.master.o.Address))
	case "master":
		return describeServer(n.name, n.master, "master")
	case "sentinels":
		for _, s := range n.servers {
			if s != x.s {
				all.list = append(all.list, describeServer(sha1hex(s.o.Address), s, "sentinel"))
			}
		}
	default:
		for _, s := range n.others {
			flags := "slave"
			if x.s != s && !s.Running() {
				flags = "s_down,slave,disconnected"
			}
			all.list = append(all.list, describeServer(s.o.Address, s, flags))
		}
	}
	return all
}

func describeServer(name string, s *Server, flags string) reply {
	host, port := hostPort(s.o.Address)
	return fields(text("name"), text(name), text("ip"), text(host), text("port"), text(port),
		text("runid"), text(sha1hex(s.o.Address)), text("flags"), text(flags))
}
