package replay

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/routes"
	"github.com/dianalimiter/diana/stores"
)

// Config is a configuration that was opened without running it.
type Config struct {
	// Servers are its HTTP servers, by name.
	Servers map[string]*caddyhttp.Server

	// Texts describe its routes.
	Texts *routes.Texts

	// Limiter returns the limiter of a rate_limit handler; nil: it is another handler.
	Limiter func(caddyhttp.MiddlewareHandler) *limiter.Limiter

	// Now is the time of its clock, in microseconds.
	Now *int64

	// ReadRules reads the source of rules once, if there is one, and puts its document in force.
	ReadRules func() error

	// Enforce puts the document in force with all zones out of shadow.
	Enforce func() error

	// Set puts the document in force with another rate of a zone, as the words of the command set.
	Set func(zone string, words []string) error
}

// Zones decides logged requests by the zones of a configuration.
type Zones struct {
	Host string // of requests whose lines have none

	// Each, if not nil, is called for each request once it is decided.
	Each func(l *Line, denied bool)

	// Decided are the requests that were decided.
	Decided Decided

	config *Config
	ways   map[string]*way // by server
	later  queue[*event]
	zones  map[string]*zone
	now    *attempt
}

// Decided are the requests that passed a zone, each counted once.
type Decided struct {
	Allowed   int64            `json:"allowed"`             // by all zones, or delayed
	Denied    int64            `json:"denied"`              // by some zone
	Skipped   map[string]int64 `json:"skipped,omitempty"`   // by all zones, by why: exempt, unlimited, off or no key
	Undecided int64            `json:"undecided,omitempty"` // by some zone, as lines lack what it reads or a matcher failed

	// How many would be denied if the zones in shadow were enforced; absent: none is in shadow.
	Enforced *int64 `json:"denied_if_enforced,omitempty"`
}

// Any reports whether any request was decided.
func (d *Decided) Any() bool { return d.Allowed+d.Denied > 0 || len(d.Skipped) > 0 }

// Percent returns how much of the requests is denied.
func (d *Decided) Percent() float64 {
	return 100 * float64(d.Denied) / float64(max(1, d.Allowed+d.Denied))
}

// way is the way through a server.
type way struct {
	*routes.Way
	fields map[*limiter.Zone][]string // what its decision reads
	match  map[*limiter.Zone][]string // what its matchers read of that
	leads  map[*caddyhttp.Route]*lead // with matchers that read what lines may lack
}

// attempt is a request that is decided, or that waits.
type attempt struct {
	line    *Line
	way     *way
	waited  time.Duration
	passed  []string // zones that it has passed
	again   time.Duration
	met     bool // a handler
	counted bool // by a zone
	denied  bool
	later   []*limiter.Recorded

	skipped   string   // why a zone skipped it
	undecided bool     // by some zone
	doubted   []string // zones to which it may have been led
}

// NewZones returns what decides by a configuration.
func NewZones(c *Config) (*Zones, error) {
	z := &Zones{config: c, Decided: Decided{Skipped: make(map[string]int64)}, ways: make(map[string]*way), zones: make(map[string]*zone)}
	for name, s := range c.Servers {
		w := &way{fields: make(map[*limiter.Zone][]string), match: make(map[*limiter.Zone][]string)}
		var err error
		w.Way, err = routes.New(s, func(h caddyhttp.MiddlewareHandler) caddyhttp.MiddlewareHandler {
			l := c.Limiter(h)
			if l == nil {
				return nil
			}
			for _, zone := range l.Zones() {
				w.fields[zone] = zoneFields(zone, c.Texts.To[h], c.Texts.Changing)
				matchers, _ := json.Marshal(zone.MatcherSetsRaw) // they were read from JSON
				w.match[zone] = fieldsIn(matchers)
				z.add(zone)
			}
			return routes.Step(func(rw http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
				return z.serve(l, rw, r, next)
			})
		})
		if err != nil {
			return nil, err
		}
		w.leads = leadsOf(c)
		w.Unmatched = func(route *caddyhttp.Route, r *http.Request) { z.unmatched(w, route, r) }
		z.ways[name] = w
	}
	return z, nil
}

// Add decides about a request, which begins at the time of its line, or now if that is past.
func (z *Zones) Add(l *Line) {
	for len(z.later) > 0 && z.later[0].at <= l.Begin {
		z.next()
	}
	*z.config.Now = max(*z.config.Now, l.Begin)
	z.decide(&attempt{line: l})
}

// Shadows reports whether a zone is in shadow.
func (z *Zones) Shadows() bool {
	for _, x := range z.zones {
		if x.Shadow {
			return true
		}
	}
	return false
}

