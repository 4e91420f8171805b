// Command adaptive runs internal/adaptive, the code of the product, before simulated upstreams in virtual time, and
// known limits and queues beside it.
//
//	go run .              all tables, means of three seeds
//	go run . -s knee      the scenarios whose name contains this
//	go run . -a Envoy     the limits whose name contains this
//	go run . -seeds 1     of one seed
//	go run . -picture ../../docs/overload.svg
package main

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand"
	"os"
	"slices"
	"sort"
	"strings"
)

// contender is a limit.
type contender struct {
	name string
	gate func(seed int64) func(i int, s *sim) gate
}

func ours(int64) func(int, *sim) gate { return newProduct }

func known(l func(*rand.Rand) limit) func(int64) func(int, *sim) gate {
	return func(seed int64) func(int, *sim) gate {
		rng := rand.New(rand.NewSource(seed + 99)) //nolint:gosec // a simulation
		return func(_ int, s *sim) gate { return &other{s: s, l: l(rng), q: &fifo{most: s.sc.waiting}} }
	}
}

func fixedAt(n int) func(int, *sim) gate {
	return func(_ int, s *sim) gate {
		return &other{s: s, l: fixed(n / max(1, s.sc.gates)), q: &fifo{most: s.sc.waiting}}
	}
}

var onlyLimits string // those whose name contains this

func contenders() []contender {
	return slices.DeleteFunc([]contender{
		{"adaptive", ours},
		{"Gradient2", known(newGradient2)},
		{"Vegas", known(newVegas)},
		{"AIMD", known(newAIMD)},
		{"Envoy", known(newEnvoy)},
		{"failsafe-go", known(newFailsafe)},
	}, func(c contender) bool { return !strings.Contains(c.name, onlyLimits) })
}

func quantile(a []float64, q float64) float64 {
	if len(a) == 0 {
		return math.NaN()
	}
	sort.Float64s(a)
	return a[min(len(a)-1, int(q*float64(len(a))))]
}

// best returns what the best fixed limit gives: the most that is good, and of limits within half a percent of it the one
// with the shortest latency.
func best(sc *scenario, seed int64) *result {
	if sc.best > 0 {
		return run(sc, fixedAt(sc.best), seed)
	}
	var found *result
	for _, n := range []int{1, 2, 4, 8, 12, 16, 20, 28, 36, 40, 44, 50, 60, 64, 70, 90, 130, 200, 250} {
		if n < sc.gates || n%max(1, sc.gates) != 0 {
			continue
		}
		r := run(sc, fixedAt(n), seed)
		if found == nil || r.good > found.good*1.005 || r.good > found.good*.995 && quantile(r.latencies, .99) < quantile(found.latencies, .99) {
			found = r
		}
	}
	return found
}

func main() {
	only := flag.String("s", "", "only scenarios whose name contains this")
	seeds := flag.Int64("seeds", 3, "means of so many")
	onlyLimit := flag.String("a", "", "only limits whose name contains this")
	picture := flag.String("picture", "", "write the picture of docs/overload.md to this file")
	flag.Parse()
	if *picture != "" {
		if err := draw(*picture); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	onlyLimits = *onlyLimit
	fmt.Println("goodput, % of the best fixed limit (the least of the seeds); p99 ms; refused %; limit after a minute and at the end")
	limits("the model's", models(), *only, *seeds)
	limits("others", heldBack(), *only, *seeds)
	queues(*only, *seeds)
}

func limits(title string, list []*scenario, only string, seeds int64) {
	all := contenders()
	sums, worst, n := make([]float64, len(all)), make([]float64, len(all)), 0.
	for _, sc := range list {
		if !strings.Contains(sc.name, only) {
			continue
		}
		fmt.Printf("\n%s\n", sc.name)
		bests := make([]*result, seeds)
		for i := range bests {
			bests[i] = best(sc, int64(i)+1)
		}
		n++
		for i, c := range all {
			row := rowOf(sc, c, bests)
			sums[i] += row.good
			worst[i] = min(cmp.Or(worst[i], 1000), row.good)
			fmt.Printf("  %-12s %5.1f (%5.1f) %7.0f ms %6.2f %% %5.0f %5.0f\n", c.name, row.good, row.least, row.p99, row.refused, row.early, row.late)
		}
	}
	fmt.Printf("\n%s: goodput, mean and worst\n", title)
	for i, c := range all {
		fmt.Printf("  %-12s %5.1f %5.1f\n", c.name, sums[i]/n, worst[i])
	}
}

// row is a line of a table.
type row struct{ good, least, p99, refused, early, late float64 }

func rowOf(sc *scenario, c contender, bests []*result) (w row) {
	w.least = math.Inf(1)
	for i, b := range bests {
		r := run(sc, c.gate(int64(i)+1), int64(i)+1)
		x, n := 100*r.good/b.good, float64(len(bests))
		w.good += x / n
		w.least = min(w.least, x)
		w.p99 += 1000 * quantile(r.latencies, .99) / n
		w.refused += 100 * r.denied / max(1, r.attempts) / n
		w.early += r.limits[min(60, len(r.limits)-1)] / n
		w.late += r.limits[len(r.limits)-1] / n
	}
	return w
}

// queues compares queues before the same limit, that of the product's; the others have the best fixed one.
func queues(only string, seeds int64) {
	kinds := []contender{
		{"adaptive", ours},
		{"first come", queued(func(most int) queue { return &fifo{most: most} })},
		{"last come", queued(func(most int) queue { return &fifo{most: most, lifo: true} })},
		{"DAGOR", queued(func(most int) queue { return newDagor(most) })},
	}
	for _, sc := range fairness() {
		if !strings.Contains(sc.name, only) {
			continue
		}
		fmt.Printf("\n%s\n", sc.name)
		for _, k := range kinds {
			var good, first, second, light float64
			for i := range seeds {
				r := run(sc, k.gate(i+1), i+1)
				n := float64(seeds)
				good += r.good / (sc.seconds - sc.from) / n
				first += r.band(0) / n
				second += r.band(1) / n
				light += r.light() / n
			}
			fmt.Printf("  %-12s good %4.0f/s, of the first class %5.1f %%, of the second %5.1f %%, of light keys %5.1f %%\n", k.name, good, first, second, light)
		}
	}
}

func queued(q func(most int) queue) func(int64) func(int, *sim) gate {
	return func(int64) func(int, *sim) gate {
		return func(_ int, s *sim) gate { return &other{s: s, l: fixed(40), q: q(s.sc.waiting)} }
	}
}

// band returns how many percent of a band's requests were good.
func (r *result) band(b int) float64 { return 100 * r.bands[b][1] / max(1, r.bands[b][0]) }

// light returns how many percent of the light keys' requests were good.
func (r *result) light() float64 {
	var offered, good float64
	for k, v := range r.keys {
		if k >= lightKeys {
			offered, good = offered+v[0], good+v[1]
		}
	}
	return 100 * good / max(1, offered)
}
