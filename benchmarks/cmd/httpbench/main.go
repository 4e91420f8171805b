// Command httpbench measures Diana over HTTP and compares it with a bare Caddy and with
// other limiters. All of them run at once and are measured in turn, in rounds. The
// output has the format of Go benchmarks, one line per variant and round.
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
	each        time.Duration // load per variant and round
	lone        time.Duration // sequential requests per variant and round
	connections int
	only        *regexp.Regexp

	diana, peers string // Caddy with Diana, and with the other limiters; empty: build it
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
	flag.DurationVar(&o.lone, "lone", o.lone, "duration of the latency measurement of each variant in each round")
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

// run measures all variants in turn, in rounds.
func run(ctx context.Context, o options, dir string, out io.Writer) error {
	// A single thread for the load leaves most of the machine to what is measured.
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