// Compare adds to the result of the zones what they deny with those in shadow enforced.
func (z *Zones) Compare(list []Zone, enforced *Zones, read *Read) {
	z.Decided.Enforced = &enforced.Decided.Denied
	for i, e := range enforced.Result(read) { // the same zones, in the same order
		list[i].Enforced = &e.Denied
	}
}

// Failed is why zones are undecided if a matcher failed.
const Failed = "a matcher failed"

// End decides what is still to be decided.
func (z *Zones) End() {
	for len(z.later) > 0 {
		z.next()
	}
}

// next does what is due next: a response, or the next attempt of a request that waits.
func (z *Zones) next() {
	e := heap.Pop(&z.later).(*event)
	*z.config.Now = max(*z.config.Now, e.at)
	if e.attempt != nil {
		z.decide(e.attempt)
		return
	}
	for _, d := range e.ended {
		d.Finish(e.status)
	}
}

func (z *Zones) decide(a *attempt) {
	z.now, a.again, a.counted, a.denied, a.undecided, a.skipped = a, 0, false, false, false, ""
	for _, w := range z.waysOf(a) {
		r := a.line.request(z.Host)
		a.way, w.User, a.met = w, a.line.User, false
		_ = w.Lead(r, a.line.ClientIP) // an error is a response
		a.undecided = a.undecided || w.Failed != nil
		if a.met {
			break
		}
	}
	if len(a.later) > 0 {
		heap.Push(&z.later, &event{at: max(a.line.End, *z.config.Now), ended: a.later, status: a.line.Status})
		a.later = nil
	}
	switch {
	case a.again > 0:
		a.waited += a.again
		heap.Push(&z.later, &event{at: *z.config.Now + a.again.Microseconds(), attempt: a})
		return
	case a.denied:
		z.Decided.Denied++
	case a.undecided:
		z.Decided.Undecided++
	case a.counted:
		z.Decided.Allowed++
	case a.skipped != "":
		z.Decided.Skipped[a.skipped]++
	}
	if z.Each != nil {
		z.Each(a.line, a.denied)
	}
}

// waysOf returns the ways that a request may take: through the servers that listen on its port.
func (z *Zones) waysOf(a *attempt) (ways []*way) {
	if a.way != nil {
		return []*way{a.way}
	}
	scheme := "http"
	if a.line.tls.Exists() || !a.line.whole {
		scheme = "https"
	}
	for _, name := range routes.Servers(z.config.Servers, cmp.Or((&url.URL{Host: a.line.Host}).Port(), routes.Ports[scheme])) {
		ways = append(ways, z.ways[name])
	}
	return ways
}

// serve decides about the request that is led to a rate_limit handler.
func (z *Zones) serve(l *limiter.Limiter, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	a := z.now
	a.met = true
	passed := slices.Concat(limiter.Passed(r), a.passed)
	a.passed = nil
	for _, zone := range l.Zones() {
		if slices.Contains(passed, zone.Name) {
			continue
		}
		field := z.lacking(a.way, a.way.fields[zone])
		if a.way.Response != "" {
			field = "the response of " + a.way.Response
		}
		if field != "" && !z.unmet(a.way, zone, r) {
			z.zones[zone.Name].Undecided[field]++
			a.undecided = true
			passed = append(passed, zone.Name)
		}
	}
	limiter.SkipZones(r, passed)
	d := l.Record(r, a.waited)
	if d.Again > 0 {
		a.again, a.passed = d.Again, passed
		return nil
	}
	for _, rec := range d.Zones {
		z.zones[rec.Zone.Name].count(r, a.line, &rec)
		a.counted = a.counted || rec.Outcome != metrics.Skipped
		a.skipped = cmp.Or(a.skipped, rec.Skipped)
	}
	if d.Err != nil && !d.Denied { // of a matcher
		a.undecided = true
		for _, zone := range l.Zones() {
			if !slices.Contains(passed, zone.Name) {
				z.zones[zone.Name].Undecided[Failed]++
			}
		}
	}
	if d.Later() {
		a.later = append(a.later, &d)
	}
	if d.Denied || d.Err != nil {
		a.denied = a.denied || d.Denied
		return d.Err
	}
	a.waited = 0
	return next.ServeHTTP(w, r)
}

// event is what happens between the requests: responses end, and requests that wait ask again.
type event struct {
	at      int64
	attempt *attempt // nil: a response
	ended   []*limiter.Recorded
	status  int
}

func (e *event) time() int64 { return e.at }

// zone is what was decided in a zone.
type zone struct {
	Zone
	keys    map[uint64]struct{}
	who     map[stores.Key]*Denials
	minutes map[int64]int64 // denials, by minute since 1970
}

// maxKeys is how many different keys of a zone are told apart.
const maxKeys = 1_000_000

