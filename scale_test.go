package diana

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/topk"
)

// TestThousandZones: a zone has a fixed number of time series and a fixed size
// of its busiest keys, however many clients there are.
func TestThousandZones(t *testing.T) {
	const zones, clients = 1000, 5000
	var site strings.Builder
	site.WriteString("rate_limit {\n")
	for i := range zones {
		fmt.Fprintf(&site, "zone z%d {\nmatch path /%d\nrule 2/100h gcra\nrule 1000/1h\n}\n", i, i)
	}
	site.WriteString("}\nrespond ok")
	s := serve(t, config{site: site.String()})
	parallel(4, func(g int) {
		for i := range clients / 4 {
			s.send(req{path: fmt.Sprint("/", i%zones), ip: fmt.Sprintf("10.%d.%d.%d", g, i/250, i%250)})
		}
	})
	count := func() (series int) {
		ctx := caddy.ActiveContext()
		families, err := ctx.GetMetricsRegistry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), metricsNamespace) {
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
	for i := range zones { // other clients make no other series
		s.send(req{path: fmt.Sprint("/", i), ip: fmt.Sprintf("11.0.%d.%d", i/250, i%250)})
	}
	if after := count(); after != before || after > 12*zones {
		t.Errorf("%d series, and %d after a thousand more clients: want at most 12 a zone", before, after)
	}
	begun := time.Now()
	_, text := s.ask("GET", "zones", "", nil)
	took := time.Since(begun)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d zones: %d series; GET zones answers %d bytes in %v; two sketches take %d bytes a zone; heap %d MiB",
		zones, before, len(text), took, 2*unsafe.Sizeof(topk.Sketch{}), m.HeapAlloc>>20)
}
