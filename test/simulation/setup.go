package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is what a site is for.
type kind string

const (
	bounded    kind = "bounded"    // rules that deny: their bounds are watched
	ledger     kind = "ledger"     // rules that never deny: what they are charged is counted in the end
	tally      kind = "tally"      // the same with count_status
	settled    kind = "settled"    // the same with settle
	held       kind = "held"       // the same with settle and hold
	inFlight   kind = "in_flight"  // places
	counted    kind = "counted"    // count_status with a bound
	waiting    kind = "waiting"    // max_wait
	duplicates kind = "duplicates" // prevent_duplicates
	leased     kind = "leased"     // a bound with leases
	denying    kind = "denying"    // on_failure deny
	allowing   kind = "allowing"   // on_failure allow
	across     kind = "across"     // zones in two stores
	blocking   kind = "blocking"   // a bounded rule with block
)

// summed says whether what requests are charged is counted in the end.
func (k kind) summed() bool { return k == ledger || k == tally || k == settled || k == held }

// rule is a rule of a zone.
type rule struct {
	Algorithm string
	Limit     int64
	Window    time.Duration
	Burst     int64         // 0: none
	NoDelay   bool          // of a leaky_bucket
	Step      time.Duration // of a token_bucket
	Align     bool
	Block     time.Duration // 0: none
}

// bound is the greatest cost that may be admitted in any interval of the window's length,
// with limit and burst multiplied by 1/of. cost is the greatest cost of a request.
func (r *rule) bound(of, cost int64) int64 {
	l, b := max(1, r.Limit/of), max(cost, r.burst()/of)
	switch r.Algorithm {
	case "fixed_window":
		return 2 * l
	case "sliding_log", "sliding_window":
		return l
	}
	return b + l
}

// coarse is by how much what instances remember of a rule may be less than what they were
// told.
func (r *rule) coarse() int64 {
	if r.Algorithm == "sliding_log" {
		return (r.Limit + 7) / 8
	}
	return 0
}

func (r *rule) burst() int64 {
	if r.Burst == 0 {
		return r.Limit
	}
	return r.Burst
}

func (r *rule) json() map[string]any {
	a := map[string]any{"name": r.Algorithm}
	if r.Burst > 0 {
		a["burst"] = r.Burst
	}
	if r.NoDelay {
		a["nodelay"] = true
	}
	if r.Step > 0 {
		a["step"] = int64(r.Step)
	}
	if r.Align {
		a["align"] = true
	}
	all := map[string]any{"limit": r.Limit, "window": int64(r.Window), "algorithm": a}
	if r.Algorithm == "calendar" { // runs begin on the first of January in UTC, hours after the year in the east
		all["window"], a["time_zone"] = "year", "Asia/Tokyo"
	}
	if r.Block > 0 {
		all["block"] = int64(r.Block)
	}
	return all
}

// site is a handler with one zone, and what is known of it.
type site struct {
	Name  string
	Kind  kind
	Store string
	Rules []rule
	Places,
	MaxCost int64
	MaxWait time.Duration
	Window  time.Duration // of prevent_duplicates
	Listed  []rule        // of the keys in the list; empty: it has none
}

// setup is the configuration of all instances. A reload may change it.
type setup struct {
	sites  []site
	stores []string // beside the first, main
	leases time.Duration
	pool   int    // pool_size; 0: the default
	prefix string // what follows the name of the first store in its key_prefix

	topology topology
	way      way
	source   string // of rules; empty: none
	file     string // of the source file
	list     string // of the file with a list of keys
}

func drawRule(r *rand.Rand) rule {
	windows := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 20 * time.Second}
	limits := []int64{3, 5, 10, 20, 50}
	one := rule{Limit: limits[r.IntN(len(limits))], Window: windows[r.IntN(len(windows))]}
	switch r.IntN(7) {
	case 0:
		one.Algorithm, one.Align = "fixed_window", r.IntN(2) == 0
	case 1:
		one.Algorithm = "sliding_log"
	case 2:
		one.Algorithm = "sliding_window"
	case 3:
		one.Algorithm, one.Burst = "token_bucket", 1+r.Int64N(2*one.Limit)
	case 4:
		one.Algorithm, one.Burst, one.NoDelay = "leaky_bucket", 1+r.Int64N(one.Limit), true
	case 5:
		one.Algorithm, one.Burst = "gcra", 1+r.Int64N(one.Limit)
	case 6:
		one.Algorithm, one.Step = "token_bucket", one.Window/5
	}
	return one
}

// hour is a rule that never denies, whose window is longer than a run.
func hour(algorithm string) rule {
	return rule{Algorithm: algorithm, Limit: 100_000, Window: 4 * time.Hour}
}

