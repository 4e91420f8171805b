package redisim

import (
	"fmt"
	"strconv"
	"strings"
)

var clusterCommands = []command{
	{name: "cluster", arity: -2, flags: stale | loads, run: clusterCommand},
	{name: "asking", arity: 1, flags: loads, run: asking},
	{name: "readonly", arity: 1, flags: loads | stale, run: readOnly(true)},
	{name: "readwrite", arity: 1, flags: loads | stale, run: readOnly(false)},
	{name: "command", arity: -1, flags: loads | stale, run: func(*execution, []string) reply { return many() }},
}

const errNoCluster = "ERR This instance has cluster support disabled"

func asking(x *execution, _ []string) reply {
	if x.s.cluster == nil {
		return fail(errNoCluster)
	}
	x.c.asking = true
	return ok
}

func readOnly(on bool) func(x *execution, _ []string) reply {
	return func(x *execution, _ []string) reply {
		if x.s.cluster == nil {
			return fail(errNoCluster)
		}
		x.c.readOnly = on
		return ok
	}
}

func clusterCommand(x *execution, args []string) reply {
	c := x.s.cluster
	if c == nil {
		return fail(errNoCluster)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch sub := strings.ToLower(args[1]); {
	case sub == "slots" && len(args) == 2:
		return c.slots(x.s)
	case sub == "nodes" && len(args) == 2:
		return text(c.nodeLines(x.s))
	case sub == "myid" && len(args) == 2:
		return text(c.id(x.s))
	case sub == "info" && len(args) == 2:
		return text(c.info(x.s))
	case sub == "keyslot" && len(args) == 3:
		return number(int64(Slot(args[2])))
	case sub == "countkeysinslot" && len(args) == 3:
		return x.keysInSlot(args[2])
	}
	return fail("ERR unknown subcommand '" + args[1] + "'. Try CLUSTER HELP.")
}

// id returns the ID of a node. c.mu is held.
func (c *Cluster) id(s *Server) string { return sha1hex(s.o.Address) }

// ranges calls do with each range of slots of one owner.
func (v *view) ranges(do func(first, last int, owner *Server)) {
	for first := 0; first < slots; {
		last := first
		for last+1 < slots && v.owners[last+1] == v.owners[first] {
			last++
		}
		do(first, last, v.owners[first])
		first = last + 1
	}
}

// slots returns the reply to CLUSTER SLOTS. c.mu is held.
func (c *Cluster) slots(s *Server) reply {
	node := func(n *Server) reply {
		host, port := hostPort(n.o.Address)
		p, _ := strconv.Atoi(port)
		return many(text(host), number(int64(p)), text(c.id(n)), many())
	}
	all, v := many(), c.viewOf(s)
	v.ranges(func(first, last int, owner *Server) {
		r := many(number(int64(first)), number(int64(last)), node(owner))
		if replica := v.replica[owner]; replica != nil {
			if _, lost := c.lost[replica]; !lost {
				r.list = append(r.list, node(replica))
			}
		}
		all.list = append(all.list, r)
	})
	return all
}

// info returns the reply to CLUSTER INFO. c.mu is held.
func (c *Cluster) info(s *Server) string {
	state, v := "ok", c.viewOf(s)
	if c.down(s, v) {
		state = "fail"
	}
	return fmt.Sprintf("cluster_state:%s\r\ncluster_slots_assigned:%d\r\ncluster_known_nodes:%d\r\ncluster_size:%d\r\n",
		state, slots, len(c.nodes), len(v.masters()))
}

// nodeLines returns the reply to CLUSTER NODES. c.mu is held.
func (c *Cluster) nodeLines(s *Server) string {
	v := c.viewOf(s)
	owned, master := make(map[*Server]string), make(map[*Server]*Server)
	v.ranges(func(first, last int, owner *Server) {
		owned[owner] += fmt.Sprintf(" %d-%d", first, last)
	})
	for m, r := range v.replica {
		master[r] = m
	}
	var b strings.Builder
	for i, n := range c.nodes {
		role, of := "master", "-"
		if m := master[n]; m != nil {
			role, of = "slave", c.id(m)
		}
		if n == s {
			role = "myself," + role
		}
		if _, lost := c.lost[n]; lost {
			role += ",fail"
		}
		fmt.Fprintf(&b, "%s %s@1%s %s %s 0 0 %d connected%s\n", c.id(n), n.o.Address, "6379", role, of, i+1, owned[n])
	}
	return b.String()
}

func (x *execution) keysInSlot(slot string) reply {
	want, valid := parseInteger(slot)
	if !valid || want < 0 || want >= slots {
		return fail("ERR Invalid slot")
	}
	n := int64(0)
	for k, v := range x.s.keys.values {
		if !v.expired(x.now) && Slot(k) == int(want) {
			n++
		}
	}
	return number(n)
}
