package limiter

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// limitsOf returns the limits of a rule whose limit is that of the header Limit.
func limitsOf(tb testing.TB, rule *config.Rule) *limits {
	tb.Helper()
	rule.LimitFrom, rule.Window = "{http.request.header.Limit}", config.Window{Duration: time.Minute}
	z := &config.Zone{Name: "z", Rules: []*config.Rule{rule}}
	checked, err := z.Check(nil)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := newRuleSet(z, checked.Rules, algorithms.Spec{})
	if err != nil {
		tb.Fatal(err)
	}
	s.counter.Table = memory.NewTable(s.counter.Rules, 10)
	return s.limits
}

func brings(limit string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Limit", limit)
	return r
}

// TestLimitsAreBounded brings more limits than are kept: each is enforced, and the memory is
// bounded.
func TestLimitsAreBounded(t *testing.T) {
	l := limitsOf(t, &config.Rule{Limit: 100})
	grown := func(from, n int) int64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			limit := int64(from + i)
			set, bad, blocked := l.of(brings(strconv.FormatInt(limit, 10)))
			if got := set.counter.Rules[0].Limit(); got != limit || bad || blocked >= 0 {
				t.Fatalf("limit %d: enforced %d, bad %v, blocked %d", limit, got, bad, blocked)
			}
			if set.counter.Table != l.base.counter.Table || set.counter.Base != l.base.counter || set.counter.Kinds != l.base.counter.Kinds {
				t.Fatalf("limit %d counts elsewhere", limit)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		return int64(after.HeapAlloc) - int64(before.HeapAlloc)
	}
	grown(1000, 2000)
	if n := grown(10_000, 20_000); n > 256<<10 {
		t.Errorf("the heap has grown by %d bytes", n)
	}
	first, _, _ := l.of(brings("7"))
	if again, _, _ := l.of(brings("7")); again != first {
		t.Error("a limit is compiled again")
	}
	if same, _, _ := l.of(brings("100")); same != l.base {
		t.Error("the configured limit is compiled again")
	}
}

// TestRefusedLimitIsKept brings a limit that the algorithm refuses: the verdict is kept, too.
func TestRefusedLimitIsKept(t *testing.T) {
	l := limitsOf(t, &config.Rule{Limit: 100, AlgorithmRaw: []byte(`{"name": "gcra", "burst": 1000}`)})
	first, bad, _ := l.of(brings("9007199254740993"))
	if !bad || first.counter.Rules[0].Limit() != 100 {
		t.Errorf("bad %v, limit %d", bad, first.counter.Rules[0].Limit())
	}
	if again, bad, _ := l.of(brings("9007199254740993")); again != first || !bad {
		t.Errorf("bad %v, compiled again %v", bad, again != first)
	}
}

// TestLimitOf reads the limits of requests: whole numbers, and rates with the window of the
// rule.
func TestLimitOf(t *testing.T) {
	l := limitsOf(t, &config.Rule{Limit: 100, AlgorithmRaw: []byte(`{"name": "gcra"}`)})
	for _, c := range []struct {
		text    string
		limit   int64
		bad     bool
		blocked int
	}{
		{"7", 7, false, -1},
		{" 7 ", 7, false, -1},
		{"7/1m", 7, false, -1},
		{"7r/60s", 7, false, -1},
		{"100", 100, false, -1},
		{"0", 100, false, 0},
		{"0/1m", 100, false, 0},
		{"7/1h", 100, true, -1},
		{"0/1h", 100, true, -1},
		{"", 100, true, -1},
		{"-7", 100, true, -1},
		{"+7", 100, true, -1},
		{"7.5", 100, true, -1},
		{"99999999999999999999", 100, true, -1},
		{"4503599627370497", 100, true, -1},
		{strings.Repeat("0", maxText) + "7", 100, true, -1},
	} {
		set, bad, blocked := l.of(brings(c.text))
		if got := set.counter.Rules[0].Limit(); got != c.limit || bad != c.bad || blocked != c.blocked {
			t.Errorf("%q: limit %d, bad %v, blocked %d; want %+v", c.text, got, bad, blocked, c)
		}
	}
}

// maxText is the size of the longest limit of a request.
const maxText = 64

// TestIsNear looks at how much of a limit is left, or of a burst.
func TestIsNear(t *testing.T) {
	rule := func(limit, burst int64) algorithms.Rule {
		r, err := (&algorithms.GCRA{Burst: burst}).Compile(algorithms.Spec{Limit: limit, Window: 1e6, Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		limit, burst, left int64
		near               bool
	}{
		{10, 0, 2, false},
		{10, 0, 1, true},
		{11, 0, 3, false},
		{11, 0, 2, true},
		{1, 0, 0, true},
		{1000, 10, 2, false},
		{1000, 10, 1, true},
		{10, 1000, 200, false},
		{10, 1000, 199, true},
	} {
		z := zoneResult{rules: &stores.ZoneCheck{
			Enforced: stores.Enforced{Rules: []algorithms.Rule{rule(1, 0), rule(c.limit, c.burst)}},
			Results:  []stores.Result{{Remaining: 1}, {Remaining: c.left}},
		}}
		if near := z.isNear(); near != c.near {
			t.Errorf("%d of %d, burst %d: near %v", c.left, c.limit, c.burst, near)
		}
	}
	if (&zoneResult{}).isNear() {
		t.Error("a zone without rules is near its limit")
	}
}

// BenchmarkLimits finds the rules for a limit that a request brings.
func BenchmarkLimits(b *testing.B) {
	l := limitsOf(b, &config.Rule{Limit: 100})
	for name, limits := range map[string][]string{"else": {"", "100"}, "few": {"10", "1000", "60"}, "many": nil} {
		for i := 0; name == "many" && i < 100_000; i++ {
			limits = append(limits, strconv.Itoa(1000+i))
		}
		r := brings("")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				r.Header["Limit"][0] = limits[i%len(limits)]
				l.of(r)
			}
		})
	}
}

// TestCalendarOfTheLocalStore checks that a calendar in this process follows the system's clock.
func TestCalendarOfTheLocalStore(t *testing.T) {
	l := newTestLimiter(t, nil, &config.Zone{Name: "z", Algorithm: "calendar", Rules: []*config.Rule{{Limit: 2, Window: config.Window{Period: algorithms.Day}}}})
	if l.zones[0].active.Load().rules.compiled[0].Wall == nil {
		t.Error("its time is that of the process, which ignores that the clock was set")
	}
}
