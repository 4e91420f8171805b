package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dianalimiter/diana/internal/edit"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
)

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

// plural returns a number of things.
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.FormatInt(n, 10) + " " + thing + "s"
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
		s += " block " + span(r.Block)
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

// shadowDenied returns how many requests the zone would have denied if it were not in shadow.
func (z *Zone) shadowDenied() uint64 { return z.Decisions[metrics.ShadowDenied.String()] }

func printZones(w io.Writer, all *Zones) {
	i := &all.Instance
	fmt.Fprintf(w, "%s: Caddy %s, Diana %s, configuration %s, loaded %s ago\n", safe(i.Host), safe(i.Caddy), safe(i.Diana), safe(i.Config), span(all.Now.Sub(i.Since).Seconds()))
	fmt.Fprintf(w, "requests since %s ago: %d allowed, %d denied, %d delayed\n", span(all.Now.Sub(i.Started).Seconds()), all.Requests.Allowed, all.Requests.Denied, all.Requests.Delayed)
	for n := range all.Stores {
		all.Stores[n].print(w, all.Now)
	}
	if all.Rules != nil {
		all.Rules.print(w, all.Now)
	}
	for _, l := range all.Lists {
		fmt.Fprintf(w, "list %s: %d keys for %s", safe(l.File), l.Keys, span(all.Now.Sub(l.Since).Seconds()))
		if l.Error != "" {
			fmt.Fprintf(w, ": %s", safe(l.Error))
		}
		fmt.Fprintln(w)
	}
	if len(all.Zones) == 0 {
		fmt.Fprintln(w, "no zones: a site gets one by a line such as rate_limit {client_ip} 10/s")
		return
	}
	t := table{head: []string{"ZONE", "STORE", "FROM", "STATE", "KEYS", "ALLOWED", "DENIED"}}
	shadows := slices.ContainsFunc(all.Zones, func(z Zone) bool { return z.Shadow || z.shadowDenied() > 0 })
	if shadows {
		t.head = append(t.head, "SHADOW")
	}
	t.head = append(t.head, "RULES")
	for n := range all.Zones {
		z := &all.Zones[n]
		passed := z.Decisions[metrics.Allowed.String()] + z.Decisions[metrics.Delayed.String()] + z.Decisions[metrics.ShadowDelayed.String()]
		cells := []string{safe(z.Name), safe(z.Store), z.Origin, z.state(), strconv.FormatInt(z.Keys, 10), strconv.FormatUint(passed, 10), strconv.FormatUint(z.Decisions[metrics.Denied.String()], 10)}
		if shadows {
			cells = append(cells, strconv.FormatUint(z.shadowDenied(), 10))
		}
		for _, rule := range z.rules() {
			t.add(append(cells, rule)...)
			cells = make([]string, len(cells)) // the other rules stand below the first
		}
	}
	t.print(w)
}

// printValidation prints that a document is valid. One that is not is an error of the command.
func printValidation(w io.Writer, v *Validation) {
	if !v.Valid {
		return
	}
	fmt.Fprintf(w, "valid, zones: %d\n", v.Zones)
	printUnknown(w, v.Unknown)
}

// printUnknown prints the zones of a document whose rules were not checked.
func printUnknown(w io.Writer, zones []string) {
	if len(zones) > 0 {
		fmt.Fprintf(w, "not checked, as zones unknown here: %s\n", safeAll(zones))
	}
}

// print prints the state of a store.
func (s *Store) print(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "store %s: %s for %s, %s\n", safe(s.Name), s.Mode, span(now.Sub(s.Since).Seconds()), s.instances())
	if s.Share > 0 {
		fmt.Fprintf(w, "store %s: this instance enforces %.0f %% of each limit meanwhile\n", safe(s.Name), 100*s.Share)
	}
	for _, n := range s.Down {
		fmt.Fprintf(w, "store %s: node %s is away for %s; keys of other nodes are shared\n", safe(s.Name), safe(n.Address), span(now.Sub(n.Since).Seconds()))
	}
}

// instances says how many instances there are, or why nobody knows.
func (s *Store) instances() string {
	switch {
	case s.Instances > 0 && s.Up:
		return plural(s.Instances, "instance")
	case s.Instances > 0:
		return plural(s.Instances, "instance") + " when it was last reached"
	case s.Up:
		return "instances not counted yet"
	}
	return "number of instances unknown: it was never reached"
}

// print prints the state of the rule source.
func (r *Source) print(w io.Writer, now time.Time) {
	state := r.State
	if r.Lost {
		state = "document lost"
	}
	fmt.Fprintf(w, "rules from %s: %s", safe(r.Source), safe(state))
	if !r.Confirmed.IsZero() {
		fmt.Fprintf(w, ", confirmed %s ago", span(now.Sub(r.Confirmed).Seconds()))
	}
	if r.Error != "" {
		fmt.Fprintf(w, ": %s", safe(r.Error))
	}
	fmt.Fprintln(w)
	if len(r.Unknown) > 0 {
		fmt.Fprintf(w, "zones unknown here: %s\n", safeAll(r.Unknown))
	}
}

// rules returns the zone's rules.
func (z *Zone) rules() (list []string) {
	for i := range z.Rules {
		list = append(list, z.Rules[i].String())
	}
	if z.InFlight > 0 {
		list = append(list, fmt.Sprintf("in_flight %d", z.InFlight))
	}
	if len(list) == 0 {
		return []string{"-"}
	}
	if z.Unit != "" {
		list[0] += ", " + safe(z.Unit)
	}
	return list
}

