package limiter

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// placeholders are the values of {http.rate_limit.*} for a request that was denied, or that met
// several zones. They may be evaluated after the handler returns, by error routes, the access log
// or an outer handler, so they are immutable and unpooled.
type placeholders struct {
	zones    []zoneValues
	exceeded *exceeded // nil: the request was not denied
}

// zoneValues are the values of the placeholders of one zone.
type zoneValues struct {
	zone             *Zone
	rule             algorithms.Rule // the rule that is nearest to its limit; nil: none
	remaining, reset int64           // of the rule
	outcome          metrics.Outcome
}

// setPlaceholders adds the placeholders of a decision to the request's replacer. e is the denial; nil: the request was
// admitted.
func (q *request) setPlaceholders(e *exceeded) {
	repl := key.Replacer(q.r)
	if e == nil && len(q.zones) == 1 { // the usual case, in one allocation
		repl.Map(q.zones[0].values(q.zones[0].rules).placeholder)
		return
	}
	p := placeholders{exceeded: e}
	if e != nil {
		p.zones = e.oneZone[:0]
		if q.l.follows {
			e.replaceEarlier(repl)
		}
	}
	checks := q.check.Zones
	if q.unasked() {
		checks = q.look()
	}
	for i := range q.zones {
		z, c := &q.zones[i], (*stores.ZoneCheck)(nil)
		if z.rules != nil {
			c, checks = &checks[0], checks[1:]
		}
		if z.duplicate != nil {
			checks = checks[1:]
		}
		p.zones = append(p.zones, z.values(c))
	}
	repl.Map(p.value)
}

// look returns the zone checks as the stores would answer them, and charges nothing: a zone denies regardless of its
// counts, so that the stores did not decide.
func (q *request) look() []stores.ZoneCheck {
	check := stores.Check{Peek: true, Zones: slices.Clone(q.check.Zones), Shadows: q.check.Shadows}
	for i := range check.Zones {
		check.Zones[i].Results = nil // the buffers of the request are not for peeks
	}
	switch {
	case len(check.Zones) == 0:
	case q.l.counted == inStores:
		stores.Across(q.r.Context(), &check, q.stores)
	default:
		q.store().Decide(q.r.Context(), &check)
	}
	return check.Zones
}

// values returns the values of the placeholders of the zone, by the check of its rules; nil: none was made.
func (z *zoneResult) values(c *stores.ZoneCheck) zoneValues {
	n := zoneValues{zone: z.zone, outcome: z.outcome}
	if c != nil {
		if res, rule := nearestOf(c, false); res != nil {
			n.rule, n.remaining, n.reset = rule, res.Remaining, res.Reset
		}
	}
	return n
}

// value implements caddy.ReplacerFunc.
func (p placeholders) value(key string) (any, bool) {
	name, field := cutPlaceholder(key)
	if name == labelExceeded {
		return p.exceeded.value(field)
	}
	for i := range p.zones {
		if p.zones[i].zone.Name == name {
			return p.zones[i].value(field)
		}
	}
	return nil, false
}

// placeholder implements caddy.ReplacerFunc for a request that only this zone has decided, and
// admitted.
func (n zoneValues) placeholder(key string) (any, bool) {
	switch name, field := cutPlaceholder(key); name {
	case labelExceeded:
		return (*exceeded)(nil).value(field)
	case n.zone.Name:
		return n.value(field)
	}
	return nil, false
}

// labelExceeded stands in the place of a zone's name, which cannot be this word.
const labelExceeded = "exceeded"

// cutPlaceholder returns the zone and the field of {http.rate_limit.<zone>.<field>}; empty: it is
// another placeholder.
func cutPlaceholder(key string) (zone, field string) {
	rest, ok := strings.CutPrefix(key, "http.rate_limit.")
	if !ok {
		return "", ""
	}
	zone, field, _ = strings.Cut(rest, ".")
	return zone, field
}

func (n zoneValues) value(field string) (any, bool) {
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
	case "used":
		return max(0, burst-n.remaining), true
	case "reset":
		return seconds(n.reset), true
	case "decision":
		return n.outcome.String(), true
	}
	return nil, false
}

// exceededFields are the fields of {http.rate_limit.exceeded.*}.
var exceededFields = []string{"name", "rule", "cause", "retry_after", "retry_after_ms"}

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
	case "cause":
		return e.cause.String(), true
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

// replaceDecision sets the placeholder of a zone's decision in the replacer itself: its provider has the one
// that was made before the request waited.
func (z *zoneResult) replaceDecision(repl *caddy.Replacer) {
	repl.Set("http.rate_limit."+z.zone.Name+".decision", z.outcome.String())
}
