package limiter

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/metrics"
)

// placeholders are the values of {http.rate_limit.*} for a request. They may be evaluated
// after the handler returns, by error routes, the access log or an outer handler, so they
// are immutable and unpooled.
type placeholders struct {
	first    zoneNumbers
	more     []zoneNumbers
	exceeded *exceeded // nil: the request was not denied
}

// zoneNumbers are the values of the placeholders of one zone.
type zoneNumbers struct {
	zone             *Zone
	rule             algorithms.Rule // the rule that is nearest to its limit; nil: none
	remaining, reset int64           // of the rule
	outcome          metrics.Outcome
}

// setPlaceholders adds the placeholders of a decision to the request's replacer. e is the
// denial; nil: the request was admitted.
func (d *decision) setPlaceholders(repl *caddy.Replacer, e *exceeded) {
	p := placeholders{first: d.numbersOf(&d.zones[0]), exceeded: e}
	if len(d.zones) > 1 {
		p.more = make([]zoneNumbers, 0, len(d.zones)-1)
	}
	for i := range d.zones[1:] {
		p.more = append(p.more, d.numbersOf(&d.zones[i+1]))
	}
	if e != nil {
		e.replaceEarlier(repl)
	}
	repl.Map(p.value)
}

func (d *decision) numbersOf(z *zoneResult) zoneNumbers {
	n := zoneNumbers{zone: z.zone, outcome: z.outcome}
	if z.rules >= 0 && d.immediate == nil {
		if res, rule := nearestOf(&d.check.Zones[z.rules]); res != nil {
			n.rule, n.remaining, n.reset = rule, res.Remaining, res.Reset
		}
	}
	return n
}

// value implements caddy.ReplacerFunc.
func (p placeholders) value(key string) (any, bool) {
	rest, ok := strings.CutPrefix(key, "http.rate_limit.")
	if !ok {
		return nil, false
	}
	name, field, ok := strings.Cut(rest, ".")
	switch {
	case !ok:
		return nil, false
	case name == "exceeded":
		return p.exceeded.value(field)
	case name == p.first.zone.Name:
		return p.first.value(field)
	}
	for i := range p.more {
		if p.more[i].zone.Name == name {
			return p.more[i].value(field)
		}
	}
	return nil, false
}

func (n zoneNumbers) value(field string) (any, bool) {
	var limit, burst int64
	if n.rule != nil {
		limit, burst = n.rule.Limit(), n.rule.Capacity()
	}
	switch field {
	case "limit":
		return limit, true
	case "burst":
		return burst, true
	case "remaining":
		return n.remaining, true
	case "reset":
		return seconds(n.reset), true
	case "decision":
		return n.outcome.String(), true
	}
	return nil, false
}

// exceededFields are the fields of {http.rate_limit.exceeded.*}.
var exceededFields = []string{"name", "rule", "retry_after", "retry_after_ms"}

// value returns the value of a field: empty if the request was not denied.
func (e *exceeded) value(field string) (any, bool) {
	if !slices.Contains(exceededFields, field) {
		return nil, false
	}
	if e == nil || e.zone == nil {
		return "", true
	}
	switch field {
	case "name":
		return e.zone.WrittenName(), true
	case "rule":
		return e.label, true
	}
	switch {
	case e.retry == algorithms.Never:
		return "", true
	case field == "retry_after_ms":
		return max(1, milliseconds(e.retry)), true
	}
	return max(1, seconds(e.retry)), true
}

// replaceEarlier sets the placeholders of a denial in the replacer itself if an earlier
// handler admitted the request: its provider comes first and would return empty values.
func (e *exceeded) replaceEarlier(repl *caddy.Replacer) {
	const prefix = "http.rate_limit.exceeded."
	if _, passed := repl.Get(prefix + "name"); !passed {
		return
	}
	for _, field := range exceededFields {
		v, _ := e.value(field)
		repl.Set(prefix+field, v)
	}
}
