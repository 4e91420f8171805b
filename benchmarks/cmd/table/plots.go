package main

import (
	"image/color"
	"math"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// chart is one chart: a parameter and its effect.
type chart struct {
	file, title, x, y string
	lines             bool // lines instead of bars
	ticks             []string
	series            []series
}

// series is a line of a chart: a benchmark's median for each tick.
type series struct {
	name, unit string
	benchmarks []string
}

var charts = []chart{
	{
		file: "keys.svg", title: "One decision in the local store", x: "keys", y: "CPU ns", lines: true,
		ticks: []string{"10k", "100k", "1M", "10M"},
		series: []series{{"Diana", cpu, []string{
			"Table/keys=10k/decide", "Table/keys=100k/decide", "Table/keys=1M/decide", "Table/keys=10M/decide",
		}}, {"a map of Go behind a lock", cpu, []string{"Table/keys=10k/map", "", "", "Table/keys=10M/map"}}},
	},
	{
		file: "rules.svg", title: "One request with more rules or zones", x: "rules, or zones of one rule", y: "CPU ns", lines: true,
		ticks: []string{"1", "2", "4", "8"},
		series: []series{
			{"rules of one zone", cpu, []string{"AllowRules/rules=1", "AllowRules/rules=2", "AllowRules/rules=4", "AllowRules/rules=8"}},
			{"zones", cpu, []string{"AllowZones/zones=1", "AllowZones/zones=2", "AllowZones/zones=4", "AllowZones/zones=8"}},
		},
	},
	{
		file: "peers.svg", title: "One allowed request, in process", y: "CPU ns",
		ticks: []string{"the loop", "Diana", "x/time/rate", "throttled", "go-limiter", "mholt"},
		series: []series{{"", cpu, []string{
			"PeersAllow/bare", "PeersAllow/diana", "PeersAllow/x-time-rate", "PeersAllow/throttled", "PeersAllow/go-limiter", "PeersAllow/mholt",
		}}},
	},
}

// draw writes all charts into a folder.
func draw(s samples, folder string) error {
	for _, c := range charts {
		p := plot.New()
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
		p.BackgroundColor = color.White
		p.NominalX(c.ticks...)
		for i, line := range c.series {
			if err := c.add(p, s, line, i); err != nil {
				return err
			}
		}
		p.X.Min, p.X.Max, p.Y.Min = -0.5, float64(len(c.ticks))-0.5, 0
		if err := p.Save(14*vg.Centimeter, 8*vg.Centimeter, filepath.Join(folder, c.file)); err != nil {
			return err
		}
	}
	return nil
}

var colours = []color.Color{color.RGBA{0x1f, 0x5f, 0xa8, 0xff}, color.RGBA{0xc0, 0x5a, 0x1e, 0xff}}

func (c *chart) add(p *plot.Plot, s samples, line series, i int) error {
	if !c.lines {
		values := make(plotter.Values, len(line.benchmarks))
		for x, name := range line.benchmarks {
			if v := s.median(name, line.unit); !math.IsNaN(v) {
				values[x] = v
			}
		}
		bars, err := plotter.NewBarChart(values, vg.Centimeter)
		if err != nil {
			return err
		}
		bars.Color = colours[i]
		p.Add(bars)
		return nil
	}
	var points plotter.XYs
	for x, name := range line.benchmarks {
		if v := s.median(name, line.unit); !math.IsNaN(v) {
			points = append(points, plotter.XY{X: float64(x), Y: v})
		}
	}
	if len(points) == 0 {
		return nil
	}
	l, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	l.Color, dots.Color = colours[i], colours[i]
	p.Add(l, dots)
	p.Legend.Add(line.name, l, dots)
	p.Legend.Top, p.Legend.Left = true, true
	return nil
}
