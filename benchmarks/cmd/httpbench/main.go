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
	lone        time.Duration // of one request after the other, likewise
	connections int
	only        *regexp.Regexp

	diana, peers string // Caddy with Diana, and with what it is compared to; empty: not yet built
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("httpbench: ")
	o := options{rounds: 80, each: 25 * time.Millisecond, lone: 10 * time.Millisecond, connections: 32}
	if os.Getenv("DIANA_BENCH") == "long" {
		o.rounds = 1000
	}
	flag.IntVar(&o.rounds, "rounds", o.rounds, "how often everything is measured")
	flag.DurationVar(&o.each, "each", o.each, "how long each variant is under load in each round")
	flag.DurationVar(&o.lone, "lone", o.lone, "how long each variant is asked by one connection in each round")
	flag.IntVar(&o.connections, "connections", o.connections, "how many connections load comes from")
	flag.StringVar(&o.diana, "diana", "", "a Caddy with Diana; left out, one is built")
	flag.StringVar(&o.peers, "peers", "", "a Caddy with what Diana is compared with; left out, one is built")
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
	if err := build(ctx, dir, &o); err != nil {
		return err
	}
	return run(ctx, o, dir, os.Stdout)
}

// run measures all variants, in turn, round by round.
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
		if round%50 == 0 {
			log.Printf("round %d of %d", round+1, o.rounds)
		}
		if err := b.round(out, round); err != nil {
			return err
		}
	}
	return b.complaints()
}
