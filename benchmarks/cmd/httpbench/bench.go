package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/usage"
)

// bench is everything that runs.
type bench struct {
	o       options
	ctx     context.Context // of the one run that this is
	redis   *process
	client  *redis.Client
	running []*caddy
	pings   *pinger
}

// caddy is the running Caddy of a variant, or several that share its load.
type caddy struct {
	variant
	servers      []*process
	load, single *load
}

// warmUp is how long a variant is under load before it is measured.
const warmUp = 50 * time.Millisecond

// start starts Redis and all Caddys.
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
	for _, v := range variants {
		if v.name != bare && !o.only.MatchString(v.name) {
			continue
		}
		c := &caddy{variant: v}
		b.running = append(b.running, c)
		for i := range max(1, v.instances) {
			server, err := v.startCaddy(ctx, o, dir, fmt.Sprint(v.name, i), b.redis.addr)
			if err != nil {
				return b, err
			}
			c.servers = append(c.servers, server)
		}
		if err := c.connect(o); err != nil {
			return b, err
		}
	}
	return b, nil
}

// connect opens the connections, and uses up what a hot client may send.
func (c *caddy) connect(o options) (err error) {
	if c.load, err = dial(c.servers, o.connections, c.hot); err != nil {
		return err
	}
	if c.single, err = dial(c.servers, 1, c.hot); err != nil {
		return err
	}
	if c.denied {
		// Before the first request of all there is nothing to deny.
		first := c.single.conns[0]
		if _, err := first.Write(first.request); err != nil {
			return err
		}
		_, err = first.answer()
	}
	return err
}

func (b *bench) stop() {
	for _, c := range b.running {
		if c.load != nil {
			c.load.close()
		}
		if c.single != nil {
			c.single.close()
		}
		for _, s := range c.servers {
			s.stop()
		}
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

// throughput puts one variant under load and writes what it took.
func (b *bench) throughput(out io.Writer, c *caddy) error {
	if _, err := c.load.run(warmUp, c.want()); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	cpu, use, err := b.read(c)
	if err != nil {
		return err
	}
	r, err := c.load.run(b.o.each, c.want())
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

// read says what a variant's Caddy and, if it needs one, Redis have taken so
// far.
func (b *bench) read(c *caddy) (cpu time.Duration, use usage.Redis, err error) {
	if c.redis {
		if use, err = usage.ReadRedis(b.ctx, b.client, b.redis.pid); err != nil {
			return 0, use, err
		}
	}
	for _, s := range c.servers {
		one, err := usage.CPU(s.pid)
		if err != nil {
			return 0, use, err
		}
		cpu += one
	}
	return cpu, use, nil
}

// latencies measures, one request at a time, what a request takes, beside what
// Redis takes to answer a PING over a connection like that.
func (b *bench) latencies(out io.Writer) error {
	each := b.o.each / 2
	r, err := b.pings.run(each)
	if err != nil {
		return err
	}
	latency(out, "ping", r)
	for _, c := range b.running {
		if !c.alone {
			continue
		}
		r, err := c.single.run(each, c.want())
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

// complaints are the errors that the Caddys have told of: a Redis that was away for
// a moment makes the figures wrong.
func (b *bench) complaints() error {
	for _, c := range b.running {
		for _, s := range c.servers {
			// Warnings are of the configuration, and of the version of Redis.
			if lines := s.lines(`"logger":"rate_limit"`); strings.Contains(lines, `"level":"error"`) {
				return fmt.Errorf("%s: the figures are not what they should be:\n%s", c.name, lines)
			}
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
