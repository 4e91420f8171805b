package test

import (
	"slices"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// TestKeyIsFoundInAllZones checks that a key is found in the zones that have counted it, and in
// no other: by its parts, by its hash, and as a part of keys that have more.
func TestKeyIsFoundInAllZones(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
		rate_limit {
			zone account {
				key {header.X-Account}
				key_missing skip
				rule 5/1h
			}
			zone spent {
				match path /spent
				key {header.X-Account}
				key_missing skip
				rule 1/1h
			}
			zone unused {
				match path /unused
				key {header.X-Account}
				rule 5/1h
			}
			zone pair {
				match path /spent
				key {method} {header.X-Account}
				key_missing skip
				rule 5/1h
			}
			zone named {
				match path /unused
				key {header.X-Account}
				rule 5/1h
				override seven unlimited
			}
			log_key
		}
		respond ok`})
		s.want(req{path: "/spent", header: map[string]string{"X-Account": "seven"}}, 200, 429, 429)
		find := func(query string) (found cli.Found) {
			t.Helper()
			if status, text := s.admin("GET", "keys?"+query, "", &found); status != 200 {
				t.Fatal(text)
			}
			return found
		}
		zones := func(found cli.Found) (names []string) {
			for _, k := range found.Keys {
				names = append(names, k.Zone)
			}
			return names
		}
		found := find("part=seven")
		if got, want := zones(found), []string{"spent", "account", "pair", "named"}; !slices.Equal(got, want) {
			t.Errorf("found in %v, want %v: the nearest to a denial first", got, want)
		}
		if !slices.Equal(found.Partly, []string{"pair"}) || found.Zones != 5 {
			t.Errorf("%d zones, %v in part", found.Zones, found.Partly)
		}
		hash := found.Keys[0].Key
		if got, want := found.Denied, []cli.Denials{{Zone: "spent", Key: hash, Times: 2, Cause: "rule"}}; !slices.Equal(got, want) {
			t.Errorf("denied lately %v, want %v", got, want)
		}
		if got := find("part=seven&fleet"); got.Fleet == nil || len(got.Denied) != 1 || got.Denied[0].Times != 2 {
			t.Errorf("of all instances %+v", got.Denied)
		}
		for _, query := range []string{"hash=" + hash, "part=" + hash} {
			if got := zones(find(query)); !slices.Contains(got, "spent") || !slices.Contains(got, "account") {
				t.Errorf("%s: found in %v", query, got)
			}
		}
		if got, want := zones(find("part=GET&part=seven")), []string{"pair"}; !slices.Equal(got, want) {
			t.Errorf("found in %v, want %v", got, want)
		}
		s.want(req{path: "/spent", header: map[string]string{"X-Account": "Ann of  York"}}, 200, 429, 429)
		if got := zones(find("part=Ann+of++York")); !slices.Contains(got, "pair") {
			t.Errorf("a part with spaces is found in %v", got)
		}
		if got := zones(find("part=eight")); len(got) != 0 {
			t.Errorf("eight is found in %v", got)
		}
		if status, text := s.admin("GET", "keys", "", nil); status != 400 {
			t.Errorf("%d %s", status, text)
		}
		if status, _ := s.admin("POST", "keys?part=seven", "", nil); status != 405 {
			t.Errorf("POST: %d", status)
		}
	})
}
