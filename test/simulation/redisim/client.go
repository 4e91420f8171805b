package redisim

import (
	"bufio"
	"errors"
	"net"
	"sync"
)

// client is one connection and what the server remembers of it.
type client struct {
	s          *Server
	conn       net.Conn
	id         int64
	generation int // of the server, in which it connected

	in  *bufio.Reader
	out []byte // replies that are not sent yet

	// Guarded by the server's mutex.
	resp     int // the version of the protocol
	user     bool
	name     string
	asking   bool
	readOnly bool // READONLY: it may read from a replica of a Cluster
	channels map[string]bool
	quit     bool

	// pushed are the messages to a subscriber, which another goroutine sends: whoever
	// publishes does not wait for a subscriber.
	pushing sync.Once
	pushMu  sync.Mutex
	pushed  []byte
	wake    chan struct{}
}

func newClient(s *Server, conn net.Conn, id int64, generation int) *client {
	c := &client{s: s, conn: conn, id: id, generation: generation, resp: 2, user: s.o.Password == ""}
	c.in = bufio.NewReaderSize(filler{c}, maxInline)
	return c
}

// filler sends the replies before it waits for further commands.
type filler struct{ c *client }

func (f filler) Read(b []byte) (int, error) {
	if err := f.c.flush(); err != nil {
		return 0, err
	}
	return f.c.conn.Read(b)
}

// flush sends what is to be sent.
func (c *client) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	if c.wake != nil { // messages may be sent at the same time
		c.push(c.out)
		c.out = c.out[:0]
		return nil
	}
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// loop executes the client's commands until its connection ends.
func (c *client) loop() {
	defer c.end()
	for {
		args, err := readCommand(c.in)
		if wrong := protocolError(""); errors.As(err, &wrong) {
			c.out = fail(wrong.Error()).append(c.out, 2)
			_ = c.flush()
			return
		}
		if err != nil {
			return
		}
		if len(args) == 0 {
			continue
		}
		if !c.s.enter(c) {
			return
		}
		var alive bool
		c.out, alive = c.s.execute(c, args, c.out)
		c.s.leave()
		if !alive {
			return
		}
		if c.quit {
			_ = c.flush()
			return
		}
	}
}

// startPushing has messages and replies sent by a goroutine of their own from now on. The
// server's mutex is held.
func (c *client) startPushing() {
	c.pushing.Do(func() {
		c.wake = make(chan struct{}, 1)
		go c.sendPushed()
	})
}

// push queues bytes for a subscriber.
func (c *client) push(b []byte) {
	c.pushMu.Lock()
	c.pushed = append(c.pushed, b...)
	c.pushMu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *client) sendPushed() {
	for range c.wake {
		c.pushMu.Lock()
		b := c.pushed
		c.pushed = nil
		c.pushMu.Unlock()
		if _, err := c.conn.Write(b); err != nil {
			_ = c.conn.Close()
		}
	}
}

// end forgets a client whose connection has ended.
func (c *client) end() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	delete(c.s.clients, c)
	if c.wake != nil {
		close(c.wake)
	}
}
