package redistest

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy is a way to a server that takes time.
type Proxy struct {
	Addr string // host:port, instead of the server's

	// Opened is how many connections were opened through it.
	Opened atomic.Int64

	round atomic.Int64 // nanoseconds there and back
	rare  atomic.Bool  // whether one request in ten takes three times as long

	stalled sync.RWMutex // held while nothing passes
}

// StartProxy listens on a free loopback port for connections to addr, through which a reply takes
// round longer. So does opening one.
func StartProxy(tb testing.TB, addr string, round time.Duration) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	p := &Proxy{Addr: l.Addr().String()}
	p.round.Store(int64(round))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.Opened.Add(1)
			go p.serve(c, addr)
		}
	}()
	return p
}

// Set changes how long a reply takes. With rare, one request in ten takes three times as long.
func (p *Proxy) Set(round time.Duration, rare bool) {
	p.round.Store(int64(round))
	p.rare.Store(rare)
}

// Stall stops what passes until the returned function is called.
func (p *Proxy) Stall() (pass func()) {
	p.stalled.Lock()
	return p.stalled.Unlock
}

// serve connects a client to the server until one of them closes.
func (p *Proxy) serve(client net.Conn, addr string) {
	defer func() { _ = client.Close() }()
	time.Sleep(time.Duration(p.round.Load())) // to open it
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	go func() {
		defer func() { _ = server.Close() }()
		p.carry(server, client, func() time.Duration {
			way := time.Duration(p.round.Load()) / 2
			if p.rare.Load() && rand.N(10) == 0 { //nolint:gosec // a delay
				way *= 5 // and one half back
			}
			return way
		})
	}()
	p.carry(client, server, func() time.Duration { return time.Duration(p.round.Load()) / 2 })
}

// carry copies what one side sends to the other, each piece after a time, until one of them closes.
func (p *Proxy) carry(to, from net.Conn, way func() time.Duration) {
	type piece struct {
		b   []byte
		due time.Time
	}
	pieces := make(chan piece, 1024)
	defer close(pieces)
	go func() {
		defer func() { _ = to.Close() }()
		for x := range pieces {
			time.Sleep(time.Until(x.due))
			p.stalled.RLock()
			_, _ = to.Write(x.b)
			p.stalled.RUnlock()
		}
	}()
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		if n > 0 {
			pieces <- piece{b[:n], time.Now().Add(way())}
		}
		if err != nil {
			return
		}
	}
}
