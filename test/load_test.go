package test

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/testkit/usage"
)

// BenchmarkValidate measures how long a configuration of many sites with one line each takes to load, beside the
// same sites with a header: one that takes the square of the sites stands out at 1,600.
func BenchmarkValidate(b *testing.B) {
	benchSites(b, []int{100, 400, 1600}, func(text string) error { return adaptAndValidate(b, text) })
}

// BenchmarkReload also replaces the configuration that runs.
func BenchmarkReload(b *testing.B) {
	b.Cleanup(func() { _ = caddy.Stop() })
	benchSites(b, []int{100, 300, 1600}, func(text string) error {
		adapted, err := adapt(b, text)
		if err != nil {
			return err
		}
		return caddy.Load([]byte(listeners.Replace(string(adapted))), true)
	})
}

func benchSites(b *testing.B, sizes []int, load func(text string) error) {
	for _, n := range sizes {
		for _, l := range loadedLines {
			text := sitesWith(n, l.before, l.line)
			b.Run(fmt.Sprintf("sites=%d/%s", n, l.name), func(b *testing.B) {
				b.ReportAllocs()
				cpu := usage.StartCPU()
				for b.Loop() {
					if err := load(text); err != nil {
						b.Fatal(err)
					}
				}
				cpu.Report(b, b.N)
			})
		}
	}
}

// loadedLines are the lines in each site whose loading is compared, and what stands before the site. SITE is its number.
var loadedLines = []struct{ name, line, before string }{
	{"header", "header X-A b", ""},
	{"rate_limit", "rate_limit {client_ip} 10/s", ""},
	{"named route", "invoke routeSITE\nhandle_errors {\nrespond no\n}", "&(routeSITE) {\nrate_limit {client_ip} 10/s\n}\n"},
	{"same zone", "rate_limit {\nzone all {\nmatch {\npath /a/*\n}\nkey {header.X-Key}\nrule 10/s\n}\n}", ""},
}

// sitesWith returns the Caddyfile of n sites with a line in each, and what stands before each.
func sitesWith(n int, before, line string) string {
	var text strings.Builder
	text.WriteString("{\nadmin off\npersist_config off\nlog {\nlevel ERROR\n}\n}\n")
	for i := range n {
		site := before + "http://siteSITE.example.com:8001 {\n" + line + "\nrespond ok\n}\n"
		text.WriteString(strings.ReplaceAll(site, "SITE", strconv.Itoa(i)))
	}
	return text.String()
}

// TestLoadIsLinear checks that twice as many sites allocate twice as much when they are loaded, and start.
func TestLoadIsLinear(t *testing.T) {
	s := newSite(t)
	for _, l := range loadedLines[1:] { // without the first, which has nothing of this plugin
		allocated := [...]float64{math.Inf(1), math.Inf(1), math.Inf(1)}
		var less, more float64
		for range 4 { // what else goes on in the process allocates, too
			for i, n := range []int{100, 200, 400} {
				allocated[i] = min(allocated[i], allocationsOf(t, func() error {
					adapted, err := adapt(t, sitesWith(n, l.before, l.line))
					if err != nil {
						return err
					}
					return s.loadJSON(adapted)
				}))
			}
			t.Logf("%s: %.0f, %.0f and %.0f bytes", l.name, allocated[0], allocated[1], allocated[2])
			if less, more = allocated[1]-allocated[0], allocated[2]-allocated[1]; more <= 2.3*less {
				break
			}
		}
		if more > 2.3*less {
			t.Errorf("%s: 100 more sites allocate %.0f bytes more, 200 more sites %.0f: want twice as many", l.name, less, more)
		}
	}
}

// allocationsOf returns the bytes that a function allocates, of three calls the fewest.
func allocationsOf(t *testing.T, f func() error) float64 {
	least := math.Inf(1)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := f(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.TotalAlloc-before.TotalAlloc))
	}
	return least
}

func adaptAndValidate(tb testing.TB, text string) error {
	adapted, err := adapt(tb, text)
	if err != nil {
		return err
	}
	var config caddy.Config
	if err := json.Unmarshal(adapted, &config); err != nil {
		return err
	}
	return caddy.Validate(&config)
}
