package diana

import (
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
)

// placeholders are what {http.rate_limit.*} says of a request. Whoever has the
// replacer may ask as long as he likes, also after the handler has returned: the
// error routes, the access log, a handler that wraps ours. So these are the one
// thing that a request does not take from the pool, and they never change.
type placeholders struct {
	first    zoneNumbers
	more     []zoneNumbers
	exceeded *exceeded // nil: nothing denied
}

// zoneNumbers is where a zone stands after a decision.
type zoneNumbers struct {
	zone                    *zone
	limit, remaining, reset int64
	outcome                 outcome
}

// exceeded is what denied a request.
type exceeded struct {
	zone  *zone
	label string
	retry int64 // microseconds, or algorithms.Never
}

// show lets the placeholders be asked for.
func (q *request) show() {
	repl := replacer(q.r)
	p := placeholders{first: q.numbersOf(&q.uses[0])}
	if len(q.uses) > 1 {
		p.more = make([]zoneNumbers, len(q.uses)-1)
		for i := range p.more {
			p.more[i] = q.numbersOf(&q.uses[i+1])
		}
	}
	if q.denial != nil {
		p.exceeded = &q.denial.exceeded
		p.exceeded.outdo(repl)
	}
	show(repl, p)
}

// show keeps the placeholders in the function itself, which is all that is
// allocated for them.
func show(repl *caddy.Replacer, p placeholders) {
	repl.Map(p.value)
}

func (q *request) numbersOf(u *use) zoneNumbers {
	n := zoneNumbers{zone: u.z, outcome: u.outcome}
	if u.item >= 0 && q.outright == nil {
		if res, limit := nearestOf(&q.ask.Zones[u.item]); res != nil {
			n.limit, n.remaining, n.reset = limit, res.Remaining, res.Reset
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
	switch field {
	case "limit":
		return n.limit, true
	case "remaining":
		return n.remaining, true
	case "reset":
		return seconds(n.reset), true
	case "decision":
		return n.outcome.String(), true
	}
	return nil, false
}

// value is empty, and not unknown, on a request that was not denied.
func (e *exceeded) value(field string) (any, bool) {
	switch field {
	case "name", "rule", "retry_after":
	default:
		return nil, false
	}
	if e == nil || e.zone == nil {
		return "", true
	}
	switch field {
	case "name":
		return e.zone.Name, true
	case "rule":
		return e.label, true
	}
	if e.retry == algorithms.Never {
		return "", true
	}
	return max(1, seconds(e.retry)), true
}

// outdo puts the placeholders of a denial before those of a directive that the
// request passed earlier, which would be asked first and say that nothing denied.
func (e *exceeded) outdo(repl *caddy.Replacer) {
	const prefix = "http.rate_limit.exceeded."
	if _, passed := repl.Get(prefix + "name"); !passed {
		return
	}
	for _, field := range []string{"name", "rule", "retry_after"} {
		v, _ := e.value(field)
		repl.Set(prefix+field, v)
	}
}
