package redisim

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// relay passes the commands of clients on to a real Redis and to a simulated one, one
// command at a time, and compares the replies and what the keys hold afterwards. Their clocks
// stand still while they execute it, however long that takes.
type relay struct {
	t      *testing.T
	real   *redistest.Server
	clock  *redistest.Clock
	sim    *Server
	admin  *redis.Client
	listen net.Listener

	now   atomic.Int64 // of both, in microseconds
	lose  atomic.Int64 // one in so many replies is lost with its connection; 0: none
	ahead atomic.Int64 // of the system's clock, in microseconds

	mu       sync.Mutex
	compared map[string]int // replies by command
	entries  map[byte]int   // in calls of the script, by kind
	keys     int            // values compared
}

// newRelay starts a relay and a real Redis.
func newRelay(t *testing.T, args ...string) *relay {
	y := &relay{t: t, compared: make(map[string]int), entries: make(map[byte]int)}
	y.real, y.clock = redistest.StartWithClock(t, args...)
	y.sim = New(Options{Address: y.real.Addr, Clock: func() time.Time { return time.UnixMicro(y.now.Load()) }})
	y.admin = redis.NewClient(&redis.Options{Addr: y.real.Addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { // after the stores, which still send
		y.mu.Lock()
		defer y.mu.Unlock()
		_ = y.admin.Close()
		y.admin = nil
	})
	var err error
	if y.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = y.listen.Close() })
	go func() {
		for {
			c, err := y.listen.Accept()
			if err != nil {
				return
			}
			go y.serve(c)
		}
	}()
	return y
}

// pair is a connection to both servers.
type pair struct {
	real, sim         net.Conn
	fromReal, fromSim *bufio.Reader
}

func (y *relay) dial() (*pair, error) {
	c, err := net.Dial("tcp", y.real.Addr)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	go y.sim.Serve(far)
	return &pair{c, near, bufio.NewReader(c), bufio.NewReader(near)}, nil
}

func (p *pair) close() {
	_ = p.real.Close()
	_ = p.sim.Close()
}

