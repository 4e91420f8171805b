package cli

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/edit"
	"github.com/dianalimiter/diana/internal/topk"
)

//go:embed print.tmpl
var templates string

// printAnswer prints an answer by the template of this name.
func printAnswer(w io.Writer, name string, answer any) error {
	t, err := template.New("print.tmpl").Funcs(template.FuncMap{
		"about":   about,
		"ago":     func(now, t time.Time) string { return about(now.Sub(t).Seconds()) },
		"all":     safeAll,
		"bars":    bars,
		"inForce": inForce,
		"next":    func(i int) int { return i + 1 },
		"percent": func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) },
		"rules":   (*Zone).rules,
		"safe":    safe,
		"share":   func(part, of uint64) float64 { return float64(part) / float64(max(1, of)) },
		"span":    span,
		"sum":     sum,
		"things":  things,
		"trim":    strings.TrimSpace,
		"unnamed": unnamed,
		"window":  windowText,
	}).Parse(templates)
	if err != nil {
		return err
	}
	to := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	return errors.Join(t.ExecuteTemplate(to, name, answer), to.Flush())
}

const columnGap = 2

// safe quotes a text that could contain control sequences for a terminal.
func safe(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}

// safeAll quotes texts that are empty, too.
func safeAll(list []string) string {
	words := make([]string, len(list))
	for i, s := range list {
		if words[i] = safe(s); s == "" {
			words[i] = `""`
		}
	}
	return strings.Join(words, " ")
}

// span formats a duration in seconds, rounded for people.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	}
	return edit.DurationText(d)
}

// about formats a duration in seconds as people say it: of an hour and more, seconds do not matter,
// of two days and more, minutes.
func about(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	step, unit := time.Minute, "m"
	switch {
	case d < time.Hour:
		return span(seconds)
	case d >= 48*time.Hour:
		step, unit = time.Hour, "h"
	}
	d = d.Round(step)
	greater, name := time.Hour, "h"
	if unit == "h" {
		greater, name = 24*time.Hour, "d"
	}
	text := strconv.FormatInt(int64(d/greater), 10) + name
	if rest := d % greater / step; rest > 0 {
		text += " " + strconv.FormatInt(int64(rest), 10) + unit
	}
	return text
}

// things returns an integer with what it is a number of.
func things(n any, thing string) string {
	if s := fmt.Sprint(n); s != "1" {
		return s + " " + thing + "s"
	}
	return "1 " + thing
}

// String returns the rule as a Caddyfile has it, with its name in front.
func (r *Rule) String() string {
	limit, otherwise := strconv.FormatInt(r.Limit, 10), ""
	if r.LimitFrom != "" {
		limit, otherwise = safe(r.LimitFrom), " else "+limit
	}
	s := fmt.Sprintf("%s/%s %s", limit, windowText(r.Window, r.Period), r.Algorithm) + optionsText(r.Options) + otherwise
	if _, err := strconv.Atoi(r.Name); err != nil {
		s = safe(r.Name) + ": " + s
	}
	if r.Block > 0 {
		s += " block"
		for _, d := range r.Blocks {
			s += " " + span(d)
		}
	}
	if len(r.Notify) > 0 {
		s += " notify " + strings.Trim(fmt.Sprint(r.Notify), "[]")
	}
	if r.Enforced > 0 {
		s += fmt.Sprintf(" (now %d/%s)", r.Enforced, windowText(r.Window, r.Period))
	}
	return s
}

// windowText returns the window of a rule as a Caddyfile has it.
func windowText(seconds float64, period string) string {
	if period != "" {
		return safe(period)
	}
	return span(seconds)
}

// optionsText returns the options of an algorithm as a Caddyfile has them.
func optionsText(options json.RawMessage) (s string) {
	var all map[string]any
	if json.Unmarshal(options, &all) != nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch v := all[name].(type) {
		case bool:
			s += " " + name
		case float64:
			if name == "step" { // the only duration
				s += " step " + span(v/1e9)
				continue
			}
			s += " " + name + " " + strconv.FormatFloat(v, 'f', -1, 64)
		default:
			if name == "time_zone" { // needs no name
				s += " " + safe(fmt.Sprint(v))
				continue
			}
			s += fmt.Sprintf(" %s %v", name, v)
		}
	}
	return s
}

// rules returns the zone's rules.
func (z *Zone) rules() (list []string) {
	for i := range z.Rules {
		list = append(list, z.Rules[i].String())
	}
	if z.InFlight > 0 {
		list = append(list, fmt.Sprintf("in_flight %d", z.InFlight))
	}
	if z.Places != nil && len(z.PlacesOfAll) == 0 {
		list = append(list, "in_flight adaptive"+placesText(z.Places))
	}
	for i := range z.PlacesOfAll {
		p := &z.PlacesOfAll[i]
		list = append(list, fmt.Sprintf("in_flight adaptive on %s%s", safe(p.Host), placesText(&p.PlaceState)))
	}
	if len(list) == 0 {
		return []string{"-"}
	}
	if z.Unit != "" {
		list[0] += ", " + safe(z.Unit)
	}
	return list
}

// DoesOf says what an exception does.
func DoesOf(x *config.Exception) string {
	if x.Unlimited {
		return "unlimited"
	}
	list := make([]string, len(x.Rules))
	for i, r := range x.Rules {
		if r.Limit == 0 {
			return "blocked"
		}
		list[i] = fmt.Sprintf("%d/%s", r.Limit, windowText(r.Window.Duration.Seconds(), r.Window.Period.String()))
	}
	return strings.Join(list, ", ")
}

// placesText says how many requests are in flight and wait for a place.
func placesText(p *metrics.PlaceState) string {
	waiting := 0
	for _, n := range p.Waiting {
		waiting += n
	}
	return fmt.Sprintf(", %d of %d in flight, %d waiting", p.InFlight, p.Limit, waiting)
}

// inForce returns the number of exceptions that have not ended.
func inForce(list []*config.Exception) (n int) {
	for _, x := range list {
		if x.Until.IsZero() || x.Until.After(time.Now()) {
			n++
		}
	}
	return n
}

// sum returns the number of decisions with one of these outcomes.
func sum(decisions map[string]uint64, outcomes ...string) (n uint64) {
	for _, o := range outcomes {
		n += decisions[o]
	}
	return n
}

// unnamed reports whether some of the keys have no name.
func unnamed(hits []topk.Hit) bool {
	return slices.ContainsFunc(hits, func(h topk.Hit) bool { return h.Name == "" })
}

// bars returns numbers as a line of blocks.
func bars(list []int64) string {
	blocks, most := []rune(" ▁▂▃▄▅▆▇█"), max(1, slices.Max(list))
	var b strings.Builder
	for _, n := range list {
		b.WriteRune(blocks[(n*8+most-1)/most])
	}
	return b.String()
}
