package chaos

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy is a TCP proxy that can delay replies or drop all data.
type proxy struct {
	Addr   string
	target atomic.Pointer[string] // of new connections

	delay   atomic.Int64 // delay of replies in nanoseconds
	swallow atomic.Bool  // drop data without closing connections

	open, mostOpen     atomic.Int64 // connections
	probes, mostProbes atomic.Int64 // heartbeats without a reply yet
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Addr: l.Addr().String()}
	p.target.Store(&target)
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

// serve proxies one connection. A connection that has lost data stays silent, as
// one whose entry a firewall has dropped.
func (p *proxy) serve(c net.Conn, done chan struct{}) {
	raise(&p.mostOpen, p.open.Add(1))
	defer p.open.Add(-1)
	defer c.Close()
	s, err := net.Dial("tcp", *p.target.Load())
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
	go func() { // replies
		copyAll(c, s, func([]byte) bool {
			time.Sleep(time.Duration(p.delay.Load()))
			if !p.carries(&silent) {
				return false
			}
			answered()
			return true
		})
		if !silent.Load() { // a silent connection is not closed either
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

// copyAll copies the chunks for which let returns true.
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

// raise stores n in most if it is greater.
func raise(most *atomic.Int64, n int64) {
	for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
	}
}
