package test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestStopSettlesCutResponses stops Caddy while responses are under way, with a grace period that passes: what was told
// is charged, and at least what was held, as of clients that leave. A configuration that replaces another settles
// nothing that goes on, nor does the removal of all, and one that stops settles what an earlier one began.
func TestStopSettlesCutResponses(t *testing.T) {
	b := backend{redistest.Start(t)}
	const told = "data: {\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":5}}\n\n"
	for name, c := range map[string]struct {
		options, begins string
		charged         int64
		ends            string
		replaced        int64 // charged after the end if only the configuration was replaced
	}{
		"nothing was told":    {"tokens {\nreserve 300\n}", "", 300, fmt.Sprintf(told, 7), 12},
		"less was told":       {"tokens {\nreserve 300\n}", fmt.Sprintf(told, 95), 300, "", 100},
		"more was told":       {"tokens {\nreserve 300\n}", fmt.Sprintf(told, 395), 400, fmt.Sprintf(told, 495), 500},
		"told after the cost": {"cost 2\nsettle {response.body.usage.prompt_tokens}", fmt.Sprintf(told, 50), 50, fmt.Sprintf(told, 60), 60},
		"a status":            {"count_status 2xx", fmt.Sprintf(told, 50), 1, "", 1},
		"no status":           {"count_status 4xx", "", 1, "", 0},
	} {
		for _, how := range []string{"stopped", "replaced", "replaced and stopped", "removed"} {
			t.Run(name+", "+how, func(t *testing.T) {
				replaces, stops := strings.HasPrefix(how, "replaced"), strings.HasSuffix(how, "stopped")
				zone, g := newName("stop"), newGate()
				site := setup{global: "grace_period 100ms", app: b.app(), site: `
					rate_limit {
						zone ` + zone + ` {
							key {header.X-Key}
							` + c.options + `
							rule 1000/1h
						}
					}
					` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
					w.Header().Set("Content-Type", eventStream)
					if c.begins != "" {
						_, _ = io.WriteString(w, c.begins)
						_ = http.NewResponseController(w).Flush()
					}
					g.entered <- r
					<-g.goOn
					_, err := io.WriteString(w, c.ends)
					return err
				})}
				s := serve(t, site)
				done := s.open(g, asking("k", `{}`))
				if how == "removed" { // as DELETE /config/ does
					if err := caddy.Load([]byte("null"), true); err != nil {
						t.Fatal(err)
					}
				}
				if !stops || replaces {
					if err := s.load(site); err != nil {
						t.Fatal(err)
					}
				}
				if stops {
					if err := stopCaddy(); err != nil {
						t.Fatal(err)
					}
					if err := s.load(site); err != nil {
						t.Fatal(err)
					}
				}
				used := func() int64 { return s.key("GET", zone, "k").Rules[0].Used }
				want := c.charged
				if !stops {
					want = c.replaced
				} else if n := used(); n != want {
					t.Errorf("%d charged by the stop, want %d", n, want)
				}
				g.goOn <- true
				<-done
				ended(t)
				if n := used(); n != want {
					t.Errorf("%d charged in the end, want %d", n, want)
				}
			})
		}
	}
}
