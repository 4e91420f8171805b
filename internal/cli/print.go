package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dianalimiter/diana/internal/metrics"
)

// safe quotes a text that could contain control sequences for a terminal.
func safe(s string) string {
	q := strconv.Quote(s)
	if q[1:len(q)-1] == s {
		return s
	}
	return q
}

func safeAll(list []string) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = safe(s)
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
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if t, ok := strings.CutSuffix(s, zero); ok {
			s = t + zero[:1]
		}
	}
	return s
}

func (r *Rule) String() string {
	return fmt.Sprintf("%d/%s %s", r.Limit, span(r.Window), r.Algorithm)
}

func printZones(to io.Writer, all *Zones) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for _, s := range all.Stores {
		fmt.Fprintf(w, "store %s: %s for %s, instances: %d\n", safe(s.Name), s.Mode, span(all.Now.Sub(s.Since).Seconds()), s.Instances)
		for _, n := range s.Down {
			fmt.Fprintf(w, "store %s: node %s is away for %s; keys of other nodes are shared\n", safe(s.Name), safe(n.Address), span(all.Now.Sub(n.Since).Seconds()))
		}
	}
	if r := all.Rules; r != nil {
		fmt.Fprintf(w, "rules from %s", safe(r.Source))
		if r.Confirmed != nil {
			fmt.Fprintf(w, ", confirmed %s ago", span(all.Now.Sub(*r.Confirmed).Seconds()))
		}
		if r.Error != "" {
			fmt.Fprintf(w, ": %s", safe(r.Error))
		}
		fmt.Fprintln(w)
		if len(r.Unknown) > 0 {
			fmt.Fprintf(w, "zones unknown here: %s\n", safeAll(r.Unknown))
		}
	}
	fmt.Fprintln(w, "ZONE\tSTORE\tRULES\tFROM\tSTATE\tKEYS\tALLOWED\tDENIED")
	for i := range all.Zones {
		z := &all.Zones[i]
		rules := make([]string, len(z.Rules))
		for i := range z.Rules {
			rules[i] = z.Rules[i].String()
		}
		state := "on"
		if !z.Enabled {
			state = "off"
		} else if z.Shadow {
			state = "shadow"
		}
		passed := z.Decisions[metrics.Allowed.String()] + z.Decisions[metrics.Delayed.String()]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", safe(z.Name), safe(z.Store), strings.Join(rules, ", "), z.Origin, state, z.Keys, passed, z.Decisions[metrics.Denied.String()])
	}
	return w.Flush()
}

func printKey(to io.Writer, k *Key) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	if k.Reset != "" {
		fmt.Fprintf(w, "forgotten %s\n", k.Reset)
	}
	k.print(w)
	return w.Flush()
}

func (s *Key) print(w io.Writer) {
	fmt.Fprintf(w, "zone %s, key %s", safe(s.Zone), safeAll(s.Parts))
	if s.Key != "" {
		fmt.Fprintf(w, " (%s)", s.Key)
	}
	fmt.Fprintf(w, ": %s", s.Decision)
	if s.Rule != "" {
		fmt.Fprintf(w, " by %s", safe(s.Rule))
	}
	if s.RetryIn != nil {
		fmt.Fprintf(w, ", again in %s", span(*s.RetryIn))
	}
	if s.Overflowed {
		fmt.Fprint(w, ", counted together with others, for the zone is full")
	}
	if s.Mode != "" {
		fmt.Fprintf(w, " (%s)", s.Mode)
	}
	fmt.Fprintln(w)
	if len(s.Override) > 0 {
		fmt.Fprintf(w, "  override %s\n", safeAll(s.Override))
	}
	if len(s.Rules) > 0 {
		fmt.Fprintln(w, "  RULE\tLIMIT\tREMAINING\tRESET\tRETRY")
	}
	for _, r := range s.Rules {
		retry := "-"
		if r.RetryIn != nil {
			retry = span(*r.RetryIn)
		} else if !r.Admits {
			retry = "never"
		}
		fmt.Fprintf(w, "  %s\t%d/%s\t%d\t%s\t%s\n", safe(r.Name), r.Limit, span(r.Window), r.Remaining, span(r.Reset), retry)
	}
}

func printTop(to io.Writer, top *Top) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for _, list := range []struct {
		title string
		hits  []metrics.Hit
	}{{"BUSIEST", top.Busy}, {"MOST DENIED", top.Denied}} {
		fmt.Fprintf(w, "%s\tTIMES\tKEY\n", list.title)
		for i, h := range list.hits {
			fmt.Fprintf(w, "%d\t%d\t%s\t%s\n", i+1, h.Times, h.Key, safe(h.Name))
		}
	}
	return w.Flush()
}

func printExplanation(to io.Writer, e *Explanation) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	switch {
	case e.Zone != "":
		fmt.Fprintf(w, "denied by zone %s, rule %s", safe(e.Zone), safe(e.Rule))
		if e.RetryIn != nil {
			fmt.Fprintf(w, ", again in %s", span(*e.RetryIn))
		}
		fmt.Fprintln(w)
	case e.Decision == "none":
		fmt.Fprintln(w, "no rate limit applies")
	default:
		fmt.Fprintln(w, e.Decision)
	}
	for _, h := range e.Handlers {
		fmt.Fprintf(w, "server %s:\n", safe(h.Server))
		for i := range h.Zones {
			h.Zones[i].print(w)
		}
		if len(h.Without) > 0 {
			fmt.Fprintf(w, "zones that do not apply: %s\n", safeAll(h.Without))
		}
		if h.Error != "" {
			fmt.Fprintf(w, "error: %s\n", safe(h.Error))
		}
	}
	return w.Flush()
}
