package redisim

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const slots = 16384

// Cluster is a Redis Cluster: masters that share the slots, and their replicas. All nodes
// know of a change at once, except those that are isolated.
type Cluster struct {
	// NodeTimeout is after how long a master that is killed, paused or isolated makes the
	// Cluster refuse all keys, until Failover.
	NodeTimeout time.Duration

	// Lag is how far replicas are behind.
	Lag time.Duration

	nodes []*Server // masters first, as they were in the beginning

	mu       sync.Mutex // may be locked while a server's mutex is held
	view     view
	isolated map[*Server]*view     // what isolated nodes know
	lost     map[*Server]time.Time // since when nodes cannot be reached
	moves    map[int]*move         // by slot
}

// view is what a node knows of the Cluster.
type view struct {
	owners  [slots]*Server
	replica map[*Server]*Server // of a master
}

// move is the move of a slot.
type move struct{ from, to *Server }

// NewCluster returns a Cluster of masters that have an equal share of the slots each, and of
// a replica of each if replicated is set. options returns the options of the i-th server:
// the masters come first, then their replicas in the same order.
func NewCluster(masters int, replicated bool, options func(i int) Options) *Cluster {
	c := &Cluster{
		NodeTimeout: time.Second, Lag: time.Millisecond, isolated: make(map[*Server]*view),
		lost: make(map[*Server]time.Time), moves: make(map[int]*move),
	}
	c.view.replica = make(map[*Server]*Server)
	add := func(i int) *Server {
		s := New(options(i))
		s.cluster = c
		c.nodes = append(c.nodes, s)
		return s
	}
	for i, slot := 0, 0; i < masters; i++ {
		s := add(i)
		for ; slot < (2*(i+1)*slots+masters)/(2*masters); slot++ { // rounded as redis-cli does
			c.view.owners[slot] = s
		}
	}
	for i := range masters {
		if !replicated {
			break
		}
		r := add(masters + i)
		c.view.replica[c.nodes[i]] = r
		c.nodes[i].ReplicateTo(r, c.Lag)
	}
	return c
}

// Nodes returns all nodes, the masters of the beginning first.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// Owner returns the master of a slot.
func (c *Cluster) Owner(slot int) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.owners[slot]
}

// Masters returns the masters that own slots, in the order of those.
func (c *Cluster) Masters() (all []*Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.masters()
}

