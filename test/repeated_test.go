package test

import "testing"

// TestZoneInTwoHandlers has requests pass one zone in two handlers. They are counted once: by
// its rules, its permits and its fingerprints.
func TestZoneInTwoHandlers(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		twice := `
			rate_limit {
				zone z {
					rule 3/1h
					in_flight 1
					prevent_duplicates 1h
				}
			}`
		s := serve(t, setup{app: b.app(), site: "route {" + twice + twice + "\nrespond ok\n}"})
		s.want(req{method: "POST", path: "/1"}, 200, 429)
		s.want(req{method: "POST", path: "/2"}, 200)
		s.wantHeader(s.want(req{method: "POST", path: "/3"}, 200), "RateLimit", `"z";r=0;t=3600`)
		s.want(req{method: "POST", path: "/4"}, 429)
	})
}
