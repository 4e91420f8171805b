package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redisconfig"
	"github.com/dianalimiter/diana/internal/usage/settle"
)

// jsonValues are replacements for values of a configuration.
var jsonValues = []string{
	"null", "true", "{}", "[]", "[null]", `""`, `"*"`, "0", "1", "-1", "1.5", "1e3", "128", "129", "599", "4294967296", "1000003",
	"4503599627370496", "4503599627370497", "9007199254740993", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
	`"1us"`, `"1s"`, `"1h"`, `"1d"`, `"100000h"`, `"1250999h"`, `"10.0.0.0/8"`, `"::ffff:0:0/96"`, `"{client_ip}"`, `"{http.x}"`, `"{"`, `"4xx"`,
	`"exceeded"`, `"share"`, `"local"`, `"auto"`, `"gcra"`, `{"name":"gcra"}`, `{"name":"gcra","burst":3}`, `{"name":"fixed_window","align":true}`,
	`{"name":"token_bucket","step":1000}`, `{"name":"leaky_bucket"}`, `{"name":"leaky_bucket","burst":1000000}`, `{"name":"sliding_window","buckets":1000}`,
	`{"limit":1000,"window":1000}`, `{"limit":999983,"window":"1s"}`, `{"key":["*"],"rules":[{"limit":0,"window":1000}]}`,
	`["redis://u:p@localhost:1/2"]`, `["unix//r"]`, `"\ud800"`,
}

// jsonNames are options to add to objects.
var jsonNames = []string{
	"name", "limit", "window", "algorithm", "burst", "step", "buckets", "align", "nodelay", "key", "key_missing", "ipv4_prefix", "ipv6_prefix",
	"rules", "in_flight", "prevent_duplicates", "body", "cost", "settle", "count_status", "max_wait", "shadow", "respond", "status", "headers",
	"overrides", "unlimited", "store", "max_keys", "match", "stores", "addresses", "cluster", "sentinel", "timeout", "fallback_share", "lease", "jitter",
}

// otherJSON returns another value, usually of the same kind as v.
func otherJSON(r *rand.Rand, v any) any {
	kind := func(s string) byte {
		if c := s[0]; c != '-' && (c < '0' || c > '9') {
			return c
		}
		return '0'
	}
	is, _ := json.Marshal(v) // a decoded value can be encoded
	for {
		other := jsonValues[r.IntN(len(jsonValues))]
		if r.IntN(16) == 0 || kind(other) == kind(string(is)) {
			return json.RawMessage(other)
		}
	}
}

// changeJSON changes a random part of a JSON value: it replaces, duplicates or
// removes it, or adds an option to it.
func changeJSON(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case map[string]any:
		if r.IntN(16) == 0 {
			v[jsonNames[r.IntN(len(jsonNames))]] = json.RawMessage(jsonValues[r.IntN(len(jsonValues))])
			return v
		}
		names := slices.Sorted(maps.Keys(v))
		if len(names) == 0 {
			return v
		}
		name := names[r.IntN(len(names))]
		if r.IntN(16) == 0 {
			delete(v, name)
		} else {
			v[name] = changeJSON(r, v[name])
		}
		return v
	case []any:
		if len(v) == 0 || r.IntN(8) == 0 {
			return append(v, json.RawMessage(jsonValues[r.IntN(len(jsonValues))]))
		}
		i := r.IntN(len(v))
		if r.IntN(8) == 0 {
			return append(v, v[i])
		}
		v[i] = changeJSON(r, v[i])
		return v
	}
	return otherJSON(r, v)
}

// changedJSON returns in with a few changes chosen by the seed, or nil if in is not
// JSON.
func changedJSON(in []byte, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 5))
	for range 1 + r.IntN(4) {
		dec := json.NewDecoder(bytes.NewReader(in))
		dec.UseNumber()
		var v any
		if dec.Decode(&v) != nil {
			return nil
		}
		b, err := json.Marshal(changeJSON(r, v))
		if err != nil {
			return nil
		}
		in = b
	}
	return in
}

// FuzzJSON decodes an input, and variants of it, as the JSON of a handler and of the
// app, as strictly as Caddy does. An accepted input must yield the same zones every
// time, also after encoding and decoding it again, and its arithmetic must be exact.
func FuzzJSON(f *testing.F) {
	for file, g := range goldens(f) {
		b, err := adapt(f, g[0])
		if err != nil {
			continue
		}
		var cfg struct {
			Apps map[string]json.RawMessage `json:"apps"`
		}
		if err := json.Unmarshal(b, &cfg); err != nil {
			f.Fatalf("%s: %v", file, err)
		}
		for i, raw := range append(handlersIn(f, cfg.Apps["http"]), cfg.Apps["rate_limit"]) {
			f.Add([]byte(raw), uint64(i))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		for _, in := range [][]byte{in, changedJSON(in, seed)} {
			if h := new(diana.Handler); caddy.StrictUnmarshalJSON(in, h) == nil {
				checkHandlerJSON(t, h)
			}
			if a := new(diana.App); caddy.StrictUnmarshalJSON(in, a) == nil {
				checkAppJSON(t, a)
			}
			if t.Failed() {
				t.Logf("in %s", in)
			}
		}
	})
}