func (v *view) masters() (all []*Server) {
	for _, s := range v.owners {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// BeginMove begins the move of a slot to another master: keys that are not at its owner any
// more, or not yet, are looked for at the other.
func (c *Cluster) BeginMove(slot int, to *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from := c.view.owners[slot]; from != to {
		c.moves[slot] = &move{from, to}
	}
}

// Moves says whether a slot is being moved.
func (c *Cluster) Moves(slot int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moves[slot] != nil
}

// StepMove moves up to n keys of a slot that is being moved, as MIGRATE does, and returns how
// many are left.
func (c *Cluster) StepMove(slot, n int) (left int) {
	c.mu.Lock()
	m := c.moves[slot]
	c.mu.Unlock()
	if m == nil {
		return 0
	}
	first, second := m.from, m.to
	if slices.Index(c.nodes, first) > slices.Index(c.nodes, second) {
		first, second = second, first
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	second.mu.Lock()
	defer second.mu.Unlock()
	for _, k := range m.from.keys.names(m.from.ms()) {
		if Slot(k) != slot {
			continue
		}
		if n--; n < 0 {
			left++
			continue
		}
		m.to.keys.values[k] = m.from.keys.values[k]
		m.to.replicate(k)
		m.from.delete(k)
	}
	return left
}

// EndMove makes the other master the owner of a slot that is being moved. Keys that were not
// moved are lost.
func (c *Cluster) EndMove(slot int) {
	for c.StepMove(slot, slots) > 0 {
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.moves[slot]; m != nil {
		c.view.owners[slot] = m.to
		delete(c.moves, slot)
	}
}

// Failover makes the replica of a master the owner of its slots, with what it has taken over
// by now. The old master becomes the replica, when it is started again if it is killed. It
// returns false if there is no replica that runs.
func (c *Cluster) Failover(master *Server) bool {
	c.mu.Lock()
	r := c.view.replica[master]
	c.mu.Unlock()
	if r == nil || !r.Running() {
		return false
	}
	r.Promote()
	c.mu.Lock()
	for slot, s := range c.view.owners {
		if s == master {
			c.view.owners[slot] = r
		}
	}
	for _, m := range c.moves {
		if m.from == master {
			m.from = r
		}
		if m.to == master {
			m.to = r
		}
	}
	delete(c.view.replica, master)
	c.view.replica[r] = master
	alone := c.isolated[master] != nil
	c.mu.Unlock()
	if !alone {
		r.ReplicateTo(master, c.Lag)
	}
	return true
}

// Isolate cuts a node off from the others, while clients still reach it: it knows of no
// change, takes writes that are lost if another master takes its place, and refuses all keys
// after NodeTimeout. Without on, it is one of them again.
func (c *Cluster) Isolate(s *Server, on bool) {
	c.mu.Lock()
	if !on {
		delete(c.isolated, s)
		delete(c.lost, s)
	} else if c.isolated[s] == nil {
		known := c.view
		known.replica = maps.Clone(known.replica)
		c.isolated[s] = &known
		c.lost[s] = s.o.Clock()
	}
	var master *Server
	for m, r := range c.view.replica {
		if r == s {
			master = m
		}
	}
	c.mu.Unlock()
	if !on && master != nil && !s.Replica() {
		master.ReplicateTo(s, c.Lag)
	}
}

// reached notes whether the other nodes reach a node.
func (c *Cluster) reached(s *Server, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is && c.isolated[s] == nil {
		delete(c.lost, s)
	} else if _, since := c.lost[s]; !since && !is {
		c.lost[s] = s.o.Clock()
	}
}

// down says whether a node refuses all keys: it has lost the others, or a master is lost.
// c.mu is held.
func (c *Cluster) down(s *Server, v *view) bool {
	now := s.o.Clock()
	if c.isolated[s] != nil {
		return now.Sub(c.lost[s]) > c.NodeTimeout
	}
	for lost, since := range c.lost {
		if now.Sub(since) > c.NodeTimeout && slices.Contains(v.masters(), lost) {
			return true
		}
	}
	return false
}

// viewOf returns what a node knows. c.mu is held.
func (c *Cluster) viewOf(s *Server) *view {
	if v := c.isolated[s]; v != nil {
		return v
	}
	return &c.view
}

// redirect returns the reply to a command whose keys another node has, or no node; an empty
// one if this node executes it. s.mu is held.
func (c *Cluster) redirect(s *Server, cl *client, cmd *command, args []string, asking bool) reply {
	keys := cmd.keysOf(args)
	if len(keys) == 0 {
		return reply{}
	}
	slot := Slot(keys[0])
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.viewOf(s)
	owner, m := v.owners[slot], c.moves[slot]
	here, missing, several := 0, 0, false
	for _, k := range keys {
		if Slot(k) != slot {
			return fail("CROSSSLOT Keys in request don't hash to the same slot")
		}
		several = several || k != keys[0]
		if s.keys.get(k, s.ms()) == nil {
			missing++
		} else {
			here++
		}
	}
	switch {
	case c.down(s, v):
		return fail("CLUSTERDOWN The cluster is down")
	case m != nil && m.from == s && owner == s && missing > 0:
		if here > 0 {
			return fail("TRYAGAIN Multiple keys request during rehashing of slot")
		}
		return fail("ASK " + strconv.Itoa(slot) + " " + m.to.o.Address)
	case m != nil && m.to == s && asking:
		if several && missing > 0 {
			return fail("TRYAGAIN Multiple keys request during rehashing of slot")
		}
		return reply{}
	case owner == s:
		return reply{}
	case v.replica[owner] == s && cl.readOnly && cmd.flags&writes == 0:
		return reply{}
	}
	return fail("MOVED " + strconv.Itoa(slot) + " " + owner.o.Address)
}

// Slot returns the slot of a key.
func Slot(key string) int {
	if _, tag, is := strings.Cut(key, "{"); is {
		if tag, _, is = strings.Cut(tag, "}"); is && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return int(crc % slots)
}

// crcTable is that of CRC-16/XMODEM.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()

// forwards says whether messages of one node reach another.
func (c *Cluster) forwards(from, to *Server) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return from != to && c.isolated[from] == nil && c.isolated[to] == nil
}

// hostPort splits an address.
func hostPort(address string) (host, port string) {
	host, port, _ = net.SplitHostPort(address)
	return host, port
}
