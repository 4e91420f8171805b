// Command table reads the output of Go benchmarks and prints a Markdown table of
// Diana's performance goals: medians over the rounds, and comparisons within the same
// round.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("table: ")
	plots := flag.String("plots", "", "also draw what grows with what, as SVG files in this folder")
	part := flag.Bool("part", false, "leave out what was not measured")
	flag.Parse()
	s, err := read(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	all := rows(s)
	if *part {
		all = slices.DeleteFunc(all, func(r row) bool { return strings.Contains(r.figure, notMeasured) })
	}
	if err := write(os.Stdout, machine(), all); err != nil {
		log.Fatal(err)
	}
	if *plots != "" {
		if err := draw(s, *plots); err != nil {
			log.Fatal(err)
		}
	}
}

// row is one line of the table.
type row struct {
	what   string
	figure string
	beside string // comparison and its result
	goal   string
}

func write(w io.Writer, title string, rows []row) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | figure | beside | goal |\n|---|---|---|---|\n", title)
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.what, r.figure, r.beside, r.goal)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// machine describes the machine of the figures.
func machine() string {
	cpu := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s, %s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.Version())
}