func checkHandlerJSON(t *testing.T, h *diana.Handler) {
	again := new(diana.Handler)
	rewrite(t, h, again)
	for i, c := range h.Zones {
		z, err := c.Check(settle.Responses{})
		other, err2 := again.Zones[i].Check(settle.Responses{})
		if (err == nil) != (err2 == nil) {
			t.Errorf("zone %d: %v, after a round trip: %v", i, err, err2)
		}
		if err != nil {
			continue
		}
		for _, other := range []*config.Checked{mustCheck(t, c), other} {
			if a, b := whole(z), whole(other); a != b {
				t.Errorf("zone %s is %s and %s", c.Name, a, b)
			}
		}
		for _, s := range append(z.Sets(), z.Duplicates) {
			if s != nil {
				checkBounds(t, z, s)
			}
		}
	}
}

func mustCheck(t *testing.T, c *config.Zone) *config.Checked {
	z, err := c.Check(settle.Responses{})
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// whole describes everything that a zone's decisions depend on.
func whole(z *config.Checked) string {
	text := z.Plan.Identity() + fmt.Sprintf(" %d %d %v", z.Charge.Fixed, z.InFlight, z.CountStatus)
	for _, s := range append(z.Sets(), z.Duplicates) {
		if s != nil {
			text += fmt.Sprintf("; %v %v %v %+v %d", s.Names, s.Labels, s.Kinds(0), s.Specs, s.Blocked)
		}
	}
	return text
}

// rewrite encodes v, decodes the result into again, and checks that again encodes
// to the same JSON.
func rewrite(t *testing.T, v, again any) {
	first, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.StrictUnmarshalJSON(first, again); err != nil {
		t.Fatalf("%v in %s", err, first)
	}
	second, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Fatalf("%s is decoded as %s", first, second)
	}
}

// The largest integer that is exact in Lua, half of it, and an instant in 2041.
var (
	exactInLua = big.NewInt(1 << 53)
	half       = big.NewInt(1 << 52)
	instant    = big.NewInt(1 << 51)
)

// checkBounds compiles a zone's rules, which must succeed, and computes the largest
// values of their arithmetic with arbitrary precision.
func checkBounds(t *testing.T, z *config.Checked, s *config.RuleSet) {
	if s.Blocked >= 0 {
		return // such rules never count
	}
	var rules []algorithms.Rule
	for i, a := range s.Algorithms {
		sp := s.Specs[i]
		sp.MaxTurn = z.MaxDelay()
		r, err := a.Compile(sp)
		if err != nil {
			t.Fatalf("zone %s: accepted, but does not compile: %v", z.Name, err)
		}
		rules = append(rules, r)
		if sp.Limit < 1 || sp.Window < 1 || sp.Cost < 1 || r.Limit() != sp.Limit || r.Window() != sp.Window || r.Capacity() < sp.Cost {
			t.Errorf("zone %s rule %d: accepted as %+v with capacity %d", z.Name, i, sp, r.Capacity())
		}
		for _, v := range r.Args(0) {
			if new(big.Int).Abs(big.NewInt(v)).Cmp(exactInLua) > 0 {
				t.Errorf("zone %s rule %d: number %d is above 2^53", z.Name, i, v)
			}
		}
		if most := greatest(a, sp); most.Cmp(exactInLua) > 0 {
			t.Errorf("zone %s rule %d: %T %+v reaches %s, above 2^53", z.Name, i, a, sp, most)
		}
		if m, l := meterRoom(a, sp); m.Cmp(half) > 0 || l.BitLen() > 32 {
			t.Errorf("zone %s rule %d: %T %+v needs %s units, at %s a microsecond", z.Name, i, a, sp, m, l)
		}
	}
	memory.NewTable(rules, 10)
}

// greatest returns the latest instant that a rule computes with.
func greatest(a algorithms.Algorithm, sp algorithms.Spec) *big.Int {
	window := big.NewInt(sp.Window)
	if w, ok := a.(*algorithms.SlidingWindow); ok {
		k := big.NewInt(w.Parts())
		b := ceil(window, k)
		x := new(big.Int).Div(instant, b)
		x.Add(x, k)
		return x.Mul(x.Add(x, big.NewInt(1)), b)
	}
	if m, l := meterRoom(a, sp); m.Sign() > 0 {
		return new(big.Int).Add(instant, ceil(m, l))
	}
	return new(big.Int).Add(instant, window)
}

