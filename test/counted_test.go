package test

import (
	"testing"

	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/cli"
)

// TestRequestsAreCountedOnce checks that the figures of requests count each once, however many
// zones, handlers and error routes it meets, and that what a zone in shadow would deny is not
// among those denied.
func TestRequestsAreCountedOnce(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone wide {
				rule 1000/1h
			}
			zone hidden {
				shadow
				rule 1/1h name few
			}
			zone narrow {
				match path /narrow
				rule 2/1h
			}
			zone slow {
				match path /slow
				max_wait 30s
				rule 2/4s leaky_bucket
			}
		}
		handle /twice* {
			rate_limit {
				zone second {
					rule 3/1h
				}
			}
			respond ok
		}
		handle_errors {
			rate_limit {
				zone errors {
					rule 1000/1h
				}
			}
			respond denied 429
		}
		respond ok`})
	numbers := func() (all cli.Zones) {
		t.Helper()
		if status, text := s.admin("GET", "zones", "", &all); status != 200 {
			t.Fatal(text)
		}
		return all
	}
	for _, step := range []struct {
		what     string
		path     string
		statuses []int
		want     metrics.Requests
	}{
		{"several zones and error routes", "/narrow", []int{200, 200, 429, 429}, metrics.Requests{Allowed: 2, Denied: 2}},
		{"two handlers", "/twice", []int{200, 200, 200, 429}, metrics.Requests{Allowed: 3, Denied: 1}},
		{"a queue", "/slow", []int{200, 200}, metrics.Requests{Allowed: 1, Delayed: 1}},
	} {
		before := numbers().Requests
		s.want(req{path: step.path}, step.statuses...)
		after := numbers().Requests
		got := metrics.Requests{Allowed: after.Allowed - before.Allowed, Denied: after.Denied - before.Denied, Delayed: after.Delayed - before.Delayed}
		if got != step.want {
			t.Errorf("%s: %+v, want %+v", step.what, got, step.want)
		}
	}
	for _, z := range numbers().Zones {
		if z.Name == "hidden" && (z.ShadowDenied["few"] != 9 || len(z.Denied) > 0) {
			t.Errorf("the zone in shadow: %v denied, %v would be: want none, and 9 by few", z.Denied, z.ShadowDenied)
		}
	}
}

// TestUncountedRequests checks that a request that passes every zone uncounted is in no figure.
func TestUncountedRequests(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				exempt path /free
				rule 1/1h
			}
		}
		respond ok`})
	requests := func() metrics.Requests {
		var all cli.Zones
		s.admin("GET", "zones", "", &all)
		return all.Requests
	}
	before := requests()
	s.want(req{path: "/free"}, 200, 200)
	if after := requests(); after != before {
		t.Errorf("%+v after exempt requests, want %+v", after, before)
	}
	s.want(req{}, 200)
	if after := requests(); after.Allowed != before.Allowed+1 {
		t.Errorf("%+v after a counted request, before it %+v", after, before)
	}
}

// TestZoneCountedInOneHandler shows a zone of two handlers, of which the first has disable_metrics: with what the other
// has counted.
func TestZoneCountedInOneHandler(t *testing.T) {
	const zone = "zone z {\nrule 1/1h\n}\n}\nrespond ok\n}\n"
	s := serve(t, setup{site: "handle /a {\nrate_limit {\ndisable_metrics\n" + zone + "handle /b {\nrate_limit {\n" + zone})
	s.want(req{path: "/b"}, 200, 429)
	if z := s.zones().Zones[0]; z.Decisions["denied"] != 1 || z.Denied["1"] != 1 {
		t.Errorf("%+v, want a denial", z)
	}
}
