// Package replay says what limits would have done to the requests in access logs. Zones decide by
// the code that decides live, at the times in the logs.
//
// Nothing here is on the way of a request.
package replay

import (
	"crypto/rand"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/stores"
)

// windows are the windows in the table of clients' requests, and rates the meters' rates per second.
var (
	windows = [...]time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour}
	names   = [...]string{"1s", "10s", "1m", "1h", "1d"}
	rates   = [...]int64{1, 10, 100}
)

const (
	buckets    = 10 // of a sliding_window, by default
	maxClients = 1_000_000
	unlimited  = 1 << 30 // a limit, or a burst, that nobody reaches
	chunk      = 1 << 12 // clients that are allocated together
)

// client is what one key did, in constant memory: of the states of rules that admit everything,
// what differs between keys. It has no pointers, so that a million are nothing to collect.
type client struct {
	newest [len(windows)]int64
	counts [len(windows)][buckets + 1]uint32
	meters [len(rates)]int64                 // the first word of each
	most   [len(windows) + len(rates)]uint32 // the greatest use of each
}

// Clients measures what clients did, without a configuration.
type Clients struct {
	Host string // of requests whose lines have none

	max     int // how many keys are told apart
	plan    *key.Plan
	rules   []algorithms.Rule
	hasher  key.Hasher
	numbers map[stores.Key]uint32 // by key, in all
	all     [][]client            // in chunks
	meters  [len(rates)][4]int64  // states of meters, of which the first word differs between clients
	rest    int64                 // requests of further keys, which share one client
	lacking map[string]int64
	busiest [len(windows)]struct {
		most uint32
		key  string
	}
	now   int64
	state [buckets + 2]int64
	key   key.Encoded
}

// NewClients returns a measurement by a key.
func NewClients(parts []string) (*Clients, error) {
	plan, err := key.NewPlan(parts, config.Expand, "", "first", nil, nil)
	if err != nil {
		return nil, err
	}
	c := &Clients{
		max: maxClients, plan: plan, hasher: key.NewHasher(rand.Text()), numbers: make(map[stores.Key]uint32), lacking: make(map[string]int64),
	}
	for _, w := range windows {
		r, err := new(algorithms.SlidingWindow).Compile(algorithms.Spec{Limit: unlimited, Window: w.Microseconds(), Cost: 1})
		if err != nil {
			return nil, err
		}
		c.rules = append(c.rules, r)
	}
	for _, rate := range rates {
		r, err := (&algorithms.GCRA{Burst: unlimited}).Compile(algorithms.Spec{Limit: rate, Window: time.Second.Microseconds(), Cost: 1})
		if err != nil {
			return nil, err
		}
		c.rules = append(c.rules, r)
	}
	for i := range rates {
		c.rules[len(windows)+i].Charge(c.meters[i][:], 0, 1, 0)
		c.meters[i][0] = 0
	}
	return c, nil
}

// Add adds a request.
func (c *Clients) Add(l *Line) error {
	for _, name := range c.plan.Placeholders() {
		if field := fieldOf(name); field != "" && l.lacks(field, c.Host) {
			c.lacking[field]++
			return nil
		}
	}
	r := l.Request(c.Host)
	c.key.Reset()
	if state, _ := c.plan.Encode(&c.key, r); state == key.Rejected || state == key.Repeated || state == key.Skipped {
		return nil
	}
	c.now = max(c.now, l.Begin)
	x, shared := c.client()
	x.add(c, func() string {
		if shared {
			return "(further keys)"
		}
		return strings.Join(c.plan.Describe(r), " ")
	})
	return nil
}

// server is that of the requests of which clients are measured.
var server = new(caddyhttp.Server)

// Request returns the request as matchers and keys take it. host is that of a line that has none.
func (l *Line) Request(host string) *http.Request {
	r := caddyhttp.PrepareRequest(l.request(host), caddy.NewReplacer(), nil, server)
	caddyhttp.SetVar(r.Context(), caddyhttp.ClientIPVarKey, l.ClientIP)
	return r
}