// meterRoom returns the largest value of a meter's formulas,
// B*w + max_wait*l + step*l, and l. For other algorithms it returns 0 and 1.
func meterRoom(a algorithms.Algorithm, sp algorithms.Spec) (room, l *big.Int) {
	window, limit := big.NewInt(sp.Window), big.NewInt(sp.Limit)
	g := new(big.Int).GCD(nil, nil, limit, window)
	l, w := new(big.Int).Div(limit, g), new(big.Int).Div(window, g)
	burst, wait, step := limit, new(big.Int), new(big.Int)
	var configured int64
	switch a := a.(type) {
	case *algorithms.GCRA:
		configured = a.Burst
	case *algorithms.TokenBucket:
		configured, step = a.Burst, big.NewInt(time.Duration(a.Step).Microseconds())
	case *algorithms.LeakyBucket:
		configured = a.Burst
		if !a.NoDelay {
			burst, wait = queue(a.Burst, sp.MaxWait, l, w)
		}
	default:
		return new(big.Int), big.NewInt(1)
	}
	if configured > 0 {
		burst = big.NewInt(configured)
	}
	room = new(big.Int).Mul(burst, w)
	room.Add(room, wait.Mul(wait, l))
	return room.Add(room, step.Mul(step, l)), l
}

// queue returns the length of a leaky bucket's queue, in cost and in microseconds.
func queue(burst, maxWait int64, l, w *big.Int) (_, wait *big.Int) {
	switch {
	case maxWait > 0:
		wait = big.NewInt(maxWait)
	case burst > 0:
		wait = ceil(new(big.Int).Mul(big.NewInt(burst-1), w), l)
	default:
		wait = big.NewInt(1_000_000)
	}
	room := new(big.Int).Mul(wait, l)
	return room.Add(room.Div(room, w), big.NewInt(1)), wait
}

// ceil returns a/b, rounded up.
func ceil(a, b *big.Int) *big.Int {
	x := new(big.Int).Add(a, b)
	return x.Div(x.Sub(x, big.NewInt(1)), b)
}

// checkAppJSON checks the options of the app's stores as provisioning does, without
// reading files: some files never end.
func checkAppJSON(t *testing.T, a *diana.App) {
	again := new(diana.App)
	rewrite(t, a, again)
	for i, raw := range a.StoresRaw {
		c, c2 := new(redisconfig.Store), new(redisconfig.Store)
		if json.Unmarshal(raw, c) != nil || c.TLS != nil || bytes.Contains(raw, []byte("{file.")) {
			continue
		}
		if err := json.Unmarshal(again.StoresRaw[i], c2); err != nil {
			t.Errorf("store %d: after a round trip: %v", i, err)
		}
		o, h, err := c.Options()
		o2, h2, err2 := c2.Options()
		if (err == nil) != (err2 == nil) || h != h2 || o.Name != o2.Name || o.ShareOf != o2.ShareOf {
			t.Errorf("store %d: %+v, %v, after a round trip: %+v, %v", i, o, err, o2, err2)
		}
		if err != nil {
			continue
		}
		if len(o.Addresses) != len(c.Addresses) || o.Timeout <= 0 || o.DialTimeout <= 0 || o.PoolSize < 0 || o.DB < 0 {
			t.Errorf("store %d: accepted as %+v", i, o)
		}
		if o.ShareOf != 0 && o.ShareOf < 1e6 || o.ShareOf > 1e12 {
			t.Errorf("store %d: fallback_share %s of %d millionths", i, c.FallbackShare, o.ShareOf)
		}
	}
}

// TestJSONFuzzRegressions loads inputs found by fuzzing that panicked, or that were
// accepted and lost precision.
func TestJSONFuzzRegressions(t *testing.T) {
	rules := func(r string) string { return handlerOf(`{"name": "a", "rules": [` + r + `]}`) }
	for _, c := range []struct{ app, handlers, want string }{
		{"", handlerOf("null"), "zone null: want an object"},
		{"", rules("null"), "rule null: want an object"},
		{"", handlerOf(`{"name": "a", "overrides": [null], ` + oneRule + `}`), "override null: want an object"},
		{"", handlerOf(`{"name": "a", "overrides": [null], "linger": "1s", ` + oneRule + `}`), "linger"},
		{"", handlerOf(`{"name": "a", "overrides": [{"key": ["10.0.0.1"], "rules": [null]}], ` + oneRule + `}`), "rule null: want an object"},
		{`"stores": [null]`, "", "store 1: want an object"},
		{"", rules(`{"limit": 1, "window": "1250999h"}`), ""},
		{"", rules(`{"limit": 1, "window": "1251000h"}`), "window 1251000h0m0s: want at most 1250999h53m47.370496s"},
		{"", handlerOf(`{"name": "a", "prevent_duplicates": {"window": "1251000h"}}`), "prevent_duplicates 1251000h0m0s: want at most"},
		{"", rules(`{"limit": 1, "window": "168h", "algorithm": {"name": "leaky_bucket", "burst": 1000}},
			{"limit": 999983, "window": "1s", "algorithm": {"name": "leaky_bucket", "burst": 2}}`), "with another rule that delays for up to 167832h0m0s: limit 999983"},
	} {
		err := validate(t, c.app, c.handlers)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: %v, want %q", c.app, c.handlers, err, c.want)
		}
	}
}
