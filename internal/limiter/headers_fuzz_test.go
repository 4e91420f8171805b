package limiter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// sfString is a member of a structured field: a string with integer parameters, the
// only kind that draft-ietf-httpapi-ratelimit-headers-10 needs.
type sfString struct {
	text   string
	params map[string]int64
}

var (
	sfText  = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])*"`)
	sfParam = regexp.MustCompile(`^; *([a-z*][a-z0-9_.*-]*)=(-?[0-9]{1,15})`)
	sfComma = regexp.MustCompile(`^[ \t]*,[ \t]*`)
)

// parseStrings parses a List of RFC 9651, section 3.1, of such members only.
func parseStrings(s string) (list []sfString, err error) {
	for {
		text := sfText.FindString(s)
		if text == "" {
			return nil, fmt.Errorf("%q: want a string", s)
		}
		s = s[len(text):]
		unescaped := strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(text[1 : len(text)-1])
		m := sfString{unescaped, make(map[string]int64)}
		for p := sfParam.FindStringSubmatch(s); p != nil; p = sfParam.FindStringSubmatch(s) {
			if _, ok := m.params[p[1]]; ok {
				return nil, fmt.Errorf("%s is duplicate", p[1])
			}
			if m.params[p[1]], err = strconv.ParseInt(p[2], 10, 64); err != nil {
				return nil, err
			}
			s = s[len(p[0]):]
		}
		list = append(list, m)
		if s == "" {
			return list, nil
		}
		comma := sfComma.FindString(s)
		if comma == "" {
			return nil, fmt.Errorf("%q: want a comma", s)
		}
		if s = s[len(comma):]; s == "" {
			return nil, errors.New("a comma at the end")
		}
	}
}

// TestParseStrings checks what the parser accepts and rejects.
func TestParseStrings(t *testing.T) {
	for in, ok := range map[string]bool{
		`"a"`: true, `"a";q=1, "b" , "c";w=0;  q=-5`: true, `"\"\\"`: true, `"";q=999999999999999`: true,
		``: false, ` "a"`: false, `"a" `: false, `"a",`: false, `,"a"`: false, `"a" "b"`: false, `a;q=1`: false, `"a`: false, `"\a"`: false,
		`"é"`: false, "\"\x7f\"": false, `"a";Q=1`: false, `"a";q =1`: false, `"a";q= 1`: false, `"a" ;q=1`: false, `"a";q=`: false,
		`"a";q=1.5`: false, `"a";q=1000000000000000`: false, `"a";q=1;q=2`: false, `"a";q=--1`: false, `"a";q=+1`: false, `("a")`: false,
	} {
		if list, err := parseStrings(in); (err == nil) != ok {
			t.Errorf("%s: %v, %v, want it accepted: %v", in, list, err, ok)
		}
	}
}

// headerCase is a decided request and the rules that its headers must report.
type headerCase struct {
	*testing.T
	r        *rand.Rand
	q        request
	fallback bool
	now      int64
	names    []string
	rules    []algorithms.Rule
	zones    []*stores.ZoneCheck // of each rule
	nth      []int               // the index of each rule in its zone
}

// zoneOf returns a random zone with names and numbers of the fuzz input.
func (c *headerCase) zoneOf(name, rule string, limit, window int64) *config.Zone {
	z := &config.Zone{Name: name, Shadow: c.r.IntN(4) == 0}
	for i := range c.r.IntN(6) {
		r := &config.Rule{
			Limit:  []int64{limit, limit, 1, 5, limit / 3, 1 << c.r.IntN(53)}[c.r.IntN(6)],
			Window: config.Window{Duration: time.Duration([]int64{window, window, 1_000_000, 999_999, 1_000_001, 1, 3_600_000_000, 1 << c.r.IntN(53)}[c.r.IntN(8)] * 1000)},
		}
		if c.r.IntN(3) == 0 {
			r.Name = rule + []string{"", strconv.Itoa(i)}[c.r.IntN(2)]
		}
		algorithm := []string{
			`{"name":"fixed_window"}`, `{"name":"fixed_window","align":true}`, `{"name":"sliding_window","buckets":3}`, `{"name":"token_bucket"}`,
			`{"name":"gcra","burst":7}`, `{"name":"gcra"}`, `{"name":"leaky_bucket"}`, `{"name":"leaky_bucket","nodelay":true}`, "",
		}[c.r.IntN(9)]
		r.AlgorithmRaw = json.RawMessage(algorithm)
		z.Rules = append(z.Rules, r)
	}
	if c.r.IntN(8) == 0 {
		z.InFlight = 2
	}
	return z
}