func (z *Zone) state() string {
	state := "on"
	switch {
	case !z.Enabled:
		state = "off"
	case z.Shadow:
		state = "shadow"
	}
	n := int64(0)
	for _, x := range z.Exceptions {
		if x.Until.IsZero() || x.Until.After(time.Now()) {
			n++
		}
	}
	if n > 0 {
		state += ", " + plural(n, "exception")
	}
	if z.Blocked > 0 {
		state += fmt.Sprintf(", %d blocked", z.Blocked)
	}
	return state
}

// printKey prints the decision about the next request of a key, and the state of each rule.
func printKey(w io.Writer, s *limiter.Key) {
	if s.Reset != "" {
		fmt.Fprintf(w, "reset %s\n", s.Reset)
	}
	fmt.Fprintf(w, "zone %s, key %s", safe(s.Zone), safeAll(s.Parts))
	if s.Key != "" {
		fmt.Fprintf(w, " (%s)", s.Key)
	}
	fmt.Fprintf(w, ": %s", s.Decision)
	if s.Rule != "" {
		fmt.Fprintf(w, " by %s", safe(s.Rule))
	}
	if s.Blocked > 0 {
		fmt.Fprint(w, ", blocked")
	}
	if s.RetryIn != nil {
		fmt.Fprintf(w, ", again in %s", span(*s.RetryIn))
	}
	if s.Cost > 1 {
		fmt.Fprintf(w, ", cost %d", s.Cost)
	}
	if s.Overflowed {
		fmt.Fprint(w, ", counted together with others, for the zone is full")
	}
	if s.Mode != "" {
		fmt.Fprintf(w, " (%s)", s.Mode)
	}
	fmt.Fprintln(w)
	if len(s.Missing) > 0 {
		fmt.Fprintf(w, "  key_missing %s: the request has no %s\n", s.KeyMissing, safeAll(s.Missing))
	}
	if s.KeyMissing == "client_ip" {
		fmt.Fprintf(w, "  counted by the client's address, %s\n", cmp.Or(s.Address, "one key for all that are unknown"))
	}
	printRules(w, s)
}

// printExplanation prints the decision about a request, and the keys that it would be counted by.
func printExplanation(w io.Writer, e *Explanation) {
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
	for i := range e.Handlers {
		e.Handlers[i].print(w)
	}
}

func (h *Handler) print(w io.Writer) {
	fmt.Fprintf(w, "\nserver %s\n", safe(h.Server))
	for i := range h.Zones {
		printKey(w, &h.Zones[i])
	}
	if len(h.Zones) == 0 && h.Error == "" {
		fmt.Fprintln(w, "no zone of this handler matches")
	}
	if len(h.Without) > 0 {
		fmt.Fprintf(w, "not matching: %s\n", safeAll(h.Without))
	}
	if len(h.NotRun) > 0 {
		fmt.Fprintf(w, "not run, as more than the request is needed: %s; what they would change is unknown\n", safeAll(h.NotRun))
	}
	if h.Error != "" {
		fmt.Fprintf(w, "a matcher failed, and the zones after it were not looked at: %s\n", safe(h.Error))
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// printRules prints the override that applies, and the state of each rule.
func printRules(w io.Writer, s *limiter.Key) {
	switch {
	case !s.Until.IsZero():
		fmt.Fprintf(w, "  exception %s until %s\n", safeAll(s.Override), s.Until.Format(time.RFC3339))
	case s.Except:
		fmt.Fprintf(w, "  exception %s\n", safeAll(s.Override))
	case len(s.Override) > 0:
		fmt.Fprintf(w, "  override %s\n", safeAll(s.Override))
	}
	if len(s.Rules) == 0 {
		return
	}
	t := table{head: []string{"  RULE", "LIMIT", "USED", "HELD", "REMAINING", "RESET", "RETRY"}}
	for _, r := range s.Rules {
		retry := "-"
		if r.RetryIn != nil {
			retry = span(*r.RetryIn)
		} else if !r.Admits {
			retry = "never"
		}
		t.add("  "+safe(r.Name), fmt.Sprintf("%d/%s", r.Limit, windowText(r.Window, r.Period)), number(r.Used), number(r.Held), number(r.Remaining), span(r.Reset), retry)
	}
	t.print(w)
}

func printTop(w io.Writer, top *Top) {
	unnamed := false
	for _, list := range []struct {
		title string
		hits  []metrics.Hit
	}{{"BUSIEST", top.Busy}, {"MOST DENIED", top.Denied}} {
		t := table{head: []string{list.title, "TIMES", "KEY", "NAME"}}
		for i, h := range list.hits {
			name := safe(h.Name)
			if h.Blocked > 0 {
				name = strings.TrimSpace(name + " blocked for " + span(h.Blocked))
			}
			t.add(strconv.Itoa(i+1), strconv.FormatUint(uint64(h.Times), 10), h.Key, name)
			unnamed = unnamed || h.Name == ""
		}
		if len(list.hits) == 0 {
			t.add("none yet", "", "", "")
		}
		t.print(w)
	}
	if unnamed {
		fmt.Fprintln(w, "Keys without a name were not logged: with log_key in the handler, frequent keys have names.")
	}
}
