package test

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/lib/clock"
)

// watchers returns the number of sampling goroutines.
func watchers() int {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 2)
	return strings.Count(b.String(), "history.(*History).run(")
}

// TestHistorySurvivesReload checks that the history of zones survives a reload,
// that one goroutine samples it, and that none does after the last zone is gone.
func TestHistorySurvivesReload(t *testing.T) {
	s := serve(t, zoneOf(backend{}, "rule 2/100h"))
	seen := func(zone string) (passed, denied uint32) {
		var all history.Past
		if status, text := s.admin("GET", "history?zone="+zone, "", &all); status != 200 {
			t.Fatal(text)
		}
		for i := range all.Zones[zone].Passed {
			passed += all.Zones[zone].Passed[i]
			denied += all.Zones[zone].Denied[i]
		}
		return passed, denied
	}
	// History starts with the first whole step.
	began := clock.Now() / 2_000_000
	until(t, "the step to end in which the configuration began to run", func() bool {
		var all history.Past
		s.admin("GET", "history", "", &all)
		return all.Last >= began
	})
	s.want(req{}, 200, 200, 429, 429, 429)
	wait := func(passed, denied uint32) {
		t.Helper()
		until(t, fmt.Sprintf("%d passed and %d denied in the history", passed, denied), func() bool {
			p, d := seen("z")
			return p == passed && d == denied
		})
	}
	wait(2, 3)
	s.reload(zoneOf(backend{}, "rule 3/100h\nrule 5/1h gcra"))
	s.want(req{ip: "10.0.0.1"}, 200)
	wait(3, 3)
	if n := watchers(); n != 1 {
		t.Errorf("%d goroutines sample, want 1", n)
	}
	if err := s.load(setup{site: "rate_limit {client_ip} nonsense"}); err == nil {
		t.Error("an invalid configuration loads")
	}
	s.want(req{ip: "10.0.0.1"}, 200)
	wait(4, 3)
	for query, want := range map[string]int{"?since=x": 400, "?since=-1": 400, "?since=9223372036854775807": 400, "?zone=none": 200, "": 200, "?since=1&zone=z&zone=z": 200, "?range=1h": 200, "?range=24h&zone=z": 200, "?range=2h": 400} {
		if status, text := s.admin("GET", "history"+query, "", nil); status != want {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
	if status, _ := s.admin("POST", "history", "", nil); status != 405 {
		t.Errorf("POST: %d", status)
	}
	if err := stopCaddy(); err != nil {
		t.Fatal(err)
	}
	if n := watchers(); n != 0 {
		t.Errorf("%d goroutines sample after Caddy has stopped", n)
	}
}
