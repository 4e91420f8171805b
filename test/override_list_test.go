package test

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/follow/lists"
)

// writeList writes a list in place of another, as an operator should: by renaming.
func writeList(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestOverrideOfManyKeys gives many keys one set of rules, under which each is counted on
// its own, and others no limit. Duplicates are ignored, and the most specific key wins.
func TestOverrideOfManyKeys(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		file := filepath.Join(t.TempDir(), "partners")
		writeList(t, file, "# partners", "", "198.51.100.7", "  203.0.113.0/24\r", "198.51.100.7", "203.0.113.0/24")
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					rule 1/1h
					override {
						key 10.0.0.0/8
						key 192.0.2.1
						key 10.0.0.0/8
						key 192.0.2.1
						file ` + file + `
						rule 2/1h
					}
					override {
						key 10.1.0.0/16
						key 203.0.113.9
						unlimited
					}
				}
			}
			respond ok`})
		for _, ip := range []string{"10.2.0.1", "10.2.0.2", "192.0.2.1", "198.51.100.7", "203.0.113.1", "203.0.113.2"} {
			s.want(req{ip: ip}, 200, 200, 429)
		}
		for _, ip := range []string{"10.1.0.1", "203.0.113.9"} {
			s.want(req{ip: ip}, 200, 200, 200)
		}
		s.want(req{ip: "198.51.100.8"}, 200, 429)
	})
}

// TestOverrideOfManyParts gives keys of several parts, as JSON and as a Caddyfile.
func TestOverrideOfManyParts(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				key {client_ip} {header.Plan}
				key_missing share
				rule 1/1h
				override {
					key 10.0.0.0/8 gold
					key * silver
					key 10.0.0.0/24 *
					rule 2/1h
				}
			}
		}
		respond ok`})
	q := func(ip, plan string) req { return req{ip: ip, header: map[string]string{"Plan": plan}} }
	s.want(q("10.9.9.9", "gold"), 200, 200, 429)
	s.want(q("10.9.9.9", "tin"), 200, 429)
	s.want(q("11.9.9.9", "silver"), 200, 200, 429)
	s.want(q("10.0.0.9", "tin"), 200, 200, 429)
}

// listStatus returns the status of the only list.
func listStatus(s *site) lists.List {
	s.Helper()
	all := s.zones().Lists
	if len(all) != 1 {
		s.Fatalf("lists %+v", all)
	}
	return all[0]
}

// listSite returns a site whose zone denies the clients of a list.
func listSite(file string) setup {
	return setup{site: `
		rate_limit {
			zone z {
				override {
					file ` + file + `
					rule 0/1h
				}
				rule 1000/1h
			}
		}
		respond ok`}
}

// TestListIsFollowed replaces, breaks and removes a list while it is in use, and checks
// what is in force, and the log and the admin API.
func TestListIsFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "banned")
	writeList(t, file, "198.51.100.1")
	s := serve(t, listSite(file))
	one, two := req{ip: "198.51.100.1"}, req{ip: "198.51.100.2"}
	s.want(one, 429)
	s.want(two, 200)
	becomes := func(q req, status int) {
		t.Helper()
		until(t, fmt.Sprintf("status %d of %s", status, q.ip), func() bool { return s.send(q).status == status })
	}
	writeList(t, file, "198.51.100.2")
	becomes(two, 429)
	s.want(one, 200)
	if a := listStatus(s); a.Keys != 1 || a.Error != "" || a.File != file {
		t.Errorf("status %+v", a)
	}
	// An invalid one is refused whole.
	writeList(t, file, "198.51.100.1", "198.51.100.300")
	until(t, "the error", func() bool { return listStatus(s).Error != "" })
	if a := listStatus(s); !strings.Contains(a.Error, `line 2: "198.51.100.300"`) || a.Keys != 1 {
		t.Errorf("status %+v", a)
	}
	s.want(one, 200)
	s.want(two, 429)
	until(t, "the log", func() bool { return strings.Contains(s.log.text(), "a list of keys is rejected") })
	// One that disappears stays.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	until(t, "the error", func() bool { return strings.Contains(listStatus(s).Error, "no such file") })
	s.want(two, 429)
	writeList(t, file, "198.51.100.1", "198.51.100.2")
	becomes(one, 429)
	if a := listStatus(s); a.Keys != 2 || a.Error != "" || a.ErrorSince != nil {
		t.Errorf("status %+v", a)
	}
	// An empty one is valid: it has no keys.
	writeList(t, file)
	becomes(one, 200)
	if a := listStatus(s); a.Keys != 0 || a.Error != "" {
		t.Errorf("status %+v", a)
	}
}