func (y *relay) serve(c net.Conn) {
	defer c.Close()
	p, err := y.dial()
	if err != nil {
		return
	}
	defer p.close()
	for in, n := bufio.NewReaderSize(c, maxInline), int64(1); ; n++ {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		if strings.EqualFold(args[0], "subscribe") { // messages come at any time
			_, _ = p.real.Write(encode(args))
			go func() { _, _ = io.Copy(p.real, in) }()
			_, _ = io.Copy(c, p.fromReal)
			return
		}
		answer := y.both(p, args)
		if lose := y.lose.Load(); lose > 0 && n%lose == 0 {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// encode encodes a command.
func encode(args []string) []byte {
	b := appendHead(nil, '*', int64(len(args)))
	for _, a := range args {
		b = text(a).append(b, 2)
	}
	return b
}

// readRaw reads a reply as it is.
func readRaw(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	switch line[0] {
	case '$':
		if n >= 0 {
			body := make([]byte, n+2)
			_, err = io.ReadFull(r, body)
			line = append(line, body...)
		}
	case '*', '>', '%', '~':
		if line[0] == '%' {
			n *= 2
		}
		for range n {
			item, err := readRaw(r)
			if err != nil {
				return nil, err
			}
			line = append(line, item...)
		}
	}
	return line, err
}

// uncompared are the commands whose replies name the server or a connection.
var uncompared = map[string]bool{"hello": true, "info": true, "client": true, "time": true, "publish": true}

// both executes a command at both servers and returns the reply of the real one.
func (y *relay) both(p *pair, args []string) []byte {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.admin == nil {
		return nil
	}
	name := strings.ToLower(args[0])
	y.stop()
	y.avoidExpiry(args)
	command := encode(args)
	_, _ = p.real.Write(command)
	want, err := readRaw(p.fromReal)
	if err != nil {
		return nil
	}
	_ = p.sim.SetDeadline(time.Now().Add(time.Minute))
	if _, err := p.sim.Write(command); err != nil {
		y.t.Errorf("%s: %v", name, err)
	}
	got, err := readRaw(p.fromSim)
	if err != nil {
		y.t.Errorf("%s: %v", name, err)
	}
	if uncompared[name] {
		return want
	}
	y.compared[name]++
	if name == "evalsha" {
		keys, _ := scriptKeys(args)
		for _, entry := range args[min(len(args), 4+len(keys)):] {
			if entry != "" {
				y.entries[entry[0]]++
			}
		}
	}
	if !bytes.Equal(got, want) {
		y.t.Errorf("%.300q\n got %.600q\nwant %.600q", args, got, want)
	}
	for _, k := range keysOf(args) {
		if !y.compareKey(k) {
			y.t.Errorf("after %.300q, replied %.200q", args, want)
		}
	}
	return want
}

// keysOf returns the keys of a command.
func keysOf(args []string) []string {
	cmd := commands[strings.ToLower(args[0])]
	if cmd == nil {
		return nil
	}
	return cmd.keysOf(args)
}

// stop has the clocks stand still at the present.
func (y *relay) stop() {
	now := time.Now().UnixMicro() + y.ahead.Load()
	y.now.Store(now)
	y.clock.Stop(time.UnixMicro(now))
	if at, err := y.admin.Time(context.Background()).Result(); err != nil || at.UnixMicro() != now { // it also has the server read its clock
		y.t.Errorf("TIME is %v, %v: want it to be %d", at, err, now)
	}
}

// step sets the real clock ahead by d more.
func (y *relay) step(d time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if d < 0 { // what has expired by the clock as it was is gone, in Redis sooner or later
		y.sim.mu.Lock()
		for _, k := range y.sim.keys.names(0) {
			if y.admin.Exists(context.Background(), k).Val() == 0 {
				y.sim.keys.remove(k)
			}
		}
		y.sim.mu.Unlock()
	}
	y.shift(d)
}

func (y *relay) shift(d time.Duration) {
	y.ahead.Add(d.Microseconds())
	y.stop()
}

// avoidExpiry moves the clocks on if a key of a command is about to expire: in which millisecond
// the real server notices is its own affair.
func (y *relay) avoidExpiry(args []string) {
	const margin = 20 // milliseconds
	for _, k := range keysOf(args) {
		y.sim.mu.Lock()
		v := y.sim.keys.values[k]
		near := v != nil && v.expires > 0 && abs(v.expires-y.now.Load()/1000) < margin
		y.sim.mu.Unlock()
		if near {
			y.shift(3 * margin * time.Millisecond)
		}
	}
}

func abs(n int64) int64 { return max(n, -n) }

// compareKey compares the values and the times to live of a key.
func (y *relay) compareKey(k string) bool {
	ctx := context.Background()
	pipe := y.admin.Pipeline()
	kind, value, expires := pipe.Type(ctx, k), pipe.Get(ctx, k), pipe.PExpireTime(ctx, k)
	_, _ = pipe.Exec(ctx)
	y.keys++
	x := &execution{s: y.sim, now: y.now.Load() / 1000}
	y.sim.mu.Lock()
	defer y.sim.mu.Unlock()
	if got := typeOf(x, []string{"", k}).text; got != kind.Val() {
		y.t.Errorf("%s is a %s, want %s", k, got, kind.Val())
		return false
	}
	if kind.Val() == "string" {
		if got := string(y.sim.keys.values[k].data); got != value.Val() {
			y.t.Errorf("%s\n got %q\nwant %q", k, got, value.Val())
			return false
		}
	}
	const rounding = 2
	v, want := y.sim.keys.get(k, x.now), expires.Val().Milliseconds()
	switch {
	case v == nil:
	case v.expires == 0 && expires.Val() == -1:
	case abs(v.expires-want) > rounding:
		y.t.Errorf("%s expires at %d, want %d", k, v.expires, want)
		return false
	}
	return true
}

// report logs what was compared. It fails the test if a kind of entry of the script was not.
func (y *relay) report() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.t.Logf("compared replies %v, entries of the script %v, and %d values", y.compared, y.entries, y.keys)
	for kind, name := range map[byte]string{1: "decide", 2: "finish", 3: "report", 4: "heartbeat", 6: "check", 7: "handover", 8: "peek", 9: "lease"} {
		if y.entries[kind] == 0 {
			y.t.Errorf("no %s was compared", name)
		}
	}
}
