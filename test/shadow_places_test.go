package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestShadowCountsWhereverZonesLie sends the same requests to zones of one handler that lie in one store, in two,
// and in different slots of a Cluster. Those in shadow would deny the same requests, and are charged the same.
func TestShadowCountsWhereverZonesLie(t *testing.T) {
	one := redistest.Start(t)
	var nodes []string
	for _, srv := range redistest.StartCluster(t, 3) {
		nodes = append(nodes, srv.Addr)
	}
	near := redisStore(one.Addr, "timeout 10s", "name near")
	for _, place := range []struct{ name, app, dark, real, own string }{
		{"in this process", "", "", "", ""},
		{"in one store", near, "near", "near", "near"},
		{"in two stores", near, "local", "near", "local"},
		{"in two stores, shadows in Redis", near, "near", "local", "near"},
		{"in slots of a Cluster", redisStore(strings.Join(nodes, " "), "timeout 10s", "cluster", "name slots"), "slots", "slots", "slots"},
	} {
		for _, order := range [][]string{{"wide", "dark", "real", "own"}, {"own", "dark", "real", "wide"}, {"real", "own", "wide", "dark"}} {
			t.Run(place.name+" "+strings.Join(order, " "), func(t *testing.T) {
				names := map[string]string{"dark": newName("dark"), "real": newName("real"), "own": newName("own"), "wide": newName("wide")}
				zone := map[string]string{
					"dark": inStore(place.dark) + "shadow\nkey all\nrule 4/1h",
					"real": inStore(place.real) + "key {client_ip}\nrule 2/1h",
					"own":  inStore(place.own) + "shadow\nkey {client_ip} own\nrule 1/1h",
					"wide": inStore(place.own) + "shadow\nkey everyone\nrule 9/1h",
				}
				site := "rate_limit {\n"
				for _, z := range order {
					site += "zone " + names[z] + " {\n" + zone[z] + "\n}\n"
				}
				s := serve(t, setup{app: place.app, site: site + "}\nrespond ok"})
				var statuses []int
				for range 3 {
					for ip := range 4 {
						statuses = append(statuses, s.send(req{ip: fmt.Sprintf("10.0.7.%d", ip)}).status)
					}
				}
				for i, status := range statuses {
					if denied := status == http.StatusTooManyRequests; denied != (i >= 8) {
						t.Errorf("request %d: status %d", i, status)
					}
				}
				// The zone that is enforced admits 8 requests, of which 4 fit the limits of the shadows, or all. The
				// others are charged to none.
				for z, want := range map[string]map[string]float64{
					"dark": {"allowed": 4, "shadow_denied": 8, "denied_elsewhere": 0},
					"own":  {"allowed": 4, "shadow_denied": 8, "denied_elsewhere": 0},
					"wide": {"allowed": 8, "shadow_denied": 0, "denied_elsewhere": 4},
					"real": {"allowed": 8, "denied": 4},
				} {
					for decision, n := range want {
						if got := s.metric("decisions_total", "zone", names[z], "decision", decision); got != n {
							t.Errorf("zone %s: %s %v, want %v", z, decision, got, n)
						}
					}
				}
			})
		}
	}
}

// inStore returns the line that selects the store of a zone; none with one without a name.
func inStore(name string) string {
	if name == "" {
		return ""
	}
	return "store " + name + "\n"
}
