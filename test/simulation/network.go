package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// network connects instances with servers in memory. What it does to a connection depends
// only on the seed, the connection's number among those of its instance, and the number
// of the packet, so that leaving out a part of a plan changes little elsewhere.
type network struct {
	seed    uint64
	servers map[string]server // by address
	instant map[string]bool   // addresses that are reached without delay: see (*world).deploySentinels

	mu      sync.Mutex
	conns   map[*conn]struct{} // the clients' ends
	dialed  map[string]uint64  // by instance
	dead    map[string]bool    // processes
	rules   []*disturbance
	way     way
	packets atomic.Uint64
}

// server is what listens at an address.
type server interface {
	Serve(c net.Conn)
	Running() bool
}

// disturbance is what the network does to some of the connections for a time.
type disturbance struct {
	instance string // whose connections; empty: all
	address  string // to which server; empty: any
	one      bool   // only those that have odd numbers

	delay     time.Duration // added to each packet
	later     time.Duration // added to one reply in ten
	spread    time.Duration // further delay at random, which reorders what several connections carry
	loss      float64       // share of the packets with which a connection is reset
	dropUp    bool          // what the instance sends vanishes
	dropDown  bool          // what the server sends vanishes
	refuse    bool          // new connections are refused
	blackhole bool          // new connections are not answered
	slowBytes bool          // packets arrive byte by byte, some at a time
}

func (d *disturbance) concerns(c *conn) bool {
	return (d.instance == "" || d.instance == c.instance) && (d.address == "" || d.address == c.address) && (!d.one || c.number%2 == 1)
}

func newNetwork(seed uint64) *network {
	return &network{seed: seed, servers: make(map[string]server), instant: make(map[string]bool), conns: make(map[*conn]struct{}), dialed: make(map[string]uint64), dead: make(map[string]bool)}
}

// add begins a disturbance.
func (n *network) add(d *disturbance) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = append(n.rules, d)
}

// remove ends a disturbance.
func (n *network) remove(d *disturbance) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = slices.DeleteFunc(n.rules, func(o *disturbance) bool { return o == d })
}

// of returns the disturbances of a connection, as one. What would drop the packets of a
// connection without delay resets it.
func (n *network) of(c *conn) (sum disturbance) {
	n.packets.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	sum.delay = n.way.round / 2
	if n.way.rare {
		sum.later = 2 * n.way.round
	}
	for _, d := range n.rules {
		if !d.concerns(c) {
			continue
		}
		sum.delay += d.delay
		sum.spread += d.spread
		sum.loss = 1 - (1-sum.loss)*(1-d.loss)
		sum.dropUp = sum.dropUp || d.dropUp
		sum.dropDown = sum.dropDown || d.dropDown
		sum.refuse = sum.refuse || d.refuse
		sum.blackhole = sum.blackhole || d.blackhole
		sum.slowBytes = sum.slowBytes || d.slowBytes
	}
	if c.instant && (sum.blackhole || sum.dropUp || sum.dropDown) {
		return disturbance{loss: 1, refuse: true}
	}
	return sum
}

// reset resets the connections that a function chooses.
func (n *network) reset(chosen func(c *conn) bool) {
	n.mu.Lock()
	var list []*conn
	for c := range n.conns {
		if chosen(c) {
			list = append(list, c)
		}
	}
	n.mu.Unlock()
	slices.SortFunc(list, func(a, b *conn) int { return int(a.number) - int(b.number) })
	for _, c := range list {
		c.breakOff(syscall.ECONNRESET)
	}
}

// open returns the number of connections of an instance; empty: of all.
func (n *network) open(instance string) (open int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if !c.clientClosed && (instance == "" || c.instance == instance) {
			open++
		}
	}
	return open
}

// bury cuts a process off for ever.
func (n *network) bury(process string) {
	n.mu.Lock()
	n.dead[process] = true
	n.mu.Unlock()
	n.reset(func(c *conn) bool { return c.process == process })
}

