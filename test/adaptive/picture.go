package main

import (
	"fmt"
	"os"
	"strings"
)

// overloaded is the run of the picture: a minute of 0.75 of the capacity, two of twice the capacity, two of 0.75 again. Clients wait for
// two seconds, and then try again, once.
func overloaded() *scenario {
	return defaults([]*scenario{{
		name: "picture", seconds: 300, up: fixedWorkers(40), retries: 1,
		src: varying(steps(0, 150, 60, 400, 180, 150), 400, exponential(.2)),
	}})[0]
}

// unlimited is no limit.
const unlimited = 1 << 30

// draw writes the picture of docs/overload.md: what is answered in time each second, without a limit and with the product's.
func draw(file string) error {
	const width, height, left, top, full = 680., 180., 60., 40., 420.
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 270" font-family="sans-serif" font-size="13" role="img" aria-label="Requests a second that are answered in time, during an overload, with and without in_flight adaptive">
<style>text{fill:#333}path{fill:none;stroke-width:2}.o{stroke:#999;stroke-dasharray:4 3}.w{stroke:#c0504d}.a{stroke:#2b7bb9}.g{stroke:#999;stroke-width:1}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>
`)
	y := func(rate float64) float64 { return top + height*(1-rate/full) }
	for _, rate := range []float64{0, 100, 200, 300, 400} {
		fmt.Fprintf(&b, "<text x=\"10\" y=\"%.0f\">%.0f/s</text><path class=\"g\" d=\"M%.0f %.0fH%.0f\"/>\n", y(rate)+4, rate, left, y(rate), left+width)
	}
	for m := range 6 {
		fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%.0f\">%d min</text>\n", left+width*float64(m)/5-14, top+height+20, m)
	}
	line := func(class string, of []float64) {
		fmt.Fprintf(&b, `<path class="%s" d="`, class)
		const each = 2 // seconds a point
		for i := 0; i+each <= len(of) && i < 300; i += each {
			sum := 0.
			for _, n := range of[i : i+each] {
				sum += n
			}
			fmt.Fprintf(&b, "%c%.0f %.0f", "LM"[b2i(i == 0)], left+width*float64(i)/300, y(sum/each))
		}
		b.WriteString("\"/>\n")
	}
	sc := overloaded()
	with, without := run(sc, newProduct, 1), run(sc, fixedAt(unlimited), 1)
	line("o", with.offeredAt)
	line("w", without.goodAt)
	line("a", with.goodAt)
	fmt.Fprintf(&b, `<text x="60" y="18">offered (dashed), answered in time with <tspan fill="#2b7bb9">in_flight adaptive</tspan> and <tspan fill="#c0504d">without a limit</tspan>; the upstream can do 200/s</text>
</svg>
`)
	return os.WriteFile(file, []byte(b.String()), 0o644) //nolint:gosec // a picture of the documentation
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
