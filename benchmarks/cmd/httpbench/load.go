package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// slack is the maximum delay of a response beyond the end of a load.
const slack = 20 * time.Second

// load sends requests sequentially over each of its persistent connections. It writes
// requests and parses responses itself, because it shares the machine with what it
// measures.
type load struct {
	conns []*conn
}

// result is the result of a load.
type result struct {
	requests int
	took     time.Duration
	sorted   []time.Duration // latencies
}

// quantile returns a quantile of the latency.
func (r *result) quantile(q float64) time.Duration {
	if len(r.sorted) == 0 {
		return 0
	}
	return r.sorted[min(len(r.sorted)-1, int(q*float64(len(r.sorted))))]
}

// dial opens connections to the addresses in turn. The requests come from many
// clients, or all from one.
func dial(addrs []string, connections int, oneClient bool) (*load, error) {
	l := new(load)
	for i := range connections {
		addr := addrs[i%len(addrs)]
		c, err := net.Dial("tcp", addr)
		if err != nil {
			l.close()
			return nil, err
		}
		l.conns = append(l.conns, newConn(c, addr, uint64(i), oneClient))
	}
	return l, nil
}

func (l *load) close() {
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// run sends requests for the duration d. Every response must have the given status.
func (l *load) run(d time.Duration, status int) (*result, error) {
	start := time.Now()
	errs := make([]error, len(l.conns))
	var wg sync.WaitGroup
	for i, c := range l.conns {
		wg.Go(func() { errs[i] = c.run(start.Add(d), status) })
	}
	wg.Wait()
	r := &result{took: time.Since(start)}
	for _, c := range l.conns {
		r.sorted = append(r.sorted, c.took...)
	}
	slices.Sort(r.sorted)
	r.requests = len(r.sorted)
	return r, errors.Join(errs...)
}

// conn is the client side of one connection.
type conn struct {
	net.Conn
	request []byte
	key     []byte // the part of the request that identifies the client
	hot     bool
	answers []byte
	random  *rand.Rand
	took    []time.Duration
}

const (
	keyHeader = "X-Key"
	keyDigits = 8
	clients   = 10_000 // requests come from random ones
)

func newConn(c net.Conn, host string, seed uint64, hot bool) *conn {
	request := []byte("GET /orders?page=2 HTTP/1.1\r\nHost: " + host +
		"\r\nUser-Agent: httpbench\r\nAccept: */*\r\n" + keyHeader + ": client-")
	at := len(request)
	request = append(request, "00000000\r\n\r\n"...)
	return &conn{
		Conn: c, request: request, key: request[at : at+keyDigits], hot: hot,
		answers: make([]byte, 0, 4096),
		random:  rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // reproducible
	}
}

func (c *conn) run(end time.Time, status int) error {
	if err := c.SetDeadline(end.Add(slack)); err != nil {
		return err
	}
	c.took = c.took[:0]
	for now := time.Now(); now.Before(end); {
		if !c.hot {
			c.choose(c.random.IntN(clients))
		}
		if _, err := c.Write(c.request); err != nil {
			return err
		}
		got, err := c.answer()
		if err != nil {
			return err
		}
		if got != status {
			return fmt.Errorf("status %d: want %d", got, status)
		}
		then := now
		now = time.Now()
		c.took = append(c.took, now.Sub(then))
	}
	return nil
}

// choose sets the client's number in the request.
func (c *conn) choose(client int) {
	for i := keyDigits - 1; i >= 0; i-- {
		c.key[i] = '0' + byte(client%10)
		client /= 10
	}
}

var (
	endOfHeader   = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
)

// answer reads one response and returns its status.
func (c *conn) answer() (status int, err error) {
	b := c.answers[:0]
	for {
		n, err := c.Read(b[len(b):cap(b)])
		if err != nil {
			return 0, err
		}
		b = b[:len(b)+n]
		head := bytes.Index(b, endOfHeader)
		if head < 0 && len(b) < cap(b) {
			continue
		}
		if head < 12 {
			return 0, fmt.Errorf("%q: want an HTTP response", b)
		}
		if status, err = strconv.Atoi(string(b[9:12])); err != nil {
			return 0, fmt.Errorf("%q: want an HTTP response", b[:head])
		}
		want, err := bodyLength(b[:head])
		if err != nil {
			return 0, err
		}
		if len(b) == head+len(endOfHeader)+want {
			return status, nil
		}
		if len(b) > head+len(endOfHeader)+want || len(b) == cap(b) {
			return 0, fmt.Errorf("%q: want one response of at most %d bytes", b, cap(b))
		}
	}
}

// bodyLength returns the length of the body from a response header.
func bodyLength(header []byte) (int, error) {
	at := bytes.Index(header, contentLength)
	if at < 0 {
		return 0, fmt.Errorf("%q: want a Content-Length", header)
	}
	value, _, _ := bytes.Cut(header[at+len(contentLength):], []byte("\r"))
	return strconv.Atoi(string(value))
}