// add adds a zone to the request, if it is valid.
func (c *headerCase) add(z *config.Zone) {
	checked, err := z.Check(nil)
	if err != nil {
		return
	}
	set, err := newRuleSet(z, checked.Rules, algorithms.Spec{MaxTurn: checked.MaxDelay()})
	if err != nil {
		c.Fatal(err)
	}
	set.counter.Table = memory.NewTable(set.counter.Rules, 10)
	res := zoneResult{zone: &Zone{Zone: z, Config: checked, common: new(common)}, set: set}
	if counter := set.counter; c.r.IntN(6) > 0 {
		if c.fallback {
			share := *set
			share.counter = &stores.Counter{Terms: stores.Terms{InFlight: z.InFlight, Table: counter.Table}, Rules: set.split(1e6 * (1 + c.r.Int64N(9)))}
			res.set = &share
		}
		res.zone.store = &Store{}
		res.rules = c.q.count(&res, res.set.counter, stores.Key{Lo: 1}, 0, 1+c.r.Int64N(3))
		if res.rules.WantsMore = true; z.Shadow {
			c.q.check.Shadows++
		}
	}
	if c.q.zones = append(c.q.zones, res); !z.Shadow {
		c.q.enforced++
	}
}

// decide decides the request several times at random instants.
func (c *headerCase) decide() {
	store := memory.Store{Clock: func() int64 { return c.now }}
	for range 1 + c.r.IntN(5) {
		store.Decide(context.Background(), &c.q.check)
		c.now += c.r.Int64N(1 << (1 + c.r.IntN(40)))
	}
	if c.fallback {
		c.q.check.Mode = stores.ModeFallback
	}
	c.q.conclude()
	for i := range c.q.zones {
		z := &c.q.zones[i]
		if z.rules == nil || i >= c.q.enforced {
			continue
		}
		it := z.rules
		for r := range it.Results {
			c.names = append(c.names, headerName(z.zone.Zone, r))
			c.rules = append(c.rules, z.set.counter.Rules[r])
			c.zones, c.nth = append(c.zones, it), append(c.nth, r)
		}
	}
}

// headerName returns the name of a rule in headers.
func headerName(z *config.Zone, r int) string {
	switch name := z.Rules[r].Name; {
	case name != "":
		return z.Name + "." + name
	case r > 0:
		return fmt.Sprintf("%s.%d", z.Name, r+1)
	}
	return z.Name
}

// greatestInteger is the greatest integer of structured fields.
const greatestInteger = 999_999_999_999_999

// secondsUp returns whole seconds, rounded up.
func secondsUp(us int64) int64 { return (us + 999_999) / 1_000_000 }

// headers returns the headers of a response.
func (c *headerCase) headers() (h headers) {
	if c.q.hasHeaders() {
		c.q.fillHeaders(&h)
	}
	return h
}

// values returns the values of the legacy headers, empty if there are none.
func (h *headers) values() (v [3]string) {
	if n := h.families[ofLegacy]; n != nil {
		v = n.values
	}
	return v
}

// checkDraft compares RateLimit-Policy and RateLimit with the rules.
func (c *headerCase) checkDraft(h headers) {
	c.Helper()
	names := c.names[:min(4, len(c.names))]
	if len(names) == 0 {
		if h.draft[atPolicy] != "" || h.draft[atLimit] != "" {
			c.Errorf("headers %q and %q, want none: there is no rule", h.draft[atPolicy], h.draft[atLimit])
		}
		return
	}
	policy, err := parseStrings(h.draft[atPolicy])
	limit, err2 := parseStrings(h.draft[atLimit])
	if err = errors.Join(err, err2); err != nil {
		c.Fatalf("%v in RateLimit-Policy: %s, RateLimit: %s", err, h.draft[atPolicy], h.draft[atLimit])
	}
	if len(policy) != len(names) || len(limit) != len(names) {
		c.Fatalf("RateLimit-Policy: %s, RateLimit: %s, want them of %q", h.draft[atPolicy], h.draft[atLimit], names)
	}
	for i, name := range names {
		res := c.zones[i].Results[c.nth[i]]
		q := map[string]int64{"q": min(c.rules[i].Limit(), greatestInteger)}
		if w := c.rules[i].Window(); w >= 1_000_000 {
			q["w"] = secondsUp(w)
		}
		if burst := c.rules[i].Capacity(); burst != c.rules[i].Limit() {
			q["diana-burst"] = min(burst, greatestInteger)
		}
		if res.Remaining > c.rules[i].Capacity() {
			c.Errorf("rule %d: %d of %d remain", i, res.Remaining, c.rules[i].Capacity())
		}
		r := map[string]int64{"r": min(res.Remaining, greatestInteger), "t": secondsUp(res.More)}
		if policy[i].text != name || limit[i].text != name || fmt.Sprint(policy[i].params) != fmt.Sprint(q) || fmt.Sprint(limit[i].params) != fmt.Sprint(r) {
			c.Errorf("rule %d: policy %v, limit %v, want %q %v and %v", i, policy[i], limit[i], name, q, r)
		}
		for _, v := range []int64{q["q"], q["w"], r["r"], r["t"]} {
			if v < 0 {
				c.Errorf("rule %d: policy %v, limit %v: below zero", i, q, r)
			}
		}
	}
}