// dialer returns the way of a process of an instance into the network.
func (n *network) dialer(instance, process string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		n.mu.Lock()
		n.dialed[instance]++
		number, dead := n.dialed[instance], n.dead[process]
		n.mu.Unlock()
		if dead {
			return nil, opError("dial", address, syscall.ECONNREFUSED)
		}
		c := &conn{network: n, instance: instance, process: process, address: address, number: number}
		// The numbers of instances differ, so that no two packets arrive at one instant.
		c.random = rand.New(rand.NewPCG(n.seed, hash(instance)+number)) //nolint:gosec // a simulation
		c.instant = n.instant[address]
		d := n.of(c)
		if d.blackhole || d.dropUp || d.dropDown {
			<-ctx.Done()
			return nil, opError("dial", address, os.ErrDeadlineExceeded)
		}
		if err := c.travel(ctx, &d); err != nil {
			return nil, opError("dial", address, err)
		}
		s := n.servers[address]
		if d = n.of(c); s == nil || !s.Running() || d.refuse || d.blackhole {
			return nil, opError("dial", address, syscall.ECONNREFUSED)
		}
		c.up, c.down = newPipe(), newPipe()
		n.mu.Lock()
		if dead = n.dead[process]; !dead {
			n.conns[c] = struct{}{}
		}
		n.mu.Unlock()
		if dead {
			return nil, opError("dial", address, syscall.ECONNREFUSED)
		}
		go s.Serve(&end{conn: c, server: true, in: c.up, out: c.down})
		return &end{conn: c, in: c.down, out: c.up}, nil
	}
}

func opError(op, address string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: addr(address), Err: err}
}

// addr is the address of a server or an instance.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// conn is a connection.
type conn struct {
	network  *network
	instance string
	process  string
	address  string
	number   uint64 // of the instance's connections
	instant  bool   // packets take no time
	up, down *pipe

	serverClosed, clientClosed bool // under network.mu

	mu     sync.Mutex
	random *rand.Rand
}