// drawSetup draws the sites.
func drawSetup(r *rand.Rand) *setup {
	s := new(setup)
	if r.IntN(3) == 0 {
		s.source = fromRedis
	}
	for range 2 + r.IntN(3) {
		s.add(site{Kind: bounded, Rules: []rule{drawRule(r)}})
	}
	if r.IntN(3) == 0 {
		s.add(site{Kind: bounded, Rules: []rule{drawRule(r), drawRule(r)}})
	}
	logs := []string{"fixed_window", "sliding_window"}
	s.add(site{Kind: ledger, Rules: []rule{hour(logs[r.IntN(2)])}})
	s.add(site{Kind: []kind{tally, settled, held}[r.IntN(3)], Rules: []rule{hour(logs[r.IntN(2)])}})
	more := []site{
		{Kind: inFlight, Places: 2 + r.Int64N(5), Rules: []rule{hour("fixed_window")}},
		{Kind: inFlight, Places: 2 + r.Int64N(5), MaxWait: time.Second, Rules: []rule{hour("fixed_window")}},
		{Kind: counted, Rules: []rule{drawRule(r)}},
		{Kind: waiting, Rules: []rule{drawRule(r)}, MaxWait: time.Second},
		{Kind: waiting, Rules: []rule{{Algorithm: "leaky_bucket", Limit: 10, Window: time.Second, Burst: 5}}},
		{Kind: duplicates, Rules: []rule{hour("fixed_window")}, Window: 5 * time.Second},
		{Kind: leased, Store: "leased", Rules: []rule{{Algorithm: []string{"gcra", "sliding_window", "fixed_window", "token_bucket", "sliding_log"}[r.IntN(5)], Limit: 100, Window: 3 * time.Second, Block: time.Duration(r.IntN(2)) * 500 * time.Millisecond}}},
		{Kind: denying, Store: "denying", Rules: []rule{drawRule(r)}},
		{Kind: ledger, Store: "denying", Rules: []rule{hour(logs[r.IntN(2)])}},
		{Kind: allowing, Store: "allowing", Rules: []rule{drawRule(r)}},
		{Kind: across, Rules: []rule{drawRule(r)}},
	}
	r.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
	for _, one := range more[:2+r.IntN(3)] {
		s.add(one)
	}
	return s
}

// drawMore draws what the sites do not depend on: how Redis is deployed, other sources of
// rules, and a site whose rule blocks.
func (s *setup) drawMore(r *rand.Rand) {
	s.topology = drawTopology(r)
	if from := r.IntN(6); s.source == "" && from < 2 {
		s.source = []string{fromHTTP, fromFile}[from]
	}
	if r.IntN(2) == 0 {
		one := drawRule(r)
		one.Block = []time.Duration{500 * time.Millisecond, 4 * time.Second, 8 * time.Second, 15 * time.Second}[r.IntN(4)]
		s.add(site{Kind: blocking, Rules: []rule{one}})
	}
}

// drawCalendars has sites whose charges are counted in the end count by the year.
func (s *setup) drawCalendars(r *rand.Rand) {
	for i := range s.sites {
		if s.sites[i].Kind.summed() && r.IntN(3) == 0 {
			s.sites[i].Rules[0].Algorithm = "calendar"
		}
	}
}

func (s *setup) add(one site) {
	one.Name = fmt.Sprintf("%s%d", one.Kind, len(s.sites))
	one.MaxCost = 3
	for _, r := range slices.Concat(one.Rules, one.Listed) {
		one.MaxCost = min(one.MaxCost, r.Limit, r.burst())
	}
	if one.Kind == counted || one.Kind == duplicates || one.Kind == inFlight {
		one.MaxCost = 1
	}
	if one.Store != "" {
		if !slices.Contains(s.stores, one.Store) {
			s.stores = append(s.stores, one.Store)
		}
		if one.Store == "leased" {
			s.leases = 200 * time.Millisecond
		}
	}
	s.sites = append(s.sites, one)
}

// app returns the JSON of the app.
func (s *setup) app() json.RawMessage {
	store := func(name string) map[string]any {
		one := map[string]any{"name": name, "key_prefix": name, "pool_size": s.pool, "timeout": int64(s.way.timeout)}
		s.topology.configure(one)
		return one
	}
	main := store("main")
	main["key_prefix"] = "main" + s.prefix
	list := []any{main}
	for _, name := range s.stores {
		one := store(name)
		switch name {
		case "leased":
			one["lease"] = int64(s.leases)
		case "denying":
			one["on_failure"] = "deny"
		case "allowing":
			one["on_failure"] = "allow"
		}
		list = append(list, one)
	}
	app := map[string]any{"stores": list, "max_keys": 200}
	if s.source != "" {
		app["rules"] = s.sourceJSON()
	}
	return encode(app)
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// site returns the JSON of a handler.
func (s *setup) site(i int) json.RawMessage {
	one := &s.sites[i]
	zone := map[string]any{"name": one.Name, "key": []string{"{http.request.header.X-Key}"}, "cost": "{http.request.header.X-Cost}", "rules": rulesJSON(one.Rules)}
	if len(one.Listed) > 0 {
		zone["overrides"] = []any{map[string]any{"keys_file": s.list, "rules": rulesJSON(one.Listed)}}
	}
	if one.Store != "" {
		zone["store"] = one.Store
	}
	switch one.Kind {
	case inFlight:
		zone["in_flight"] = one.Places
	case tally, counted:
		zone["count_status"] = []string{"4xx"}
	case settled, held:
		zone["settle"], zone["hold"] = "{http.response.header.X-Tokens}", one.Kind == held
	case duplicates:
		zone["prevent_duplicates"] = map[string]any{"window": int64(one.Window)}
	}
	if one.MaxWait > 0 {
		zone["max_wait"] = int64(one.MaxWait)
	}
	zones := []any{zone}
	if one.Kind == across {
		zones = append(zones, map[string]any{
			"name": one.Name + "-local", "key": []string{"{http.request.header.X-Key}"}, "store": "local",
			"rules": []any{map[string]any{"limit": 1000, "window": int64(time.Second)}},
		})
	}
	return encode(map[string]any{"zones": zones})
}

func rulesJSON(rules []rule) (list []any) {
	for i := range rules {
		list = append(list, rules[i].json())
	}
	return list
}
