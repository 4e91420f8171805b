package chaos

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy is a way to a server that can be made slow, or swallow what is sent.
type proxy struct {
	Addr   string
	target string

	delay   atomic.Int64 // nanoseconds by which answers come later
	swallow atomic.Bool  // as if packets vanished: nobody is told

	open, mostOpen     atomic.Int64 // connections
	probes, mostProbes atomic.Int64 // heartbeats that have not been answered
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Addr: l.Addr().String(), target: target}
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c, done) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(done)
		wg.Wait()
	})
	return p
}

// serve carries one connection. One of which anything was swallowed stays
// silent for ever, as after a firewall has forgotten it.
func (p *proxy) serve(c net.Conn, done chan struct{}) {
	raise(&p.mostOpen, p.open.Add(1))
	defer p.open.Add(-1)
	defer c.Close()
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		if !p.swallow.Load() {
			return
		}
		s, _ = net.Pipe()
	}
	defer s.Close()
	var silent, probing atomic.Bool
	answered := func() {
		if probing.CompareAndSwap(true, false) {
			p.probes.Add(-1)
		}
	}
	defer answered()
	ended := make(chan struct{}, 2)
	go func() { // requests
		copyAll(s, c, func(b []byte) bool {
			if bytes.Contains(b, []byte("{instances}")) && probing.CompareAndSwap(false, true) {
				raise(&p.mostProbes, p.probes.Add(1))
			}
			return p.carries(&silent)
		})
		ended <- struct{}{}
	}()
	go func() { // answers
		copyAll(c, s, func([]byte) bool {
			time.Sleep(time.Duration(p.delay.Load()))
			if !p.carries(&silent) {
				return false
			}
			answered()
			return true
		})
		if !silent.Load() { // who is silent does not say that he has gone, either
			ended <- struct{}{}
		}
	}()
	select {
	case <-ended:
	case <-done:
	}
}

func (p *proxy) carries(silent *atomic.Bool) bool {
	if p.swallow.Load() {
		silent.Store(true)
	}
	return !silent.Load()
}

// copyAll carries what is read to where it is to go, if it is let through.
func copyAll(to, from net.Conn, let func([]byte) bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 && let(b[:n]) {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// raise keeps the greatest value that was seen.
func raise(most *atomic.Int64, n int64) {
	for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
	}
}
