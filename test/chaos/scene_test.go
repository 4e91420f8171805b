package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const (
	instances   = 3
	rate        = 500 // limited requests per second, over all instances
	controlRate = 100 // simultaneous requests per second without a limit
	countedKeys = 30
	longKeys    = 2
)

// timeout is the option of the stores. A machine that is shared with other work stands still
// for longer than the default, which is no outage.
var timeout = pick(25*time.Millisecond, time.Second)

// patient is the timeout where no instance may decide alone because the machine is loaded.
var patient = max(timeout, 250*time.Millisecond)

// zone is a limit that the load exceeds, with its bound.
type zone struct {
	name   string
	limit  int
	bound  int // maximum in any window
	window time.Duration
	rule   string
}

// The limits are multiples of the number of instances, so that the shares add up to
// the limit.
var zones = []zone{
	{"hot", 90, 180, time.Second, "90/1s gcra"},
	{"keys", 6, 6, 2 * time.Second, "6/2s sliding_log"},
	{"long", 300, 300, time.Hour, "300/1h sliding_window"},
}

// site returns a site that limits the path of each zone and no other.
func site() string {
	var b strings.Builder
	for _, z := range zones {
		fmt.Fprintf(&b, "\trate_limit /%[1]s {\n\t\tzone %[1]s {\n\t\t\tkey {query.k}\n\t\t\tkey_missing share\n\t\t\trule %[2]s\n\t\t}\n\t}\n", z.name, z.rule)
	}
	return b.String() + "\trespond ok"
}

// paths returns the paths that the load requests in turn.
func paths() (all []string) {
	for i := range countedKeys {
		all = append(all, "/hot", fmt.Sprintf("/keys?k=%d", i), "/hot", fmt.Sprintf("/keys?k=%d", (i+7)%countedKeys), fmt.Sprintf("/long?k=%d", i%longKeys))
	}
	return all
}

// scene is three instances that share one store.
type scene struct {
	t      *testing.T
	caddys []*harness.Caddy
}

// global returns global options that exclude the lines of single denials from the
// log, of which there may be a hundred per second.
func global(store string) string {
	addresses, options, _ := strings.Cut(strings.TrimSuffix(store, "}"), "{")
	if !strings.Contains(options, "timeout") {
		options += fmt.Sprintf("\n\t\t\ttimeout %v\n\t\t", timeout)
	}
	return "\tlog {\n\t\texclude http.handlers.rate_limit\n\t}\n\trate_limit {\n\t\tstore redis " + addresses + " {" + options + "}\n\t}"
}

// begin starts the instances of the load, which share their counts when it returns.
func begin(t *testing.T, store string) *scene {
	t.Helper()
	s := &scene{t: t, caddys: fleet(t, instances, harness.Config{Global: global(store), Site: site()})}
	for _, c := range s.caddys {
		harness.Until(t, harness.Patience, "counts are shared", func() bool {
			return !decidedLocally(harness.Shoot(harness.Client(1), c.URL+"/keys?k=begin"))
		})
	}
	return s
}

// fleet starts n instances and waits until each knows of all, as the
// shares that they enforce without Redis require.
func fleet(t *testing.T, n int, config harness.Config) (caddys []*harness.Caddy) {
	t.Helper()
	for range n {
		caddys = append(caddys, harness.StartCaddy(t, config))
	}
	for _, c := range caddys {
		harness.Until(t, harness.Patience, "every instance knows of all", func() bool {
			live, ok := c.Metric(t, "caddy_rate_limit_instances")
			return ok && live == float64(n)
		})
	}
	return caddys
}

// waitStores waits until the store of every instance is up, or down on every one.
func waitStores(t *testing.T, caddys []*harness.Caddy, up bool) {
	t.Helper()
	want := 0.0
	if up {
		want = 1
	}
	for i, c := range caddys {
		harness.Until(t, harness.Patience, fmt.Sprintf("store_up %v on instance %d", want, i), func() bool {
			is, ok := c.Metric(t, "caddy_rate_limit_store_up")
			return ok && is == want
		})
	}
}

// up says whether every instance uses Redis.
func (s *scene) up() bool {
	return s.all(func(c *harness.Caddy) bool {
		is, ok := c.Metric(s.t, "caddy_rate_limit_store_up")
		return ok && is == 1
	})
}

// all says whether something is true of every instance.
func (s *scene) all(of func(c *harness.Caddy) bool) bool {
	for _, c := range s.caddys {
		if !of(c) {
			return false
		}
	}
	return true
}

func (s *scene) urls(paths ...string) (all []string) {
	for i := range len(s.caddys) * len(paths) {
		all = append(all, s.caddys[i%len(s.caddys)].URL+paths[i%len(paths)])
	}
	return all
}

// rotated is like urls but combines every path with every instance, even if their
// numbers have a common divisor.
func (s *scene) rotated(paths []string) (all []string) {
	for turn := range s.caddys {
		for i, p := range paths {
			all = append(all, s.caddys[(i+turn)%len(s.caddys)].URL+p)
		}
	}
	return all
}

// play is a fault with the load before, during and after it.
type play struct {
	calm, fault, after time.Duration
	begin, end         func()
}

// record is the clients' view of a play.
type record struct {
	start, gone, ended, over time.Time
	shots, control           []harness.Shot
	marks                    []int // length of each log at its begin
}

// play runs the load through a fault.
func (s *scene) play(p play) *record {
	r := &record{start: time.Now()}
	for _, c := range s.caddys {
		r.marks = append(r.marks, len(c.Log()))
	}
	over := make(chan struct{})
	more := func() bool {
		select {
		case <-over:
			return false
		default:
			return true
		}
	}
	shots, control := make(chan []harness.Shot), make(chan []harness.Shot)
	go func() { shots <- harness.Pace(rate, more, s.rotated(paths())...) }()
	go func() { control <- harness.Pace(controlRate, more, s.urls("/free")...) }()
	time.Sleep(p.calm)
	r.gone = time.Now()
	p.begin()
	time.Sleep(time.Until(r.gone.Add(p.fault)))
	if p.end != nil {
		p.end()
	}
	r.ended = time.Now()
	time.Sleep(p.after)
	if !s.up() { // on a busy machine
		waitStores(s.t, s.caddys, true)
		time.Sleep(p.after)
	}
	r.over = time.Now()
	close(over)
	r.shots, r.control = <-shots, <-control
	return r
}

// zoneOf returns the zone that limits a shot.
func zoneOf(s harness.Shot) *zone {
	path := pathOf(s)
	for i := range zones {
		if rest, ok := strings.CutPrefix(path, "/"+zones[i].name); ok && (rest == "" || rest[0] == '?') {
			return &zones[i]
		}
	}
	return nil
}

func pathOf(s harness.Shot) string {
	_, rest, _ := strings.Cut(s.URL, "://")
	_, path, _ := strings.Cut(rest, "/")
	return "/" + path
}

// decidedLocally reports whether a shot was decided without Redis: the limit in its
// headers is then one instance's share.
func decidedLocally(s harness.Shot) bool {
	return s.Policy != "" && !strings.Contains(s.Policy, fmt.Sprintf(";q=%d;", zoneOf(s).limit))
}

// during returns the shots sent between from and to.
func during(shots []harness.Shot, from, to time.Time) []harness.Shot {
	first, _ := slices.BinarySearchFunc(shots, from, func(s harness.Shot, at time.Time) int { return s.Sent.Compare(at) })
	last, _ := slices.BinarySearchFunc(shots, to, func(s harness.Shot, at time.Time) int { return s.Sent.Compare(at) })
	return shots[first:max(first, last)]
}