// Zone is what a zone would have done.
type Zone struct {
	Zone       string           `json:"zone"`                         // name of the zone
	Shadow     bool             `json:"shadow,omitempty"`             // whether it is in shadow
	Requests   int64            `json:"requests"`                     // that it applied to
	Keys       int              `json:"keys"`                         // different ones, up to a million
	Allowed    int64            `json:"allowed"`                      // at once
	Delayed    int64            `json:"delayed,omitempty"`            // after waiting
	Denied     int64            `json:"denied"`                       // of one in shadow, none
	Shadowed   int64            `json:"shadow_denied,omitempty"`      // of one in shadow: would have been denied
	Enforced   *int64           `json:"denied_if_enforced,omitempty"` // if the zones in shadow were enforced; absent: none is in shadow
	Near       int64            `json:"near"`                         // allowed, and then some rule had less than a fifth left
	Skipped    map[string]int64 `json:"skipped,omitempty"`            // by why: exempt, unlimited, off or no key
	KeysDenied int              `json:"keys_denied"`                  // keys that were denied at least once
	Worst      *Minute          `json:"worst_minute,omitempty"`       // the minute with the most denials
	Undecided  map[string]int64 `json:"undecided,omitempty"`          // requests, by what their lines lack
	Top        []Denials        `json:"top"`                          // the keys that were denied most
	Adaptive   bool             `json:"in_flight_adaptive,omitempty"` // whether it has in_flight adaptive: that depends on the upstream, and is not replayed

	// Course are the denials in equal parts of the time from the first request to the last.
	Course []int64 `json:"course,omitempty"`
}

// Minute is the minute with the most denials.
type Minute struct {
	At     time.Time `json:"at"`     // its begin
	Denied int64     `json:"denied"` // requests
}

// Denials counts the denials of one key.
type Denials struct {
	Key   string    `json:"key"`   // its parts
	Times int64     `json:"times"` // denials
	First time.Time `json:"first"` // when the first request that was denied began
	Last  time.Time `json:"last"`  // and the last
}

func (z *Zones) add(l *limiter.Zone) {
	if z.zones[l.Name] == nil {
		z.zones[l.Name] = &zone{
			Zone: Zone{Zone: l.Name, Shadow: l.InShadow(), Adaptive: l.InFlightAdaptive != nil, Undecided: make(map[string]int64), Skipped: make(map[string]int64)}, keys: make(map[uint64]struct{}),
			who: make(map[stores.Key]*Denials), minutes: make(map[int64]int64),
		}
	}
}

func (z *zone) count(r *http.Request, l *Line, d *limiter.RecordedZone) {
	z.Requests++
	if d.Key != (stores.Key{}) && len(z.keys) < maxKeys {
		z.keys[d.Key.Lo] = struct{}{}
	}
	switch d.Outcome {
	case metrics.Skipped:
		z.Skipped[d.Skipped]++
	case metrics.Allowed:
		z.Allowed++
	case metrics.Delayed, metrics.ShadowDelayed:
		z.Delayed++
	case metrics.Denied, metrics.ShadowDenied:
		if d.Outcome == metrics.Denied {
			z.Denied++
		} else {
			z.Shadowed++
		}
		at := time.UnixMicro(l.Begin).UTC()
		z.minutes[at.Unix()/60]++
		w := z.who[d.Key]
		if w == nil {
			if len(z.who) == maxKeys {
				return
			}
			name := strings.Join(d.Zone.Describe(r), " ")
			w = &Denials{Key: strings.Clone(strings.ToValidUTF8(name[:min(len(name), longestKey)], "")), First: at}
			z.who[d.Key] = w
		}
		w.Times++
		w.Last = at
	}
	if d.Near {
		z.Near++
	}
}

const (
	topKeys    = 10
	longestKey = 256 // bytes of a key's name: a million are kept
	parts      = 60  // of the course
)

// Result returns what the zones would have done to the requests that were read.
func (z *Zones) Result(read *Read) (list []Zone) {
	for _, name := range slices.Sorted(maps.Keys(z.zones)) {
		x := z.zones[name]
		out := x.Zone
		out.Keys, out.KeysDenied, out.Top = len(x.keys), len(x.who), []Denials{}
		for _, w := range x.who {
			out.Top = append(out.Top, *w)
		}
		slices.SortFunc(out.Top, func(a, b Denials) int { return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Key, b.Key)) })
		out.Top = slices.Clone(out.Top[:min(len(out.Top), topKeys)])
		first, last := read.from/6e7, read.to/6e7
		if len(x.minutes) > 0 {
			out.Course = make([]int64, parts)
		}
		for minute, n := range x.minutes {
			out.Course[(minute-first)*parts/(last-first+1)] += n
			if at := time.Unix(minute*60, 0).UTC(); out.Worst == nil || n > out.Worst.Denied || n == out.Worst.Denied && at.Before(out.Worst.At) {
				out.Worst = &Minute{at, n}
			}
		}
		list = append(list, out)
	}
	return list
}
