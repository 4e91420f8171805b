// Command httpbench measures Diana over HTTP beside a bare Caddy and beside
// what is used in its place, all of them running at once and measured in turn,
// round after round. Its output is that of Go's benchmarks, one line for each
// variant and round.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

type options struct {
	rounds      int
	each        time.Duration // of load, for each variant in each round
	connections int
	only        *regexp.Regexp

	diana, peers string // Caddy with Diana, and with what it is compared to
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("httpbench: ")
	o := options{rounds: 12, each: 250 * time.Millisecond, connections: 32}
	if os.Getenv("DIANA_BENCH") == "long" {
		o.rounds, o.each = 60, time.Second
	}
	flag.IntVar(&o.rounds, "rounds", o.rounds, "how often everything is measured")
	flag.DurationVar(&o.each, "each", o.each, "how long each variant is under load in each round")
	flag.IntVar(&o.connections, "connections", o.connections, "how many connections load comes from")
	only := flag.String("only", "", "measure only the variants that this regular expression matches, and bare")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := measure(ctx, o, *only)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// measure builds the programs and measures them.
func measure(ctx context.Context, o options, only string) (err error) {
	if o.only, err = regexp.Compile(only); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "httpbench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	log.Print("building two Caddys")
	if o.diana, o.peers, err = build(ctx, dir); err != nil {
		return err
	}
	return run(ctx, o, dir, os.Stdout)
}

// run measures all variants, in turn, round by round. Each round begins with
// another variant.
func run(ctx context.Context, o options, dir string, out io.Writer) error {
	// One thread for the load leaves the most to what is measured.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b, err := start(ctx, o, dir)
	if err != nil {
		return err
	}
	defer b.stop()
	fmt.Fprintf(out, "goos: %s\ngoarch: %s\npkg: github.com/dianalimiter/diana/benchmarks/cmd/httpbench\n", runtime.GOOS, runtime.GOARCH)
	for round := range o.rounds {
		log.Printf("round %d of %d", round+1, o.rounds)
		for i := range b.running {
			if err := b.throughput(out, b.running[(i+round)%len(b.running)]); err != nil {
				return err
			}
		}
		if err := b.latencies(out); err != nil {
			return err
		}
	}
	return b.complaints()
}
