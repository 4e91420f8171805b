package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/freeport"
	"github.com/dianalimiter/diana/internal/testkit/usage"
)

// bench is the running servers.
type bench struct {
	o       options
	ctx     context.Context // of this run
	redis   *process
	client  *redis.Client
	servers []*process
	running []*group
	pings   *pinger
}

// group is the sites of one server, which are measured in sequence.
type group struct {
	sites []*site
	every int // interval in rounds
}

// site is a running variant, in one process or in several that share its load.
type site struct {
	*variant
	in           []*process
	load, single *load
}

// warmUp is how long a variant is loaded before it is measured.
const warmUp = 10 * time.Millisecond

// start starts Redis and all Caddy processes.
func start(ctx context.Context, o options, dir string) (b *bench, err error) {
	b = &bench{o: o, ctx: ctx}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	if b.redis, err = startRedis(ctx, dir); err != nil {
		return b, err
	}
	b.client = redis.NewClient(&redis.Options{Addr: b.redis.addr, Protocol: 2, DisableIdentity: true})
	if b.pings, err = newPinger(b.redis.addr); err != nil {
		return b, err
	}
	for i := range servers {
		if s := servers[i].only(o.only); s != nil {
			if err := b.startServer(s, dir); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

// only returns the server with the selected variants and those they are compared with,
// or nil if none is selected.
func (s *server) only(names *regexp.Regexp) *server {
	some := *s
	some.variants, some.selected = s.variants[:1:1], names.MatchString(s.variants[0].name)
	for _, v := range s.variants[1:] {
		if names.MatchString(v.name) {
			some.variants, some.selected = append(some.variants, v), true
		}
	}
	if !some.selected {
		return nil
	}
	return &some
}

// startServer starts a server and opens the connections to its variants.
func (b *bench) startServer(s *server, dir string) error {
	ports := make([][]int, max(1, s.instances)) // by instance and variant
	var in []*process
	for i := range ports {
		for range s.variants {
			port, err := freeport.Get()
			if err != nil {
				return err
			}
			ports[i] = append(ports[i], port)
		}
		p, err := s.startCaddy(b.ctx, b.o, dir, fmt.Sprint(s.name, i), ports[i], b.redis.addr)
		if err != nil {
			return err
		}
		in = append(in, p)
		b.servers = append(b.servers, p)
	}
	g := &group{every: max(1, s.every)}
	b.running = append(b.running, g)
	for i := range s.variants {
		v := &site{variant: &s.variants[i], in: in}
		g.sites = append(g.sites, v)
		var addrs []string
		for _, of := range ports {
			addrs = append(addrs, loopback(of[i]))
		}
		if err := v.connect(addrs, b.o); err != nil {
			return err
		}
	}
	return nil
}

// connect opens the connections and uses up the limit of a hot client.
func (c *site) connect(addrs []string, o options) (err error) {
	if c.load, err = dial(addrs, o.connections, c.hot); err != nil {
		return err
	}
	if c.single, err = dial(addrs, 1, c.hot); err != nil {
		return err
	}
	if c.denied {
		// The first request is admitted.
		first := c.single.conns[0]
		if _, err := first.Write(first.request); err != nil {
			return err
		}
		_, err = first.answer()
	}
	return err
}

func (b *bench) stop() {
	for c := range b.sites() {
		if c.load != nil {
			c.load.close()
		}
		if c.single != nil {
			c.single.close()
		}
	}
	for _, p := range b.servers {
		p.stop()
	}
	if b.client != nil {
		_ = b.client.Close()
	}
	if b.pings != nil {
		_ = b.pings.Close()
	}
	if b.redis != nil {
		b.redis.stop()
	}
}

// sites returns the sites of all servers.
func (b *bench) sites() iter.Seq[*site] {
	return func(yield func(*site) bool) {
		for _, g := range b.running {
			for _, c := range g.sites {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// round measures once everything that is due in this round. The order changes from
// round to round, because a processor that has just run something else is slower at
// first.
func (b *bench) round(out io.Writer, round int) error {
	for i := range b.running {
		g := b.running[(i+round)%len(b.running)]
		if round%g.every != 0 {
			continue
		}
		first, long := round/g.every, time.Duration(g.every)*b.o.each
		warm := long
		for j := range g.sites {
			c := g.sites[(first+j)%len(g.sites)]
			if c.latencyOnly {
				continue
			}
			if err := b.throughput(out, c, warm, long); err != nil {
				return err
			}
			warm = time.Duration(g.every) * warmUp
		}
	}
	return b.latencies(out, round)
}

// throughput loads one variant and writes its results.
func (b *bench) throughput(out io.Writer, c *site, warm, long time.Duration) error {
	if _, err := c.load.run(warm, c.want()); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	cpu, use, err := b.read(c)
	if err != nil {
		return err
	}
	r, err := c.load.run(long, c.want())
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	cpuAfter, useAfter, err := b.read(c)
	if err != nil {
		return err
	}
	use = useAfter.Since(use)
	each := func(d time.Duration) float64 { return micros(d) / float64(r.requests) }
	caddyUs := each(cpuAfter - cpu)
	fmt.Fprintf(out, "BenchmarkHTTP/%s\t%d\t%.2f cpu-us/op\t%.2f caddy-us/op", c.name, r.requests, caddyUs+each(use.CPU), caddyUs)
	if c.redis {
		fmt.Fprintf(out, "\t%.2f redis-cpu-us/op\t%.2f redis-us/op\t%.4f redis-calls/op", each(use.CPU), each(use.Inside), float64(use.Calls)/float64(r.requests))
	}
	fmt.Fprintf(out, "\t%.0f req/s\t%.1f p50-us\t%.1f p99-us\n", float64(r.requests)/r.took.Seconds(), micros(r.quantile(0.5)), micros(r.quantile(0.99)))
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// read returns the usage so far of a variant's Caddy and, if it uses one, of Redis.
func (b *bench) read(c *site) (cpu time.Duration, use usage.Redis, err error) {
	if c.redis {
		if use, err = usage.ReadRedis(b.ctx, b.client, b.redis.pid); err != nil {
			return 0, use, err
		}
	}
	for _, s := range c.in {
		one, err := usage.CPU(s.pid)
		if err != nil {
			return 0, use, err
		}
		cpu += one
	}
	return cpu, use, nil
}

// latencies measures the latency of single requests, and of a PING to Redis over a
// similar connection, in an order that changes, too.
func (b *bench) latencies(out io.Writer, round int) error {
	r, err := b.pings.run(b.o.lone)
	if err != nil {
		return err
	}
	latency(out, "ping", r)
	all := slices.Collect(b.sites())
	for i := range all {
		c := all[(i+round)%len(all)]
		if !c.latency && !c.latencyOnly {
			continue
		}
		r, err := c.single.run(b.o.lone, c.want())
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		latency(out, c.name, r)
	}
	return nil
}

func latency(out io.Writer, name string, r *result) {
	fmt.Fprintf(out, "BenchmarkLatency/%s\t%d\t%.1f p50-us\t%.1f p99-us\n", name, r.requests, micros(r.quantile(0.5)), micros(r.quantile(0.99)))
}

// complaints returns an error if a Caddy has logged one: an outage of Redis, however
// short, invalidates the figures.
func (b *bench) complaints() error {
	for _, p := range b.servers {
		// Warnings are about the configuration and the version of Redis.
		if lines := p.lines(`"logger":"rate_limit"`); strings.Contains(lines, `"level":"error"`) {
			return fmt.Errorf("%s: errors invalidate the figures:\n%s", p.name, lines)
		}
	}
	return nil
}

// pinger measures the round trip to Redis.
type pinger struct {
	net.Conn
	r *bufio.Reader
}

func newPinger(addr string) (*pinger, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &pinger{c, bufio.NewReader(c)}, nil
}

func (p *pinger) run(d time.Duration) (*result, error) {
	r := new(result)
	start := time.Now()
	if err := p.SetDeadline(start.Add(d + slack)); err != nil {
		return nil, err
	}
	for now := start; now.Sub(start) < d; {
		if _, err := p.Write([]byte("PING\r\n")); err != nil {
			return nil, err
		}
		if line, err := p.r.ReadString('\n'); err != nil || line != "+PONG\r\n" {
			return nil, fmt.Errorf("PING: %q: %w", line, err)
		}
		then := now
		now = time.Now()
		r.sorted = append(r.sorted, now.Sub(then))
	}
	r.took, r.requests = time.Since(start), len(r.sorted)
	slices.Sort(r.sorted)
	return r, nil
}