// checkLegacy compares X-RateLimit-* with the rules: they report one of the rules, on a denial one
// that denies, if any does, and no other of them is closer to its limit.
func (c *headerCase) checkLegacy(h headers) {
	c.Helper()
	if len(c.names) == 0 {
		if h.families[ofLegacy] != nil {
			c.Errorf("headers %q, want none: there is no rule", h.values())
		}
		return
	}
	got := h.values()
	var chosen *big.Rat
	denies := func(i int) bool { return !c.zones[i].Results[c.nth[i]].Admit }
	all := make([]int, len(c.names))
	for i := range all {
		all[i] = i
	}
	if c.q.verdict != admitted && slices.ContainsFunc(all, denies) {
		all = slices.DeleteFunc(all, func(i int) bool { return !denies(i) })
	}
	for _, i := range all {
		res := c.zones[i].Results[c.nth[i]]
		reset := secondsUp(res.Reset)
		if reset == 0 && c.q.verdict != admitted {
			reset = 1 // what is held is free at an unknown time
		}
		want := [...]string{fmt.Sprint(c.rules[i].Limit()), fmt.Sprint(res.Remaining), fmt.Sprint(reset)}
		if got == want {
			chosen = big.NewRat(res.Remaining, c.rules[i].Limit())
		}
	}
	if chosen == nil {
		c.Fatalf("headers %q, want those of one of the rules", got)
	}
	for _, i := range all {
		res := c.zones[i].Results[c.nth[i]]
		other, _ := big.NewRat(res.Remaining, c.rules[i].Limit()).Float64()
		if f, _ := chosen.Float64(); other < f {
			c.Errorf("headers %q, want those of rule %s, which is closer to its limit: %d of %d", got, c.names[i], res.Remaining, c.rules[i].Limit())
		}
	}
}

// FuzzHeaders decides checks of random zones and parses the headers as structured
// fields. They report the first rules, in order, with integers that a structured field
// can hold.
func FuzzHeaders(f *testing.F) {
	for i, limit := range []int64{1, 5, 100, 1 << 32, 999_999_999_999_999, 1_000_000_000_000_000, 1 << 52} {
		for j, window := range []int64{1, 1000, 999_999, 1_000_000, 1_000_001, 60_000_000, 1 << 52} {
			f.Add("api", "login", limit, window, int64(1_800_000_000_000_000), uint64(7*i+j))
			f.Add("-_", "2", limit, window, int64(j), uint64(1000+7*i+j))
		}
	}
	f.Fuzz(func(t *testing.T, zone, rule string, limit, window, now int64, seed uint64) {
		if window > int64(config.MaxWindow/time.Microsecond) || now < 0 || now > 1<<52 {
			return // not an input of this target
		}
		r := rand.New(rand.NewPCG(seed, 3))
		c := &headerCase{T: t, r: r, now: now, fallback: r.IntN(3) == 0}
		c.q.l = new(Limiter)
		var all []*config.Zone
		for i := range 1 + r.IntN(3) {
			all = append(all, c.zoneOf(zone+strings.Repeat("x", i), rule, limit, window))
		}
		for _, shadow := range []bool{false, true} {
			for _, z := range all {
				if z.Shadow == shadow {
					c.add(z)
				}
			}
		}
		c.decide()
		c.q.l.headers = formatOf("draft")
		draft := c.headers()
		c.checkDraft(draft)
		c.q.l.headers = formatOf("legacy")
		legacy := c.headers()
		c.checkLegacy(legacy)
		c.q.l.headers = formatOf("all")
		if all := c.headers(); all.draft != draft.draft || all.values() != legacy.values() {
			t.Errorf("headers all: %+v, draft %+v, legacy %+v", all, draft, legacy)
		}
		c.q.l.headers = formatOf("off")
		if none := c.headers(); none.draft != (headers{}).draft || none.families[ofLegacy] != nil {
			t.Errorf("headers of an unknown word: %+v", none)
		}
		both, others := draft, headers{}
		if both.add(&draft); both.draft != draft.draft {
			t.Errorf("headers of the same rules twice: %q, want %q", both.draft, draft.draft)
		}
		for i, list := range draft.draft {
			others.draft[i] = strings.ReplaceAll(list, `"`+zone, `"y`+zone)
		}
		both.add(&others)
		if two, err := parseStrings(both.draft[atLimit]); draft.draft[atLimit] != "" && (err != nil || len(two) != 2*min(4, len(c.names))) {
			t.Errorf("RateLimit of two handlers: %s: %v", both.draft[atLimit], err)
		}
	})
}