// client returns the client with the present key. Keys beyond the first max share one.
func (c *Clients) client() (x *client, shared bool) {
	hash := c.hasher.Hash(c.key.Bytes())
	n, ok := c.numbers[hash]
	if shared = !ok && len(c.numbers) >= c.max; shared {
		c.rest++
		hash = stores.Key{}
		n, ok = c.numbers[hash]
	}
	if !ok {
		n = uint32(len(c.numbers))
		if c.numbers[hash] = n; n%chunk == 0 {
			c.all = append(c.all, make([]client, 0, chunk))
		}
		last := &c.all[n/chunk]
		*last = append(*last, client{})
	}
	return &c.all[n/chunk][n%chunk], shared
}

// add charges the rules, and keeps their greatest use. name is called if it is the greatest of all.
func (x *client) add(c *Clients, name func() string) {
	for i := range windows {
		s := c.state[:]
		s[0] = x.newest[i]
		for b, n := range x.counts[i] {
			s[1+b] = int64(n)
		}
		x.use(c, i, s)
		x.newest[i] = s[0]
		for b := range x.counts[i] {
			x.counts[i][b] = uint32(s[1+b])
		}
		if b := &c.busiest[i]; x.most[i] > b.most {
			b.most, b.key = x.most[i], name()
		}
	}
	for i := range rates {
		s := c.meters[i]
		s[0] = x.meters[i]
		x.use(c, len(windows)+i, s[:])
		x.meters[i] = s[0]
	}
}

func (x *client) use(c *Clients, i int, s algorithms.State) {
	r := c.rules[i]
	r.Charge(s, c.now, 1, 0)
	left, _ := r.Numbers(s, c.now)
	x.most[i] = max(x.most[i], uint32(unlimited-left))
}

// Window is how many requests one key made at most in a window: of 50, 95, 99 and 99.9 percent of
// the keys, and of all.
type Window struct {
	Window string `json:"window"` // its length
	P50    uint32 `json:"p50"`    // of 50 % of the keys at most
	P95    uint32 `json:"p95"`    // of 95 %
	P99    uint32 `json:"p99"`    // of 99 %
	P999   uint32 `json:"p999"`   // of 99.9 %
	Max    uint32 `json:"max"`    // of all
	Key    string `json:"key"`    // that made the most
	Rule   string `json:"rule"`   // the least limit that denies few enough keys
}

// DefaultDeny is the share of the keys that limits may deny, unless one is given.
const DefaultDeny = 0.001

// Measured is what clients did.
type Measured struct {
	Keys    int              `json:"keys"`                // different ones, up to a million and one that further ones share
	Rest    int64            `json:"rest,omitempty"`      // requests of the keys that share a counter
	Lacking map[string]int64 `json:"undecided,omitempty"` // requests that lack a part of the key, by field
	Windows []Window         `json:"windows"`             // from the shortest
	Meters  []string         `json:"meters"`              // rules of gcra that deny few enough keys
	Deny    int              `json:"may_deny"`            // how many keys each of the rules denies at most
}

// Measured returns the percentiles, and the least limits that would have denied a share of the
// keys at most; below 0: of [DefaultDeny], and of one key at least.
func (c *Clients) Measured(deny float64) *Measured {
	few := 0
	if deny < 0 {
		deny, few = DefaultDeny, min(1, len(c.numbers)-1)
	}
	m := &Measured{
		Keys: len(c.numbers), Rest: c.rest, Lacking: c.lacking, Windows: []Window{}, Meters: []string{}, Deny: max(few, int(deny*float64(len(c.numbers))+1e-9)),
	}
	if len(c.numbers) == 0 {
		return m
	}
	most := make([]uint32, 0, len(c.numbers))
	sorted := func(i int) {
		most = most[:0]
		for _, some := range c.all {
			for n := range some {
				most = append(most, some[n].most[i])
			}
		}
		slices.Sort(most)
	}
	// all but as many keys as may be denied stay within the limit
	least := func() uint32 { return most[max(0, len(most)-1-m.Deny)] }
	for i, name := range names {
		sorted(i)
		at := func(p float64) uint32 { return most[max(0, int(math.Ceil(p*float64(len(most))-1e-9))-1)] }
		m.Windows = append(m.Windows, Window{
			name, at(0.5), at(0.95), at(0.99), at(0.999), most[len(most)-1], c.busiest[i].key,
			fmt.Sprintf("rule %d/%s sliding_window", least(), name),
		})
	}
	for i, rate := range rates {
		sorted(len(windows) + i)
		m.Meters = append(m.Meters, fmt.Sprintf("rule %d/s gcra burst %d", rate, least()))
	}
	return m
}
