package test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/testkit/benchtest"
	"github.com/dianalimiter/diana/internal/topk"
)

// TestThousandZones checks that the number of time series and the size of the
// busiest keys of a zone do not depend on the number of clients. DIANA_KEYS sets
// that number; ten million take a minute and 1 GiB.
func TestThousandZones(t *testing.T) {
	const zones = 1000
	clients := 5000
	if text := os.Getenv("DIANA_KEYS"); text != "" {
		var err error
		if clients, err = strconv.Atoi(text); err != nil || clients < zones {
			t.Fatalf("DIANA_KEYS %q: want a number of at least %d", text, zones)
		}
	}
	var site strings.Builder
	for i := range zones {
		fmt.Fprintf(&site, "rate_limit /%d {\nzone z%d {\nkey {header.%s}\nrule 2/100h gcra\nrule 1000/1h gcra\n}\n}\n", i, i, benchtest.KeyHeader)
	}
	site.WriteString("respond ok")
	s := serve(t, setup{site: site.String()})
	handlers := s.handlers()
	if len(handlers) != zones {
		t.Fatalf("%d handlers", len(handlers))
	}
	s.send(req{path: "/7"}) // through Caddy
	parallel(4, func(g int) {
		e := benchtest.NewExchange(t)
		for i := g; i < clients; i += 4 {
			if err := e.Do(handlers[i%zones], fmt.Sprint(i)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	count := func() (series int) {
		ctx := caddy.ActiveContext()
		families, err := ctx.GetMetricsRegistry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), metrics.Namespace) {
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if l.GetName() == "zone" && strings.HasPrefix(l.GetValue(), "z") && len(l.GetValue()) > 1 {
							series++
						}
					}
				}
			}
		}
		return series
	}
	before := count()
	e := benchtest.NewExchange(t)
	for i, h := range handlers { // more clients add no series
		if err := e.Do(h, fmt.Sprint("another ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after != before || after > 14*zones {
		t.Errorf("%d series, and %d after a thousand more clients: want at most 14 per zone", before, after)
	}
	get := func(path string) (took time.Duration, size int) {
		begun := time.Now()
		status, text := s.admin("GET", path, "", nil)
		if status != 200 {
			t.Error(text)
		}
		return time.Since(begun).Round(time.Microsecond), len(text)
	}
	all, size := get("zones")
	shown := "history?since=0"
	for i := range 24 {
		shown += fmt.Sprint("&zone=z", i)
	}
	past, _ := get(shown)
	top, _ := get("zones/z7/top")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d keys in %d zones: %d series; GET zones returns %d bytes in %v, history of 24 zones in %v, top in %v; two sketches take %d bytes per zone; heap %d MiB",
		clients, zones, before, size, all, past, top, 2*unsafe.Sizeof(topk.Sketch{}), m.HeapAlloc>>20)
}