// travel waits for as long as two packets travel.
func (c *conn) travel(ctx context.Context, d *disturbance) error {
	if c.instant {
		return ctx.Err()
	}
	select {
	case <-time.After(2 * c.delay(d)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// delay returns how long a packet travels.
func (c *conn) delay(d *disturbance) time.Duration {
	if c.instant {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := 100*time.Microsecond + time.Duration(c.random.Int64N(int64(400*time.Microsecond))) + d.delay
	if d.spread > 0 {
		t += time.Duration(c.random.Int64N(int64(d.spread)))
	}
	return t
}

func (c *conn) chance(p float64) bool {
	if p <= 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.Float64() < p
}

// breakOff ends the connection at both ends at once.
func (c *conn) breakOff(err error) {
	c.up.fail(err)
	c.down.fail(err)
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.serverClosed, c.clientClosed = true, true
	delete(c.network.conns, c)
}

// pipe is one direction of a connection.
type pipe struct {
	mu       sync.Mutex
	packets  []packet
	last     time.Time // when the last packet arrives
	err      error     // nil: open
	deadline time.Time // of reading
	wake     chan struct{}
}

type packet struct {
	bytes []byte // none: the end
	at    time.Time
}

func newPipe() *pipe { return &pipe{wake: make(chan struct{}, 1)} }

func (p *pipe) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pipe) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err, p.packets = err, nil
	}
	p.mu.Unlock()
	p.notify()
}

// put adds a packet that arrives after a delay, and not before those sent earlier.
func (p *pipe) put(b []byte, delay time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	at := time.Now().Add(delay)
	if at.Before(p.last) {
		at = p.last
	}
	p.last = at
	p.packets = append(p.packets, packet{slices.Clone(b), at})
	p.notify()
	return nil
}

// read reads what has arrived, and waits for it until the deadline.
func (p *pipe) read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		now, wait := time.Now(), time.Duration(-1)
		switch {
		case p.err != nil:
			p.mu.Unlock()
			return 0, p.err
		case !p.deadline.IsZero() && !now.Before(p.deadline):
			p.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(p.packets) > 0 && !p.packets[0].at.After(now):
			first := &p.packets[0]
			if len(first.bytes) == 0 {
				p.mu.Unlock()
				return 0, io.EOF
			}
			n := copy(b, first.bytes)
			if first.bytes = first.bytes[n:]; len(first.bytes) == 0 {
				p.packets = p.packets[1:]
			}
			p.mu.Unlock()
			return n, nil
		case len(p.packets) > 0:
			wait = p.packets[0].at.Sub(now)
		}
		if d := p.deadline.Sub(now); !p.deadline.IsZero() && (wait < 0 || d < wait) {
			wait = d
		}
		p.mu.Unlock()
		if wait < 0 {
			<-p.wake
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-p.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

func (p *pipe) setDeadline(t time.Time) {
	p.mu.Lock()
	p.deadline = t
	p.mu.Unlock()
	p.notify()
}

// end is an end of a connection.
type end struct {
	*conn
	server  bool
	in, out *pipe

	mu     sync.Mutex
	closed bool
	writes time.Time // the deadline of writing
}

// Read implements net.Conn.
func (e *end) Read(b []byte) (int, error) {
	n, err := e.in.read(b)
	if err != nil && err != io.EOF { //nolint:errorlint // read returns it as it is
		err = opError("read", e.address, err)
	}
	return n, err
}

// Write implements net.Conn.
func (e *end) Write(b []byte) (int, error) {
	e.mu.Lock()
	closed, late := e.closed, !e.writes.IsZero() && !time.Now().Before(e.writes)
	e.mu.Unlock()
	switch {
	case closed:
		return 0, opError("write", e.address, net.ErrClosed)
	case late:
		return 0, opError("write", e.address, os.ErrDeadlineExceeded)
	}
	d := e.network.of(e.conn)
	if e.chance(d.loss) {
		e.breakOff(syscall.ECONNRESET)
		return 0, opError("write", e.address, syscall.ECONNRESET)
	}
	if d.dropUp && !e.server || d.dropDown && e.server {
		return len(b), nil
	}
	if e.server && d.later > 0 && e.chance(0.1) {
		d.delay += d.later
	}
	parts := [][]byte{b}
	if d.slowBytes && len(b) > 1 {
		parts = slices.Collect(slices.Chunk(b, 1+len(b)/5))
	}
	for _, part := range parts {
		if err := e.out.put(part, e.delay(&d)); err != nil {
			if errors.Is(err, net.ErrClosed) {
				err = syscall.EPIPE
			}
			return 0, opError("write", e.address, err)
		}
	}
	return len(b), nil
}

// Close implements net.Conn. What was sent before arrives.
func (e *end) Close() error {
	e.mu.Lock()
	was := e.closed
	e.closed = true
	e.mu.Unlock()
	if was {
		return net.ErrClosed
	}
	d := e.network.of(e.conn)
	if dropped := d.dropUp && !e.server || d.dropDown && e.server; !dropped {
		_ = e.out.put(nil, e.delay(&d))
	}
	e.in.fail(net.ErrClosed)
	e.network.mu.Lock()
	defer e.network.mu.Unlock()
	if e.server {
		e.serverClosed = true
	} else {
		e.clientClosed = true
	}
	if e.serverClosed && e.clientClosed {
		delete(e.network.conns, e.conn)
	}
	return nil
}

// SyscallConn lets a pool check whether the other end has closed the connection.
func (e *end) SyscallConn() (syscall.RawConn, error) {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	if e.in.err != nil || len(e.in.packets) > 0 && !e.in.packets[0].at.After(time.Now()) {
		return nil, io.ErrUnexpectedEOF
	}
	return raw{}, nil
}

// raw is what a pool does not have to read from.
type raw struct{}

func (raw) Control(func(uintptr)) error    { return nil }
func (raw) Read(func(uintptr) bool) error  { return nil }
func (raw) Write(func(uintptr) bool) error { return nil }

func (e *end) LocalAddr() net.Addr {
	if e.server {
		return addr(e.address)
	}
	return addr(fmt.Sprintf("%s:%d", e.instance, e.number))
}

func (e *end) RemoteAddr() net.Addr {
	if e.server {
		return addr(fmt.Sprintf("%s:%d", e.instance, e.number))
	}
	return addr(e.address)
}

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error {
	_ = e.SetWriteDeadline(t)
	return e.SetReadDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error {
	e.in.setDeadline(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (e *end) SetWriteDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes = t
	return nil
}

// hash returns a number for a name.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(s) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}