// TestListSurvivesReload follows the list of a new configuration, and refuses one whose
// list is missing.
func TestListSurvivesReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	writeList(t, file, "198.51.100.1")
	with := func(limit int) setup {
		return setup{site: fmt.Sprintf("rate_limit {\nzone z {\nrule 1000/1h\noverride {\nfile %s\nrule %d/1h\n}\n}\n}\nrespond ok", file, limit)}
	}
	s := serve(t, with(2))
	s.want(req{ip: "198.51.100.1"}, 200, 200, 429)
	s.reload(with(3))
	s.want(req{ip: "198.51.100.1"}, 200, 429)
	writeList(t, file, "198.51.100.1", "198.51.100.2")
	until(t, "the new list", func() bool {
		return s.send(req{ip: "198.51.100.2"}).get("RateLimit-Policy") == `"z";q=3;w=3600`
	})
	s.want(req{ip: "198.51.100.1"}, 429) // its count stays
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := s.load(with(4)); err == nil || !strings.Contains(err.Error(), "no such file") || !strings.Contains(err.Error(), "zone z: override: file "+file) {
		t.Errorf("a missing list: %v", err)
	}
	s.want(req{ip: "198.51.100.1"}, 429)
}

// TestDocumentsGiveKeys replaces a configured list by a document of the rule source, which
// may give keys, but no files.
func TestDocumentsGiveKeys(t *testing.T) {
	dir := t.TempDir()
	list, doc := filepath.Join(dir, "list"), filepath.Join(dir, "rules.json")
	writeList(t, list, "198.51.100.1")
	writeList(t, doc, `{"zones": {}}`)
	s := serve(t, setup{app: "rules file " + doc, site: "rate_limit {\nzone z {\nrule 1000/1h\noverride {\nfile " + list + "\nrule 0/1h\n}\n}\n}\nrespond ok"})
	s.want(req{ip: "198.51.100.1"}, 429)
	writeList(t, doc, `{"zones": {"z": {"overrides": [{"keys": ["198.51.100.2", ["198.51.100.3"]], "rules": [{"limit": 0, "window": "1h"}]}]}}}`)
	until(t, "the document", func() bool { return s.send(req{ip: "198.51.100.2"}).status == 429 })
	s.want(req{ip: "198.51.100.3"}, 429)
	s.want(req{ip: "198.51.100.1"}, 200)
	writeList(t, doc, `{"zones": {"z": {"overrides": [{"keys_file": "`+list+`", "unlimited": true}]}}}`)
	until(t, "the refusal", func() bool {
		return strings.Contains(s.log.text(), "/zones/z/overrides/0/keys_file: unknown: want key, keys, rules or unlimited")
	})
	s.want(req{ip: "198.51.100.2"}, 429)
}

// TestNarrowKeysWarn warns of keys that match more than they say.
func TestNarrowKeysWarn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	writeList(t, file, "2001:db8::1", "2001:db8:1::/96", "2001:db8:2::/48")
	s := serve(t, setup{site: "rate_limit {\nzone z {\nrule 1/1h\noverride {\nfile " + file + "\nrule 2/1h\n}\n}\n}\nrespond ok"})
	s.want(req{ip: "2001:db8::ffff"}, 200, 200, 429)
	if text := s.log.text(); !strings.Contains(text, "narrower than the zone's prefix") || !strings.Contains(text, `"keys":2,"first":["2001:db8::1"]`) {
		t.Errorf("log %s", text)
	}
}

// TestHundredThousandNetworks loads 100,000 networks within seconds and in 250 MB.
func TestHundredThousandNetworks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	lines := make([]string, 0, 100_000)
	for i := range cap(lines) {
		n := uint32(i) * 2654435761
		lines = append(lines, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), 12+i%21).Masked().String())
	}
	lines = append(lines, "198.51.100.1", "2001:db8::/32")
	writeList(t, file, lines...)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun := time.Now()
	s := serve(t, setup{site: "rate_limit {\nzone z {\nrule 1/1h\noverride {\nfile " + file + "\nrule 2/1h\n}\n}\n}\nrespond ok"})
	took := time.Since(begun)
	runtime.GC()
	runtime.ReadMemStats(&after)
	s.want(req{ip: "198.51.100.1"}, 200, 200, http.StatusTooManyRequests)
	s.want(req{ip: "2001:db8:7::1"}, 200, 200, http.StatusTooManyRequests)
	grown := int64(after.HeapAlloc-before.HeapAlloc) / 1e6
	t.Logf("loaded in %v; the heap has grown by %d MB", took, grown)
	if took > 30*time.Second || grown > 250 {
		t.Errorf("loaded in %v, %d MB", took, grown)
	}
}
