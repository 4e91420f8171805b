// Command timing draws docs/timing.svg: the decisions of each algorithm for the same
// requests. It runs the algorithms with a virtual clock.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"image/color"
	"log"
	"os"

	"github.com/caddyserver/caddy/v2"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/dianalimiter/diana/algorithms"
)

const (
	limit  = 5
	window = int64(1e6) // microseconds
	first  = 100 * window
)

// rows are the algorithms in the order of docs/algorithms.md, from bottom to top.
var rows = []struct{ label, name, options string }{
	{"leaky_bucket", "leaky_bucket", `{"burst":5}`},
	{"token_bucket step 1s", "token_bucket", `{"step":1000000000}`},
	{"token_bucket, gcra", "gcra", `{}`},
	{"sliding_window", "sliding_window", `{"buckets":10}`},
	{"sliding_log", "sliding_log", `{}`},
	{"fixed_window align", "fixed_window", `{"align":true}`},
	{"fixed_window", "fixed_window", `{}`},
}

// arrivals returns the times of the requests: eight at the end of a second, eight at
// the beginning of the next, then one every 110 ms.
func arrivals() (list []int64) {
	for _, at := range []int64{850_000, 1_150_000} {
		for i := range int64(8) {
			list = append(list, first+at+i*15_000)
		}
	}
	for at := int64(1_600_000); at < 4_000_000; at += 110_000 {
		list = append(list, first+at)
	}
	return list
}

// outcome is the results of the requests of one row, in seconds.
type outcome struct{ admitted, denied, left []float64 }

func judge(name, options string) (o outcome, err error) {
	m, err := caddy.GetModule(algorithms.Namespace + "." + name)
	if err != nil {
		return o, err
	}
	alg := m.New()
	if err := json.Unmarshal([]byte(options), alg); err != nil {
		return o, err
	}
	rule, err := alg.(algorithms.Algorithm).Compile(algorithms.Spec{Limit: limit, Window: window, Cost: 1})
	if err != nil {
		return o, err
	}
	state := make(algorithms.State, rule.Words())
	for _, now := range arrivals() {
		at := float64(now-first) / 1e6
		rule.Repair(state, now)
		v := rule.Judge(state, now, 1, 0)
		if !v.Admit {
			o.denied = append(o.denied, at)
			continue
		}
		if g, ok := rule.(algorithms.Growing); ok {
			if need := g.Need(state, now, 1); need > len(state) {
				longer := make(algorithms.State, need)
				g.Move(longer, state)
				state = longer
			}
		}
		rule.Charge(state, now, 1, v.Delay)
		if o.admitted = append(o.admitted, at); v.Delay > 0 {
			o.left = append(o.left, at+float64(v.Delay)/1e6)
		}
	}
	return o, nil
}

func drawing() ([]byte, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("the same requests under %d/1s", limit)
	p.X.Label.Text = "seconds"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0.6, 4.1, -0.6, float64(len(rows))+0.4
	p.Add(plotter.NewGrid())
	labels := make([]plot.Tick, len(rows))
	kinds := []struct {
		name  string
		style draw.GlyphStyle
		of    func(outcome) []float64
	}{
		{"denied", glyph(color.RGBA{R: 200, A: 255}, draw.CrossGlyph{}), func(o outcome) []float64 { return o.denied }},
		{"admitted", glyph(color.RGBA{G: 130, B: 60, A: 255}, draw.CircleGlyph{}), func(o outcome) []float64 { return o.admitted }},
		{"leaves after its turn", glyph(color.RGBA{B: 200, A: 255}, draw.PlusGlyph{}), func(o outcome) []float64 { return o.left }},
	}
	points := make([]plotter.XYs, len(kinds))
	for y, row := range rows {
		o, err := judge(row.name, row.options)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.label, err)
		}
		labels[y] = plot.Tick{Value: float64(y), Label: row.label}
		for k, kind := range kinds {
			for _, x := range kind.of(o) {
				at := float64(y)
				if k == 2 {
					at -= 0.25 // below its arrival
				}
				points[k] = append(points[k], plotter.XY{X: x, Y: at})
			}
		}
	}
	p.Y.Tick.Marker = plot.ConstantTicks(labels)
	for k, kind := range kinds {
		s, err := plotter.NewScatter(points[k])
		if err != nil {
			return nil, err
		}
		s.GlyphStyle = kind.style
		p.Add(s)
		p.Legend.Add(kind.name, s)
	}
	p.Legend.Top, p.Legend.YOffs = true, -vg.Points(2)
	canvas := vgsvg.New(9*vg.Inch, 4.5*vg.Inch)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

func glyph(c color.Color, shape draw.GlyphDrawer) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: vg.Points(3), Shape: shape}
}

func main() {
	out := flag.String("o", "../docs/timing.svg", "the file to write")
	flag.Parse()
	b, err := drawing()
	if err == nil {
		err = os.WriteFile(*out, b, 0o600)
	}
	if err != nil {
		log.Fatal(err)
	}
}
