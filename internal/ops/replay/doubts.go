package replay

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/limiter"
)

// lead is a route that leads to zones, by matchers some of which read what lines may lack.
type lead struct {
	sets  [][]reader
	zones []*limiter.Zone
}

// reader is a matcher with the fields that it reads and that lines may lack.
type reader struct {
	matcher any
	fields  []string
}

// leadsOf returns the routes of a configuration whose matchers may not be decided.
func leadsOf(c *Config) map[*caddyhttp.Route]*lead {
	leads := make(map[*caddyhttp.Route]*lead)
	for route, texts := range c.Texts.Leads {
		l, reads := new(lead), false
		for i, set := range route.MatcherSets {
			var readers []reader
			for _, m := range set {
				r := reader{matcher: m}
				if module, ok := m.(caddy.Module); ok && i < len(texts.Sets) {
					name := module.CaddyModule().ID.Name()
					r.fields = fieldsIn([]byte(`{"` + name + `":` + string(texts.Sets[i][name]) + `}`))
				}
				reads = reads || len(r.fields) > 0
				readers = append(readers, r)
			}
			l.sets = append(l.sets, readers)
		}
		for _, h := range texts.To {
			if of := c.Limiter(h); of != nil {
				l.zones = append(l.zones, of.Zones()...)
			}
		}
		if reads && len(l.zones) > 0 {
			leads[route] = l
		}
	}
	return leads
}

// unmatched notes that the zones to which a route leads are undecided, if the request matched but for
// what its line lacks.
func (z *Zones) unmatched(w *way, route *caddyhttp.Route, r *http.Request) {
	l := w.leads[route]
	if l == nil || z.now.waited > 0 {
		return
	}
	for _, set := range l.sets {
		field := z.doubt(w, set, r)
		if field == "" {
			continue
		}
		z.now.undecided = true
		for _, zone := range l.zones {
			if !slices.Contains(z.now.doubted, zone.Name) {
				z.now.doubted = append(z.now.doubted, zone.Name)
				z.zones[zone.Name].Undecided[field]++
			}
		}
		return
	}
}

// doubt returns what the line lacks without which a set of matchers is not decided; empty: it does not
// match, whatever that is.
func (z *Zones) doubt(w *way, set []reader, r *http.Request) (field string) {
	known := make(caddyhttp.MatcherSet, 0, len(set))
	for _, m := range set {
		if lacks := z.lacking(w, m.fields); lacks != "" {
			field = lacks
		} else {
			known = append(known, m.matcher)
		}
	}
	if field == "" {
		return ""
	}
	if match, err := known.MatchWithError(r); err == nil && !match {
		return ""
	}
	return field
}

// unmet reports whether the matchers of a zone do not match, whatever the line lacks. What another
// handler sets may be of what it lacks.
func (z *Zones) unmet(w *way, zone *limiter.Zone, r *http.Request) bool {
	reads := w.match[zone]
	if slices.Contains(reads, fieldSet) || z.lacking(w, reads) != "" {
		return false
	}
	match, err := zone.Matchers().AnyMatchWithError(r)
	return err == nil && !match
}

// lacking returns the first of some fields that the line lacks, or that a handler that is not run may
// set; empty: none.
func (z *Zones) lacking(w *way, fields []string) string {
	for _, field := range fields {
		header, _ := strings.CutPrefix(field, "header ")
		switch set := slices.Contains(w.MaySet, header); {
		case set || field == fieldSet && len(w.NotRun) > 0:
			return "what " + strings.Join(w.NotRun, " and ") + " may set"
		case field != fieldSet && z.now.line.lacks(field, z.Host):
			return field
		}
	}
	return ""
}
